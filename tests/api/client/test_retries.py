"""What is sent once more, how often and when; and what never is."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import hemiola as hm
from hemiola.api.client import Client, retries
from hemiola.api.client.errors import ConnectionLost, NoAnswer, Unreachable
from hemiola.api.http.app import create_app
from hemiola.api.http.settings import Settings
from hemiola.api.restarts import Restarts
from hemiola.api.served import ServedEngine
from hemiola.core.errors import HemiolaError, Overloaded, RequestAborted
from hemiola.core.events import Token
from hemiola.tests.api.fake_engine import MODULE
from hemiola.tests.api.http.text_rig import wait_until
from hemiola.tests.api.listening import listening

CHAT, IMAGE, VIDEO = "hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video"
FULL = {"error": {"message": "Full.", "type": "server_error", "param": None, "code": "server_overloaded"}}
HALF = b'data: {"choices":[{"delta":{"content":"Half"}}]}\n\n'
STREAM = {"content-type": "text/event-stream"}
SOON_S = 10.0

Answering = Callable[[httpx.Request], httpx.Response]


class Refusing(httpx.AsyncBaseTransport):
    """Refuses what is asked for the first times, each method and path by itself; the rest goes to a real server."""

    def __init__(self, status: int, num_refused: int) -> None:
        self.num_asked: Counter[tuple[str, str]] = Counter()
        self._status = status
        self._num_refused = num_refused
        self._server = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = request.method, request.url.path
        self.num_asked[asked] += 1
        if self.num_asked[asked] <= self._num_refused:
            return httpx.Response(self._status, json=FULL)
        return await self._server.handle_async_request(request)

    async def aclose(self) -> None:
        await self._server.aclose()


def through(client: Client, transport: httpx.AsyncBaseTransport) -> Client:
    """The same client, for which that is the way to its server."""
    connection = client._connection
    connection._http = httpx.AsyncClient(
        base_url=connection.url, headers=connection._http.headers, transport=transport, timeout=SOON_S
    )
    return client


def asking(answer: Answering, **options: Any) -> Client:
    return through(Client("http://server", **options), httpx.MockTransport(answer))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The pauses that were to be made, and are not."""
    found: list[float] = []
    wanted_s = retries._pause_s

    def skip(*args: Any) -> float:
        found.append(wanted_s(*args))
        return 0.0

    monkeypatch.setattr(retries, "_pause_s", skip)
    yield found


@hm.program
def greeting(s: hm.State) -> None:
    s += hm.user("Hello")
    s += hm.assistant(hm.gen("said", max_tokens=3))


QUICK: dict[str, Any] = {"num_inference_steps": 1, "seed": 1}
CALLS: dict[str, Callable[[Client], Any]] = {
    "chat": lambda client: client.chat("Hello", model=CHAT, max_tokens=3),
    "complete": lambda client: client.complete("One, two,", model=CHAT, max_tokens=None, stop=","),
    "image": lambda client: client.image("a fox", model=IMAGE, size=(64, 64), **QUICK),
    "video": lambda client: client.video("a ball", model=VIDEO, num_frames=1, **QUICK),
    "scores": lambda client: client.stream_scores(["yes", "no"], model=CHAT, messages="Well?").result(SOON_S),
    "program": lambda client: greeting.on(client).run().raise_for_errors(),
    "remote program": lambda client: greeting.on(client, remote=True).run().raise_for_errors(),
}
PATHS = {
    "chat": {("POST", "/v1/chat/completions")},
    "complete": {("POST", "/v1/completions"), ("GET", "/v1/models")},
    "image": {("POST", "/v1/images/generations"), ("GET", "/v1/models")},
    "scores": {("POST", "/v1/programs"), ("GET", "/v1/models")},
    "remote program": {("POST", "/v1/programs")},
}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("kind", CALLS)
def test_every_call_is_made_again_while_the_server_takes_nothing(
    address: str, kind: str, status: int, pauses: list[float]
) -> None:
    transport = Refusing(status, num_refused=2)
    with Client(address, "secret") as client:
        assert CALLS[kind](through(client, transport))
    assert len(pauses) == 2 * len(transport.num_asked)
    assert transport.num_asked.keys() >= PATHS.get(kind, set())
    if kind == "video":
        made = {path.rpartition("/")[0] or path for _, path in transport.num_asked}
        assert transport.num_asked["POST", "/v1/videos"] == 3 and len(made) > 2, made
        with Client(address, "secret") as client:
            assert _jobs(client) == []


def _jobs(client: Client) -> Any:
    listed: list[Any] = []

    async def look() -> None:
        listed.append(await client._connection.ask("GET", "/v1/videos"))

    client._connection.start("look", look(), lambda: None)
    wait_until(lambda: listed)
    return listed[0][0]["data"]


async def test_coroutines_are_asked_again_too(address: str, pauses: list[float]) -> None:
    with Client(address, "secret") as client:
        assert (await through(client, Refusing(503, 1)).achat("Hello", model=CHAT, max_tokens=3)).answers
    assert len(pauses) == 1


