"""Chats through a server: alone, and while the same server makes pictures and clips; as its clients see it.

Server and clients are processes of their own on one machine. Pictures and clips are asked for again as soon as they are
there, one of each model at a time.
"""

import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import httpx

from hemiola.core.errors import InvalidRequest
from hemiola.core.events import Token

from ..client import Client
from .asked import PROMPT, SOME, asked_of, check_media, check_models, check_prompts
from .http import running_server
from .report import Report, Scenario, cost, machine_name, percentile

MAX_CHATS = 256
_BEFORE_S = 2.0  # how long pictures and clips are being made before chats begin beside them
_START_S = 900.0  # kernels may have to be compiled
_LOOK_EVERY_S = 0.01
_STEP_SECONDS = re.compile(r'hemiola_step_seconds_total\{model="(?P<model>[^"]*)".*\} (?P<seconds>\S+)')


def run(
    *,
    repeats: int,
    threads: int,
    models: Sequence[str] = ("dummy:qwen3-8b", "dummy:flux-dev", "dummy:wan-1.3b"),
    rows: Sequence[int] = (1, 16),
    context: int = 1024,
    tokens: int = 256,
    size: str | None = None,
    steps: int = 8,
) -> Report:
    """For each number of chats: what they get alone, and beside the media; all rounds go into one distribution.

    Raises:
        InvalidRequest: the models do not write and make something else besides.
    """
    rng = random.Random(0)
    scenarios: list[Scenario] = []
    with asked_of(models) as calls:
        check_models(calls, models, texts=1, media=SOME)
        check_prompts(calls, context, tokens, least_tokens=2)
        check_media(calls, size, steps)
    if max(rows) > MAX_CHATS:
        raise InvalidRequest("rows", f"Invalid 'rows': {max(rows)}. Allowed: {MAX_CHATS} at most: a server's queue.")
    began_s = time.monotonic()
    with running_server(models, threads, within_s=_START_S) as url, Client(url, timeout=_START_S) as client:
        started = f"the server took requests after {time.monotonic() - began_s:.0f} s"
        served = _Served.at(url)
        ask = partial(_Chats.run, client, partial(_prompts, url, served.text, context, rng), served.text, tokens)
        media = _Media(client, served.media, {"num_inference_steps": steps} | ({} if size is None else {"size": size}))
        for num_chats in rows:
            ask(num_chats)  # what is learned or made by the first ones counts for neither side
            alone, beside = _Chats(), _Chats()
            for _ in range(repeats):
                alone.add(ask(num_chats))
                with media.made():
                    beside.add(ask(num_chats))
            scenarios += _compared(f"{num_chats} x {context}", alone, beside)
        seconds = _seconds_at_work(url)
    notes = (
        started,
        *(f"{name} made {count} meanwhile, in {seconds[name]:.1f} s at work" for name, count in media.num_made.items()),
    )
    return Report("serve-gpu", machine_name(), "auto", threads, tuple(scenarios), notes)


def _compared(shape: str, alone: "_Chats", beside: "_Chats") -> list[Scenario]:
    sides = (beside, alone)
    figures: list[Scenario] = []
    for what, share in (("p50", 0.5), ("p99", 0.99)):
        first, before = (percentile(side.first_ms, share) for side in sides)
        figures.append(cost(f"to the first token, {what}, {shape}", first, "ms", before, None))
    for what, share in (("p50", 0.5), ("p99", 0.99)):
        gap, before = (percentile(side.gaps_ms, share) for side in sides)
        figures.append(cost(f"between tokens, {what}, {shape}", gap, "ms", before, None))
    return figures


def _prompts(url: str, model: str, context: int, rng: random.Random, count: int) -> list[list[int]]:
    """Tokens of random letters: no two prompts begin alike."""
    prompts: list[list[int]] = []
    for _ in range(count):
        text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=8 * context))
        answer = httpx.post(f"{url}/tokenize", json={"model": model, "prompt": text}).raise_for_status()
        prompts.append(answer.json()["tokens"][:context])
    return prompts


def _seconds_at_work(url: str) -> dict[str, float]:
    """Of each model, the device time of all its steps so far."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for line in httpx.get(f"{url}/metrics").raise_for_status().text.splitlines():
        if step := _STEP_SECONDS.match(line):
            seconds[step["model"]] += float(step["seconds"])
    return seconds


@dataclass(frozen=True, slots=True)
class _Served:
    """Names of the models: the first that writes, and by name what the others make."""

    text: str
    media: Mapping[str, str]

    @classmethod
    def at(cls, url: str) -> "_Served":
        listed = httpx.get(f"{url}/v1/models").raise_for_status().json()["data"]
        makes = {model["id"]: model["modalities"]["output"][0] for model in listed}
        texts = [name for name, kind in makes.items() if kind == "text"]
        return cls(texts[0], {name: kind for name, kind in makes.items() if kind != "text"})


@dataclass(slots=True)
class _Chats:
    """What chats got that were begun together.

    Fields:
        first_ms: from asking to the first token.
        gaps_ms: between tokens, while others may still wait for their first.
    """

    first_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)

    def add(self, other: "_Chats") -> None:
        self.first_ms += other.first_ms
        self.gaps_ms += other.gaps_ms

    @classmethod
    def run(
        cls, client: Client, make_prompts: Callable[[int], list[list[int]]], model: str, tokens: int, count: int
    ) -> "_Chats":
        """A thread for each, as clients have. Raises HemiolaError where one of them fails."""

        def follow(prompt: list[int]) -> list[float]:
            begun_s = time.monotonic()
            options: dict[str, Any] = {"max_tokens": tokens, "temperature": 0.0, "ignore_eos": True}
            stream = client.stream_complete(prompt, model=model, **options)
            times = [begun_s, *(time.monotonic() for event in stream if isinstance(event, Token))]
            stream.result()
            return [(after - before) * 1e3 for before, after in pairwise(times)]

        prompts = make_prompts(count)
        with ThreadPoolExecutor(count) as pool:
            gaps_ms = list(pool.map(follow, prompts))
        return cls([gaps[0] for gaps in gaps_ms], [gap for gaps in gaps_ms for gap in gaps[1:]])


class _Media:
    """Pictures and clips, one after the other from each model.

    Fields:
        num_made: of each model, those that were finished.
    """

    def __init__(self, client: Client, kinds: Mapping[str, str], options: Mapping[str, Any]) -> None:
        self.num_made = dict.fromkeys(kinds, 0)
        self._client = client
        self._kinds = kinds
        self._options = options
        self._is_over = threading.Event()

    @contextmanager
    def made(self) -> Iterator[None]:
        """They are being made meanwhile, from a little before. Raises HemiolaError where one of them fails."""
        self._is_over.clear()
        with ThreadPoolExecutor(len(self._kinds)) as pool:
            loops = [pool.submit(self._make, *model) for model in self._kinds.items()]
            try:
                time.sleep(_BEFORE_S)
                yield
            finally:
                self._is_over.set()
        for loop in loops:
            loop.result()

    def _make(self, model: str, kind: str) -> None:
        start = self._client.stream_image if kind == "image" else self._client.stream_video
        while not self._is_over.is_set():
            stream = start(PROMPT, model=model, **self._options)
            while not (stream.is_done or self._is_over.is_set()):
                time.sleep(_LOOK_EVERY_S)
            if not stream.is_done:
                stream.cancel()
                return
            stream.result()
            self.num_made[model] += 1
