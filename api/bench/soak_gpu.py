"""A mixed load with random aborts for some time: every request ends once, nothing fails, and no byte is left behind."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from hemiola.core.errors import HemiolaError, InvalidRequest, RequestAborted
from hemiola.scheduler.scheduler import Scheduler

from ..front.media import MediaFront
from ..prefixes import forget_prefixes
from ..stream import Stream
from .asked import PROMPT, asked_of, check_media, check_prompts
from .report import Report, Scenario, machine_name
from .timed import TimedEngine

NUM_TEXTS, NUM_MEDIA = 24, 2  # at the same time, of each model
ABORTED_SHARE = 0.3
_LEAST_CONTEXT = 2  # what prompts share, and what they do not
_LOOK_EVERY_S = 0.01
_IDLE_WITHIN_S = 60.0
_MAX_TOKENS = 200


def run(
    *,
    repeats: int,
    threads: int,
    models: Sequence[str] = ("dummy:llama-8b", "dummy:z-image", "dummy:wan-1.3b"),
    seconds: float = 60.0,
    context: int = 2048,
    steps: int = 8,
    size: str | None = None,
) -> Report:
    """For `seconds` there are always as many requests as may be; then what runs may end. Repeats are of no use here."""
    if context < _LEAST_CONTEXT:
        raise InvalidRequest("context", f"Invalid 'context': {context}. The least is {_LEAST_CONTEXT}.")
    with asked_of(models) as calls:
        check_prompts(calls, context, min(_MAX_TOKENS, context))
        check_media(calls, size, steps)
    rng = random.Random(0)
    with TimedEngine(*models, threads=threads) as engine:
        load = _Load(engine, rng, context, steps, size)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            load.fill()
            load.abort_some()
            time.sleep(_LOOK_EVERY_S)
        failures = load.drain()
        leaked, is_sound = leaked_bytes(engine, set(load.sent))
        config = engine.loads.config
        finals = engine.num_finals
    once = sum(finals[request_id] == 1 for request_id in load.sent)
    errors = [error for error in failures if not isinstance(error, RequestAborted)]
    scenarios = (
        _check("requests that ended exactly once", once, len(load.sent), 0 < once == len(load.sent)),
        _check("requests that failed", len(errors), 0, not errors),
        _check("bytes of ended requests left in the arena or host tier", leaked, 0, leaked == 0),
        _check("the books of the arena are right", int(is_sound), 1, is_sound),
    )
    notes = (
        f"{seconds:g} s: {', '.join(f'{count} for {model}' for model, count in load.by_model.items())}; "
        f"{load.num_aborts} aborts asked for, {sum(isinstance(e, RequestAborted) for e in failures)} took place",
        *(f"failed: {code}: {count}" for code, count in Counter(error.code for error in errors).items()),
    )
    return Report("soak-gpu", machine_name(), config.dtype, threads, scenarios, notes)


def _check(name: str, found: int, wanted: int, is_right: bool) -> Scenario:
    return Scenario(name, found, "", wanted, 1.0 if is_right else 0.0, 1.0)


class _Load:
    """The requests that run, and what was asked of them.

    Fields:
        sent: ids of all requests.
        by_model: how many of each.
        num_aborts: how often one was asked to end.
    """

    def __init__(self, engine: TimedEngine, rng: random.Random, context: int, steps: int, size: str | None) -> None:
        self.sent: list[str] = []
        self.by_model: Counter[str] = Counter()
        self.num_aborts = 0
        self._engine = engine
        self._rng = rng
        self._context, self._steps, self._size = context, steps, size
        self._running: dict[str, list[Stream[Any]]] = {name: [] for name in engine.fronts}
        self._failures: list[HemiolaError] = []

    def fill(self) -> None:
        """Forgets what has ended, and starts as many more."""
        for name, streams in self._running.items():
            front = self._engine.fronts[name]
            for stream in [each for each in streams if each.is_done]:
                streams.remove(stream)
                self._note(stream)
            while len(streams) < (NUM_MEDIA if isinstance(front, MediaFront) else NUM_TEXTS):
                stream = self._start(name)
                streams.append(stream)
                self.sent += stream.request_ids
                self.by_model[name] += 1

    def abort_some(self) -> None:
        """Now and then one, so that about `ABORTED_SHARE` of all are aborted at some time of their lives."""
        running = [stream for streams in self._running.values() for stream in streams]
        if self._rng.random() < ABORTED_SHARE:
            self._rng.choice(running).cancel()
            self.num_aborts += 1

    def drain(self) -> list[HemiolaError]:
        """Waits for all; what has failed since the start."""
        for streams in self._running.values():
            for stream in streams:
                self._note(stream)
        return self._failures

    def _note(self, stream: Stream[Any]) -> None:
        try:
            stream.result()
        except HemiolaError as error:
            self._failures.append(error)

    def _start(self, name: str) -> Stream[Any]:
        front, rng, engine = self._engine.fronts[name], self._rng, self._engine
        if isinstance(front, MediaFront):
            prompt = f"{PROMPT}, number {rng.randrange(50)}"
            steps = rng.randint(1, self._steps)
            seed = rng.getrandbits(31)
            return engine.stream_media(prompt, front, size=self._size, num_inference_steps=steps, seed=seed)
        vocab_size = front.tokenizer.vocab_size
        # Some prompts begin alike, so that prefixes are shared and evicted.
        start_ids = [rng.randrange(4)] * (self._context // 2)
        ids = start_ids + [rng.randrange(vocab_size) for _ in range(rng.randint(1, self._context // 2))]
        count = rng.randint(1, min(_MAX_TOKENS, self._context))
        temperature = rng.choice((0.0, 0.8))
        return engine.stream_complete(ids, model=name, max_tokens=count, temperature=temperature, ignore_eos=True)


def leaked_bytes(engine: TimedEngine, ended: set[str]) -> tuple[int, bool]:
    """Bytes that still belong to ended requests, and whether the arena's books are right; once it is idle.

    Raises:
        TimeoutError: it has not become idle within a minute.
    """
    end_s = time.monotonic() + _IDLE_WITHIN_S
    while time.monotonic() < end_s:
        found: Future[tuple[int, bool] | None] = Future()
        engine._loop.call(partial(_look, engine, ended, found))
        seen = found.result(_IDLE_WITHIN_S)
        if seen is not None:
            return seen
        time.sleep(_LOOK_EVERY_S)  # the loop serves all that is asked of it before it steps on
    raise TimeoutError(f"The engine was still at work after {_IDLE_WITHIN_S:g} s.")


def _look(engine: TimedEngine, ended: set[str], found: "Future[tuple[int, bool] | None]", scheduler: Scheduler) -> None:
    """On the loop's thread; None while the engine is at work."""
    if not scheduler.is_idle:
        found.set_result(None)
        return
    composition = engine.composition
    forget_prefixes(composition)
    ledger = composition.arena.ledger
    leaked = sum(
        sum(kinds.values()) for owner, kinds in ledger.owners.items() if owner in ended or owner.startswith("carry:")
    )
    try:
        ledger.check()
    except AssertionError:
        found.set_result((leaked, False))
    else:
        found.set_result((leaked, True))
