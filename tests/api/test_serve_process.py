"""`hemiola serve` as people run it: a process that is spoken to over HTTP, gets signals, and loses its engine."""

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hemiola.api.cli import main
from hemiola.api.cli.serve import read_keys
from hemiola.api.serving import listen, url_of
from hemiola.core.errors import InvalidRequest
from hemiola.tests.api.fake_engine import MODULE
from hemiola.tests.api.processes import is_alive, wait_until
from hemiola.tests.engine import models

SERVE = "import sys; from hemiola.api.cli import main; sys.exit(main(['serve', *sys.argv[1:]]))"
# The same over an engine that computes nothing and starts in a blink.
SERVE_FAKE = f"""
import sys
from pathlib import Path
from hemiola.api.http.app import create_app
from hemiola.api.http.settings import Settings
from hemiola.api.restarts import Restarts
from hemiola.api.served import ServedEngine
from hemiola.api.serving import Serving, listen, url_of
from hemiola.core.errors import HemiolaError
model, data, drain_s = sys.argv[1:]
engine = ServedEngine(model, module={MODULE!r}, restarts=Restarts(max_deaths=2, pause_s=0.0))
listener = listen("127.0.0.1", 0)
def say(text): print(text, flush=True)
say(url_of(listener))
serving = Serving(engine, create_app(engine, Settings(data_dir=Path(data))), listener,
                  on_ready=lambda report: say("Ready"), say=say, drain_s=float(drain_s))
try:
    serving.run()
except HemiolaError as error:
    sys.exit(error.message)
print("torch" in sys.modules)
"""
SMALL = ["--device", "cpu", "--threads", "1", "--memory-mib", "64"]
LONG = 480
"""Tokens: as many as the context allows; some 15 s of a calm engine."""


