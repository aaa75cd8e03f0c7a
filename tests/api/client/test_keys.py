"""Whom the client tells its key: the server that it was given for, and nobody else whose address that server tells."""

import base64
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from hemiola.api.client import Client
from hemiola.core.errors import HemiolaError

SERVER = "http://server:8000/v1"
RED = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")

Answering = Callable[[httpx.Request], httpx.Response]


class Everybody:
    """All servers there are, and what they were asked."""

    def __init__(self, answer: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[httpx.Request] = []
        self._answer = answer
        make = httpx.AsyncClient

        def made(**options: Any) -> httpx.AsyncClient:
            return make(**options, transport=httpx.MockTransport(self._take))

        monkeypatch.setattr(httpx, "AsyncClient", made)

    @property
    def keys(self) -> list[str | None]:
        return [request.headers.get("authorization") for request in self.asked]

    def _take(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return self._answer(request)


def _lies_at(url: str) -> Answering:
    """A server that does not stream, and whose pictures are files there."""

    def answer(request: httpx.Request) -> httpx.Response:
        is_asked = request.method == "POST"
        return httpx.Response(200, json={"data": [{"url": url}]}) if is_asked else httpx.Response(200, content=RED)

    return answer


@pytest.mark.parametrize(
    ("server", "url", "is_its_own"),
    [
        (SERVER, "http://server:8000/files/fox.png", True),
        (SERVER, "HTTP://SERVER:8000/files/fox.png", True),
        (SERVER, "/files/fox.png", True),
        ("http://server", "http://server:80/fox.png", True),
        ("https://server:443", "https://server/fox.png", True),
        (SERVER, "http://elsewhere:8000/fox.png", False),
        (SERVER, "http://server/fox.png", False),
        (SERVER, "http://server:8001/fox.png", False),
        (SERVER, "https://server:8000/fox.png", False),
        (SERVER, "http://server:8000@elsewhere/fox.png", False),
        (SERVER, "http://server.elsewhere:8000/fox.png", False),
        ("https://server", "http://server/fox.png", False),
    ],
)
def test_a_picture_that_lies_elsewhere_is_fetched_without_the_key(
    server: str, url: str, is_its_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key was a header of all requests, so whoever keeps a server's pictures was told it."""
    everybody = Everybody(_lies_at(url), monkeypatch)
    with Client(server, "secret", extensions=True) as client:
        assert client.image("a fox").pictures[0].pixels.data == b"\xff\x00\x00"
    asked, fetched = everybody.keys
    assert asked == "Bearer secret"
    assert (fetched == "Bearer secret") is is_its_own


def test_a_clip_and_its_job_lie_on_the_server_whatever_the_job_calls_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched is a path: an id that looks like an address leads nowhere else."""
    job = {"id": "http://elsewhere/x", "status": "completed", "url": "http://elsewhere/clip.mp4"}
    everybody = Everybody(lambda request: httpx.Response(200, json=job), monkeypatch)
    with Client(SERVER, "secret", extensions=True) as client, pytest.raises(HemiolaError):
        client.video("a fox")
    assert [request.method for request in everybody.asked] == ["POST", "GET", "DELETE"]
    assert {request.url.netloc for request in everybody.asked} == {b"server:8000"}
    assert everybody.keys == ["Bearer secret"] * 3


@pytest.mark.parametrize("moved", ["http://elsewhere/fox.png", "https://server/fox.png", "http://server/other.png"])
@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_redirect_is_told_and_not_followed(
    method: str, status: int, moved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """httpx itself would take the key along from http to https of one host, which may be another server."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == method and request.url.path != httpx.URL(moved).path:
            return httpx.Response(status, headers={"location": moved})
        return _lies_at("http://server/fox")(request)

    everybody = Everybody(answer, monkeypatch)
    with Client("http://server", "secret", extensions=True) as client, pytest.raises(HemiolaError, match=str(status)):
        client.image("a fox")
    asked = [(request.method, str(request.url)) for request in everybody.asked]
    every = [("POST", "http://server/v1/images/generations"), ("GET", "http://server/fox")]
    assert asked == (every[:1] if method == "POST" else every)


def test_without_a_key_nobody_is_told_one(monkeypatch: pytest.MonkeyPatch) -> None:
    everybody = Everybody(_lies_at("/fox.png"), monkeypatch)
    with Client(SERVER, extensions=True) as client:
        client.image("a fox")
    assert everybody.keys == [None, None]
