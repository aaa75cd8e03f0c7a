"""Clips over HTTP: jobs, their lists and files, and what becomes of both."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from hemiola.api.http.media_fields import HONOURED_BY_VIDEOS, VIDEO_FIELDS
from hemiola.api.http.video_asks import nearest_length
from hemiola.api.jobs import JobLimits
from hemiola.diffusion.edge import Limits
from hemiola.tests.api.http.media_server import MediaServer, serving, soon

# The SDK marks its methods for videos as deprecated; servers are what they are good for.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PATH = "/v1/videos"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MediaServer]:
    with serving(tmp_path_factory.mktemp("videos")) as made:
        yield made


@pytest.fixture(autouse=True)
def rested(server: MediaServer) -> Iterator[None]:
    """Every test leaves the backend idle and as it was."""
    yield
    painter = server.painter
    painter.let_go()
    painter.refusal, painter.death = None, None
    soon(lambda: painter.num_running == 0)


def created(server: MediaServer, **said: Any) -> dict[str, Any]:
    response = server.post(PATH, prompt="fox", **said)
    assert response.status_code == 200, response.text
    job: dict[str, Any] = response.json()
    return job


def ended(server: MediaServer, job: dict[str, Any]) -> dict[str, Any]:
    def check() -> dict[str, Any] | None:
        now: dict[str, Any] = server.http.get(f"{PATH}/{job['id']}").json()
        return None if now["status"] in ("queued", "in_progress") else now

    done: dict[str, Any] = soon(check)
    return done


def num_frames_of(data: bytes) -> int:
    with av.open(io.BytesIO(data)) as container:
        return sum(1 for _ in container.decode(video=0))


# With the real client


def test_the_openai_client_creates_waits_and_downloads(server: MediaServer, tmp_path: Path) -> None:
    sdk = server.sdk()
    video = sdk.videos.create_and_poll(prompt="fox", model="film", size="48x32", seconds="2", extra_body={"seed": 3})  # type: ignore[arg-type]
    assert (video.status, video.progress, video.seconds, video.size) == ("completed", 100, "2", "48x32")
    assert (video.model, video.prompt, video.error) == ("film", "fox", None)
    assert video.completed_at is not None and video.expires_at is not None
    assert video.expires_at - video.completed_at == 24 * 3600
    assert (video.num_frames, video.fps, video.seed) == (17, 8, 3)  # type: ignore[attr-defined]
    assert server.painter.requests[-1].num_frames == 17
    content = sdk.videos.download_content(video.id)
    assert content.response.headers["content-type"] == "video/mp4"
    assert num_frames_of(content.read()) == 17
    for variant, name in (("thumbnail", "WEBP"), ("spritesheet", "JPEG")):
        data = sdk.videos.download_content(video.id, variant=variant).read()  # type: ignore[arg-type]
        assert Image.open(io.BytesIO(data)).format == name
    with httpx.Client() as http:
        assert http.get(video.url).status_code == 200  # type: ignore[attr-defined]


async def test_the_asynchronous_client_does_too(server: MediaServer) -> None:
    sdk = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    video = await sdk.videos.create_and_poll(prompt="fox", extra_body={"lora": None, "n": 1, "enable_teacache": False})
    assert video.status == "completed"
    assert (await sdk.videos.delete(video.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await sdk.videos.retrieve(video.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.videos.download_content(video.id)


def test_the_openai_client_reads_all_pages(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        ids = [created(server)["id"] for _ in range(5)]
        sdk = server.sdk()
        assert [video.id for video in sdk.videos.list(limit=2)] == ids[::-1]
        assert [video.id for video in sdk.videos.list(limit=2, order="asc")] == ids
        page = server.http.get(PATH, params={"limit": 2, "after": ids[4]}).json()
        assert (page["first_id"], page["last_id"], page["has_more"]) == (ids[3], ids[2], True)
        assert page["object"] == "list"
        for query in ({"limit": 0}, {"limit": 101}, {"limit": "x"}, {"order": "up"}, {"after": "video_none"}):
            response = server.http.get(PATH, params=query)
            assert (response.status_code, response.json()["error"]["param"]) == (400, next(iter(query)))


def test_a_failed_job_is_told_as_one_and_not_as_a_failure(server: MediaServer) -> None:
    server.painter.death = "insufficient_memory"
    video = server.sdk().videos.create_and_poll(prompt="fox")
    assert video.status == "failed" and video.error is not None
    assert (video.error.code, video.error.message) == ("insufficient_memory", "Something went wrong.")
    response = server.http.get(f"{PATH}/{video.id}/content")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "insufficient_memory")


# Lengths


@pytest.mark.parametrize(
    ("said", "num_frames", "seconds"),
    [
        ({}, 9, "1.125"),
        ({"seconds": "1"}, 9, "1"),
        ({"seconds": 1.4}, 13, "1.4"),
        ({"seconds": 2, "fps": 4}, 9, "2"),
        ({"seconds": "0.01"}, 1, "0.01"),
        ({"num_frames": 10}, 9, "1.125"),
        ({"num_frames": 11, "fps": 10}, 13, "1.3"),
        ({"num_frames": 5, "seconds": "15"}, 5, "0.625"),
        ({"num_frames": 125}, 125, "15.625"),
        ({"num_frames": 1}, 1, "0.125"),
    ],
)
def test_lengths_are_rounded_to_the_models_grid(
    server: MediaServer, said: dict[str, Any], num_frames: int, seconds: str
) -> None:
    job = created(server, **said)
    assert (job["num_frames"], job["seconds"], job["fps"]) == (num_frames, seconds, said.get("fps", 8))
    assert ended(server, job)["status"] == "completed"
    assert num_frames_of(server.http.get(f"{PATH}/{job['id']}/content").content) == num_frames


@given(num_frames=st.integers(1, 200), multiple=st.integers(1, 8), largest=st.integers(1, 200))
def test_the_nearest_length_is_on_the_grid_and_as_near_as_can_be(num_frames: int, multiple: int, largest: int) -> None:
    limits = Limits(16, 64, 64, max_frames=largest, frame_multiple=multiple)
    allowed = range(1, largest + 1, multiple)
    nearest = nearest_length(num_frames, limits)
    assert nearest in allowed
    assert abs(nearest - num_frames) == min(abs(each - num_frames) for each in allowed)


# What is said


def test_a_form_and_json_say_the_same(server: MediaServer) -> None:
    said = {"prompt": "fox", "seed": 5, "num_inference_steps": 2, "guidance_scale": 1.5, "fps": 10, "size": "32x48"}
    form = server.http.post(PATH, files={name: (None, str(value)) for name, value in said.items()}).json()
    as_json = server.post(PATH, **said).json()
    for name in ("seed", "num_inference_steps", "guidance_scale", "fps", "size", "num_frames", "model", "status"):
        assert form[name] == as_json[name]
    for job in (form, as_json):
        ended(server, job)
    assert server.painter.requests[-1].guidance_scale == 1.5


def test_the_same_seed_is_random_once_and_told(server: MediaServer) -> None:
    first, second = created(server), created(server)
    assert first["seed"] != second["seed"]
    ended(server, second)
    assert {request.seed for request in server.painter.requests[-2:]} == {first["seed"], second["seed"]}


@pytest.mark.parametrize(
    ("said", "param", "code", "words"),
    [
        ({"prompt": None}, "prompt", "missing_required_parameter", "'prompt'"),
        ({"model": "sora-2"}, "model", "model_not_found", "film"),
        ({"model": "brush"}, "model", "invalid_value", "film"),
        ({"size": "50x32"}, "size", "invalid_value", "'48x32'"),
        ({"seconds": "long"}, "seconds", "invalid_value", "'long'"),
        ({"seconds": "nan"}, "seconds", "invalid_value", "'nan'"),
        ({"seconds": 0}, "seconds", "decimal_below_min_value", "> 0"),
        ({"seconds": True}, "seconds", "invalid_type", "a boolean"),
        ({"seconds": "16"}, "seconds", "invalid_value", "125 at most: 15.6 seconds"),
        ({"num_frames": 126}, "num_frames", "integer_above_max_value", "125"),
        ({"num_frames": "9"}, "num_frames", "invalid_type", "a string"),
        ({"fps": 0}, "fps", "integer_below_min_value", ">= 1"),
        ({"n": 2}, "n", "unsupported_parameter", "One request makes one video."),
        ({"input_reference": {"image_url": "data:x"}}, "input_reference", "unsupported_parameter", "text alone"),
        ({"output_path": "/tmp/x.mp4"}, "output_path", "unsupported_parameter", "Download"),
        ({"guidance_scale_2": 3.0}, "guidance_scale_2", "unsupported_parameter", "guidance_scale"),
        ({"enable_frame_interpolation": True}, "enable_frame_interpolation", "unsupported_parameter", ""),
    ],
)
def test_what_is_wrong_is_named(server: MediaServer, said: dict[str, Any], param: str, code: str, words: str) -> None:
    num_before = len(server.painter.requests)
    status, error = server.error(PATH, **{"prompt": "fox", **said})
    assert (status, error["param"], error["code"]) == (404 if code == "model_not_found" else 400, param, code)
    assert words in error["message"]
    assert len(server.painter.requests) == num_before


def test_a_reference_picture_is_refused_by_name_whatever_it_is(server: MediaServer) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.sdk().videos.create(prompt="fox", input_reference=b"\x89PNG" + bytes(3 << 20))
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "input_reference")


JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text())
NAMES = st.sampled_from([*HONOURED_BY_VIDEOS, *VIDEO_FIELDS.unsupported, "unknown"])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(NAMES, JSON, max_size=5), is_form=st.booleans())
def test_no_body_breaks_the_server(server: MediaServer, body: dict[str, Any], is_form: bool) -> None:
    said = body | {"prompt": "fox", "num_inference_steps": 1, "num_frames": 1}
    if is_form:
        response = server.http.post(PATH, files={name: (None, str(value)) for name, value in said.items()})
    else:
        headers = {"content-type": "application/json"}
        response = server.http.post(PATH, content=json.dumps(said), headers=headers)
    assert response.status_code in (200, 400, 404), (said, response.text)
    if response.status_code == 200:
        assert ended(server, response.json())["status"] == "completed"
        server.http.delete(f"{PATH}/{response.json()['id']}")


# What becomes of a job


def test_a_job_is_asked_after_until_it_is_done(server: MediaServer) -> None:
    server.painter.hold()
    job = created(server)
    assert (job["status"], job["progress"], job["completed_at"], job["error"]) == ("queued", 0, None, None)
    path = f"{PATH}/{job['id']}"
    soon(lambda: server.http.get(path).json()["progress"] == 71)
    response = server.http.get(path)
    assert response.json()["status"] == "in_progress"
    assert int(response.headers["openai-poll-after-ms"]) <= 1000
    early = server.http.get(f"{path}/content")
    assert (early.status_code, early.json()["error"]["code"]) == (404, "video_not_ready")
    assert early.headers["retry-after"] == "1"
    server.painter.let_go()
    assert ended(server, job)["progress"] == 100
    assert "openai-poll-after-ms" not in server.http.get(path).headers


def test_deleting_a_running_job_aborts_it(server: MediaServer) -> None:
    server.painter.hold()
    job = created(server)
    path = f"{PATH}/{job['id']}"
    soon(lambda: server.painter.num_running == 1)
    response = server.http.delete(path, headers={"content-type": "application/json"})
    assert response.json() == {"id": job["id"], "object": "video.deleted", "deleted": True}
    soon(lambda: server.painter.num_running == 0)
    for method, url in (("GET", path), ("GET", f"{path}/content"), ("DELETE", path), ("POST", f"{path}/cancel")):
        gone = server.http.request(method, url)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "video_not_found")


def test_cancelling_a_running_job_keeps_it_as_failed(server: MediaServer) -> None:
    server.painter.hold()
    job = created(server)
    soon(lambda: server.painter.num_running == 1)
    cancelled = server.http.post(f"{PATH}/{job['id']}/cancel").json()
    assert (cancelled["status"], cancelled["error"]["code"]) == ("failed", "cancelled")
    soon(lambda: server.painter.num_running == 0)
    assert server.http.get(f"{PATH}/{job['id']}").json() == cancelled


def test_more_jobs_than_may_be_kept_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, jobs=JobLimits(max_videos=1)) as server:
        job = created(server)
        response = server.post(PATH, prompt="fox")
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (429, "storage_quota_exceeded")
        assert "DELETE" in error["message"] and response.headers["x-should-retry"] == "false"
        server.http.delete(f"{PATH}/{job['id']}")
        created(server)


def test_jobs_survive_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        done = ended(server, created(server, seed=1))
        content = server.http.get(f"{PATH}/{done['id']}/content")
        server.painter.hold()
        running = created(server, seed=2)
        soon(lambda: server.http.get(f"{PATH}/{running['id']}").json()["status"] == "in_progress")
    with serving(tmp_path) as server:
        again = server.http.get(f"{PATH}/{done['id']}").json()
        assert again | {"url": None} == done | {"url": None}
        file = server.http.get(f"{PATH}/{done['id']}/content")
        assert (file.content, file.headers["etag"]) == (content.content, content.headers["etag"])
        assert ended(server, running)["status"] == "completed"
        assert [request.seed for request in server.painter.requests] == [2]


def test_who_has_a_key_sees_the_own_jobs_alone_and_an_administrator_all(tmp_path: Path) -> None:
    with serving(tmp_path, api_keys=("one", "two"), admin_keys=("boss",)) as server:
        job = server.sdk("one").videos.create(prompt="fox")
        for stranger in ("two", "none"):
            with pytest.raises(openai.NotFoundError if stranger == "two" else openai.AuthenticationError):
                server.sdk(stranger).videos.retrieve(job.id)
        with pytest.raises(openai.NotFoundError):
            server.sdk("two").videos.delete(job.id)
        assert list(server.sdk("two").videos.list()) == []
        assert [video.id for video in server.sdk("boss").videos.list()] == [job.id]
        assert server.sdk("one").videos.delete(job.id).deleted


@pytest.mark.parametrize("path", ["edits", "extensions", "characters", "video_1/remix"])
def test_what_no_model_does_is_refused_in_a_way_that_is_not_tried_again(server: MediaServer, path: str) -> None:
    response = server.http.post(f"{PATH}/{path}", content=json.dumps({"prompt": "fox"}))
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_endpoint")
