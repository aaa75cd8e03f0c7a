"""How files of results are sent: whole, in ranges, or only described."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from hemiola.tests.api.http.media_server import MediaServer, serving, soon

PATH = "/v1/videos"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MediaServer]:
    with serving(tmp_path_factory.mktemp("files")) as made:
        yield made


@pytest.fixture(scope="module")
def clip(server: MediaServer) -> tuple[str, bytes]:
    """Where a finished clip is, and its bytes."""
    path = f"{PATH}/{server.post(PATH, prompt='fox', num_frames=33).json()['id']}"
    soon(lambda: server.http.get(path).json()["status"] == "completed")
    return f"{path}/content", server.http.get(f"{path}/content").content


def test_a_clip_is_sent_whole_or_only_described(server: MediaServer, clip: tuple[str, bytes]) -> None:
    path, data = clip
    whole = server.http.get(path, headers={"accept": "application/binary"})
    assert (whole.status_code, whole.headers["accept-ranges"]) == (200, "bytes")
    assert whole.headers["content-disposition"].startswith('inline; filename="video_')
    head = server.http.head(path)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(data)))
    assert head.headers["etag"] == whole.headers["etag"]
    assert server.http.get(path, headers={"if-none-match": whole.headers["etag"]}).status_code == 304
    assert server.http.get(path, params={"variant": "0"}).content == data
    wrong = server.http.get(path, params={"variant": "1"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "variant")


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [("bytes=0-0", 0, 0), ("bytes=100-199", 100, 199), ("bytes=10-", 10, None), ("bytes=-7", -7, None)],
)
def test_a_part_of_a_clip_is_sent(
    server: MediaServer, clip: tuple[str, bytes], asked: str, first: int, last: int | None
) -> None:
    path, data = clip
    expected = data[first:] if last is None else data[first : last + 1]
    begin = first % len(data)
    response = server.http.get(path, headers={"range": asked})
    assert (response.status_code, response.content) == (206, expected)
    assert response.headers["content-range"] == f"bytes {begin}-{begin + len(expected) - 1}/{len(data)}"
    head = server.http.head(path, headers={"range": asked})
    assert (head.status_code, head.headers["content-length"]) == (206, str(len(expected)))


@pytest.mark.parametrize("asked", ["bytes=5-2", "bytes=a-b", "lines=0-1", "bytes", "bytes=-", "bytes=0-1,5-6,x"])
def test_a_range_that_is_none_is_as_good_as_not_sent(server: MediaServer, clip: tuple[str, bytes], asked: str) -> None:
    path, data = clip
    response = server.http.get(path, headers={"range": asked})
    assert (response.status_code, response.content) == (200, data)


@pytest.mark.parametrize("asked", ["bytes=10000000-", "bytes=10000000-10000001", "bytes=-0"])
def test_a_range_beyond_the_clip_is_refused(server: MediaServer, clip: tuple[str, bytes], asked: str) -> None:
    path, data = clip
    response = server.http.get(path, headers={"range": asked})
    assert (response.status_code, response.headers["content-range"]) == (416, f"bytes */{len(data)}")
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_part_of_another_clip_is_never_sent(server: MediaServer, clip: tuple[str, bytes]) -> None:
    path, data = clip
    etag = server.http.head(path).headers["etag"]
    for condition, status in ((etag, 206), ('"another"', 200), (f"W/{etag}", 200)):
        response = server.http.get(path, headers={"range": "bytes=0-9", "if-range": condition})
        assert (response.status_code, len(response.content)) == (status, 10 if status == 206 else len(data))


def test_a_clip_that_is_fetched_in_pieces_is_the_clip(server: MediaServer, clip: tuple[str, bytes]) -> None:
    path, data = clip
    borders = sorted({0, len(data), *random.Random(0).choices(range(len(data)), k=5)})
    pieces = [
        server.http.get(path, headers={"range": f"bytes={first}-{last - 1}"}).content
        for first, last in pairwise(borders)
    ]
    assert b"".join(pieces) == data