class Served:
    """A server's process; `lines` are those of its output so far."""

    def __init__(self, code: str, arguments: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    @property
    def url(self) -> str:
        assert wait_until(lambda: "http://" in self.output), self.output
        found = re.search(r"http://[\d.]+:\d+", self.output)
        assert found is not None
        return found[0]

    def health(self) -> int:
        """The status, or 0 when nobody listens."""
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code
        except httpx.TransportError:
            return 0

    def engine_pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            children += (thread / "children").read_text().split()
        (pid,) = set(children)
        return int(pid)

    def signal(self, number: int) -> None:
        """To all of its group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def wait(self, timeout_s: float = 20.0) -> int:
        """The exit status."""
        status = self.process.wait(timeout_s)
        self._reader.join()
        return status


@contextmanager
def running(code: str, *arguments: str) -> Iterator[Served]:
    served = Served(code, arguments)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.wait()


@contextmanager
def fake_server(tmp_path: Path, model: str = "chat", drain_s: float = 20.0) -> Iterator[Served]:
    with running(SERVE_FAKE, f"{model}={models.folder('chat')}", str(tmp_path / "data"), str(drain_s)) as served:
        yield served


class Chat(threading.Thread):
    """A streamed answer, read on a thread."""

    def __init__(self, url: str, max_tokens: int, **headers: str) -> None:
        super().__init__()
        self.url, self.headers, self.max_tokens = url, headers, max_tokens
        self.frames: list[str] = []
        self.status = 0
        self.start()

    def run(self) -> None:
        body = {
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
        }
        url = f"{self.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers=self.headers, timeout=60) as response:
            self.status = response.status_code
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.frames.append(line.removeprefix("data: "))

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What went wrong in mid-stream."""
        return [json.loads(frame)["error"] for frame in self.frames if frame.startswith('{"error"')]

    def has_begun(self) -> bool:
        return len(self.frames) > 2


def ask(url: str, **headers: str) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def test_a_server_from_its_start_to_its_end_with_a_death_of_its_engine_between(tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("# ours\nsecret\n")
    options = ["--port", "0", "--data-dir", str(tmp_path / "data"), "--api-key", f"@{keys}", *SMALL]
    key = {"authorization": "Bearer secret"}
    with running(SERVE, f"chat={models.folder('chat')}", *options) as served:
        assert wait_until(lambda: "Ready after" in served.output, 60), served.output
        assert served.health() == 200
        for part in ("text model", "Qwen3ForCausalLM", "kernels", "64 MiB", "Loading chat", "Warming up"):
            assert part in served.output
        assert ask(served.url).status_code == 401
        assert ask(served.url, **key).json()["usage"]["completion_tokens"] == 3
        chats = [Chat(served.url, LONG, **key) for _ in range(4)]
        assert wait_until(lambda: all(chat.has_begun() for chat in chats))
        pid = served.engine_pid()
        os.kill(pid, signal.SIGKILL)
        for chat in chats:
            chat.join(10)
            assert [error["code"] for error in chat.errors] == ["internal_error"] and chat.frames[-1] == "[DONE]"
        assert served.health() == 503
        refused = ask(served.url, **key)
        assert refused.status_code == 503 and 2 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["message"] == "The engine is starting."
        assert wait_until(lambda: served.health() == 200, 60)
        assert ask(served.url, **key).status_code == 200
        served.signal(signal.SIGINT)
        assert served.wait() == 0, served.output
        assert "was ended by SIGKILL while 4 requests were unfinished" in served.output
        assert "Traceback" not in served.output


def test_a_signal_lets_run_what_runs_and_takes_no_more(tmp_path: Path) -> None:
    with fake_server(tmp_path) as served:
        assert wait_until(lambda: served.health() == 200), served.output
        chat = Chat(served.url, 400)
        assert wait_until(chat.has_begun)
        served.signal(signal.SIGTERM)
        assert wait_until(lambda: served.health() == 503)
        refused = ask(served.url)
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "server_overloaded"
        assert int(refused.headers["retry-after"]) > 0
        chat.join(20)
        assert chat.errors == [] and '"finish_reason":"length"' in "".join(chat.frames[-3:])
        assert served.wait() == 0, served.output
        assert "Stopping: 1 requests may go on" in served.output
        assert served.lines[-1] == "False", "the front had loaded torch"


def test_a_second_signal_ends_what_runs(tmp_path: Path) -> None:
    with fake_server(tmp_path, "calm") as served:
        assert wait_until(lambda: served.health() == 200), served.output
        pid = served.engine_pid()
        chats = [Chat(served.url, LONG) for _ in range(3)]
        assert wait_until(lambda: all(chat.has_begun() for chat in chats))
        served.signal(signal.SIGINT)
        assert wait_until(lambda: "Another signal" in served.output)
        before = len(chats[0].frames)
        assert wait_until(lambda: len(chats[0].frames) > before + 5), "it does not go on"
        served.signal(signal.SIGINT)
        assert served.wait() == 0, served.output
        for chat in chats:
            chat.join(5)
            assert [error["code"] for error in chat.errors] == ["server_overloaded"]
        assert not is_alive(pid)


def test_what_runs_too_long_is_ended(tmp_path: Path) -> None:
    with fake_server(tmp_path, "calm", drain_s=0.3) as served:
        assert wait_until(lambda: served.health() == 200), served.output
        chat = Chat(served.url, LONG)
        assert wait_until(chat.has_begun)
        served.signal(signal.SIGTERM)
        assert served.wait() == 0, served.output
        chat.join(5)
        assert [error["code"] for error in chat.errors] == ["server_overloaded"]
        assert "1 requests did not end in time" in served.output


def test_a_server_is_there_before_its_engine_and_can_be_stopped_then(tmp_path: Path) -> None:
    with fake_server(tmp_path, "slow") as served:
        assert wait_until(lambda: served.health() == 503), served.output
        assert ask(served.url).status_code == 503
        served.signal(signal.SIGTERM)
        assert served.wait() == 0, served.output


def test_an_engine_that_cannot_be_started_ends_the_server(tmp_path: Path) -> None:
    with fake_server(tmp_path, "corrupt") as served:
        assert served.wait() == 1
        assert "model.safetensors is truncated" in served.lines[-1] and "Traceback" not in served.output


def test_an_engine_that_dies_too_often_ends_the_server(tmp_path: Path) -> None:
    with fake_server(tmp_path, "calm") as served:
        for _ in range(2):
            assert wait_until(lambda: served.health() == 200), served.output
            chat = Chat(served.url, LONG)
            assert wait_until(chat.has_begun)
            os.kill(served.engine_pid(), signal.SIGKILL)
            chat.join(10)
            assert [error["code"] for error in chat.errors] == ["internal_error"]
        assert served.wait() == 1
        assert "was ended by SIGKILL" in served.lines[-1]


def test_health_is_answered_soon_under_load(tmp_path: Path) -> None:
    """A hundred streams, of which the engine runs four at a time; one reader does not read at all.

    The median, since this process reads 99 of the streams and so keeps itself waiting.
    """
    with fake_server(tmp_path) as served:
        assert wait_until(lambda: served.health() == 200), served.output
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": LONG}
        with (
            httpx.Client(timeout=60) as client,
            client.stream("POST", f"{served.url}/v1/chat/completions", json=body | {"ignore_eos": True}),
        ):
            chats = [Chat(served.url, 80) for _ in range(99)]
            assert wait_until(lambda: any(chat.has_begun() for chat in chats))
            seconds: list[float] = []
            while any(chat.is_alive() for chat in chats) and len(seconds) < 200:
                began_s = time.monotonic()
                assert client.get(f"{served.url}/health").status_code == 200
                seconds.append(time.monotonic() - began_s)
                time.sleep(0.01)
            for chat in chats:
                chat.join(60)
                assert chat.status == 200 and chat.errors == []
        assert len(seconds) > 20 and statistics.median(seconds) < 0.1


# Mistakes on the command line


def says(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["serve", *arguments]) == 2
    return capsys.readouterr().err


def test_mistakes_are_told_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat = f"chat={models.folder('chat')}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1:{port}" in says([chat, "--port", port], capsys)
    assert "not both" in says([chat, "--memory-mib", "9", "--memory-fraction", "0.5"], capsys)
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "data", "/proc/nowhere"):
        said = says([chat, "--port", "0", "--data-dir", str(folder)], capsys)
        assert said.startswith(f"hemiola serve: Invalid '--data-dir': Results cannot be kept in {folder}: ")
        assert said.count("\n") == 1
    assert "no-such-model" in says(["no-such-model", "--port", "0"], capsys)
    assert "keys.txt" in says([chat, "--api-key", f"@{tmp_path / 'keys.txt'}"], capsys)
    assert "nowhere" in says([chat, "--host", "nowhere.invalid", "--port", "0"], capsys)


@pytest.mark.parametrize(("option", "value"), [("--device", "tpu"), ("--policy", "chaos")])
def test_what_the_engines_process_refuses_is_told_by_its_option(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = f"chat={models.folder('chat')}"
    said = says([chat, "--port", "0", "--data-dir", str(tmp_path), option, value], capsys)
    assert said.startswith(f"hemiola serve: Invalid '{option}': '{value}'. Allowed: ")


def test_a_broken_model_ends_the_command(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in models.folder("chat").iterdir():
        data = file.read_bytes()
        (broken / file.name).write_bytes(data[: len(data) // 2] if file.suffix == ".safetensors" else data)
    with running(SERVE, str(broken), "--port", "0", "--data-dir", str(tmp_path / "data"), *SMALL) as served:
        assert served.wait(60) == 2
        assert "hemiola serve: " in served.lines[-1] and "model.safetensors" in served.lines[-1]
        assert "Traceback" not in served.output


def test_keys_come_as_they_are_or_from_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# staff\n one \n\ntwo\none\n")
    assert read_keys(["zero", f"@{file}"]) == ("zero", "one", "two")
    file.write_text("# none\n")
    for wrong in (f"@{file}", ""):
        with pytest.raises(InvalidRequest, match="has no key"):
            read_keys([wrong])


def test_addresses_are_shown_as_they_can_be_reached() -> None:
    for host, shown in [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://localhost:")]:
        with listen(host, 0) as listener:
            assert url_of(listener).startswith(shown) and not url_of(listener).endswith(":0")