@pytest.mark.parametrize("max_retries", [0, 1, 5])
def test_max_retries_is_how_often(max_retries: int, pauses: list[float]) -> None:
    asked: list[httpx.Request] = []

    def full(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(503, json=FULL)

    with asking(full, max_retries=max_retries) as client, pytest.raises(Overloaded, match=r"Full\."):
        client.chat("Hello")
    assert (len(asked), len(pauses)) == (max_retries + 1, max_retries)


@pytest.mark.parametrize("fault", [httpx.ConnectError, httpx.ConnectTimeout])
def test_a_server_that_cannot_be_reached_is_tried_again(fault: type[httpx.TransportError], pauses: list[float]) -> None:
    def unreachable(request: httpx.Request) -> httpx.Response:
        raise fault("Refused.")

    with asking(unreachable) as client, pytest.raises(Unreachable, match="Refused"):
        client.chat("Hello")
    assert len(pauses) == retries.MAX_RETRIES == 2


def _answers(status: int, headers: dict[str, str] | None = None) -> Answering:
    return lambda request: httpx.Response(status, json=FULL, headers=headers)


def _raises(error: httpx.TransportError) -> Answering:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    return answer


@pytest.mark.parametrize("kind", ["chat", "image", "video"])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        *((_answers(status), HemiolaError) for status in (400, 401, 404, 408, 409, 422, 500, 502, 504)),
        (_answers(429, {"x-should-retry": "false"}), Overloaded),
        (_answers(503, {"retry-after": "600"}), Overloaded),
        (_raises(httpx.ReadTimeout("")), NoAnswer),
        (_raises(httpx.ReadError("")), ConnectionLost),
        (_raises(httpx.RemoteProtocolError("")), ConnectionLost),
        (_raises(httpx.WriteError("")), ConnectionLost),
    ],
)
def test_what_may_have_been_begun_or_will_not_change_is_told_at_once(
    kind: str, answer: Answering, error: type[HemiolaError], pauses: list[float]
) -> None:
    asked: list[str] = []

    def once(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return answer(request)

    with asking(once, extensions=True) as client, pytest.raises(error):
        getattr(client, kind)("Hello", model="m")
    assert len(asked) == 1 and pauses == []


@pytest.mark.parametrize("end", [b'data: {"error":{"message":"Full.","code":"server_overloaded"}}\n\n', b""])
def test_a_stream_that_has_begun_is_not_asked_for_again(end: bytes, pauses: list[float]) -> None:
    asked: list[httpx.Request] = []

    def half(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, headers=STREAM, stream=httpx.ByteStream(HALF + end))

    with asking(half) as client, pytest.raises(Overloaded if end else ConnectionLost):
        client.chat("Hello")
    assert len(asked) == 1 and pauses == []


# When


def test_pauses_grow_up_to_a_bound_and_differ(pauses: list[float]) -> None:
    with asking(_answers(503), max_retries=40) as client, pytest.raises(Overloaded):
        client.chat("Hello")
    for pause_s, least_s in zip(pauses, [0.5, 1.0, 2.0, 4.0, *[8.0] * 36], strict=True):
        assert least_s <= pause_s <= 1.25 * least_s
    assert len(set(pauses)) == len(pauses)


@pytest.mark.parametrize(
    ("headers", "least_s"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0"}, 0.5),
        ({"retry-after": "3", "retry-after-ms": "1500"}, 1.5),
        *(({"retry-after": word}, 0.5) for word in ("soon", "-1", "nan", "")),
    ],
)
def test_the_server_says_when(headers: dict[str, str], least_s: float, pauses: list[float]) -> None:
    with asking(_answers(503, headers), max_retries=1) as client, pytest.raises(Overloaded):
        client.chat("Hello")
    assert least_s <= pauses[0] <= 1.25 * least_s


@pytest.mark.parametrize(("in_s", "least_s", "most_s"), [(60, 30.0, 75.0), (-60, 0.5, 0.625)])
def test_the_server_says_when_as_a_date(in_s: int, least_s: float, most_s: float, pauses: list[float]) -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=in_s), usegmt=True)
    with asking(_answers(503, {"retry-after": when}), max_retries=1) as client, pytest.raises(Overloaded):
        client.chat("Hello")
    assert least_s <= pauses[0] <= most_s


@pytest.mark.parametrize("kind", ["chat", "video"])
def test_cancelling_does_not_wait_for_a_pause(kind: str) -> None:
    """A clip's creation is not given up halfway, but between two attempts nothing is under way."""
    asked: list[httpx.Request] = []

    def full(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(503, json=FULL, headers={"retry-after": "5"})

    with asking(full, extensions=True) as client:
        stream = getattr(client, f"stream_{kind}")("Hello")
        wait_until(lambda: asked)
        time.sleep(0.05)  # until the pause has begun
        begin = time.monotonic()
        stream.cancel()
        with pytest.raises(RequestAborted):
            stream.result(SOON_S)
        assert time.monotonic() - begin < 2
    assert len(asked) == 1


def test_whoever_asks_while_an_engine_starts_again_is_answered(tmp_path: Path) -> None:
    """The first attempt is refused by a server whose engine was killed, and the second finds the next engine."""
    settings = Settings(data_dir=tmp_path, retry_after_s=1)
    with (
        ServedEngine(f"calm={CHAT}", module=MODULE, restarts=Restarts(pause_s=0.0)) as engine,
        listening(create_app(engine, settings)) as address,
        Client(address) as client,
        Client(address, max_retries=0) as hasty,
    ):
        running = client.stream_chat("Hello", max_tokens=400, ignore_eos=True)
        assert isinstance(next(iter(running)), Token)
        assert engine.remote.pid is not None
        os.kill(engine.remote.pid, signal.SIGKILL)
        with pytest.raises(HemiolaError, match="died"):  # it had begun
            running.result(SOON_S)
        with pytest.raises(Overloaded, match="starting"):
            hasty.chat("Hello", max_tokens=3)
        assert client.chat("Hello", max_tokens=3).answers
        assert engine.remote.num_restarts == 1
