"""The whole engine in the test's own thread: real runners over tiny models, on a clock that only steps move.

Everything is computed for real; only how long a step takes is modelled, so that policies decide the same anywhere.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hemiola.api import compose
from hemiola.core.config import EngineConfig
from hemiola.core.events import Event, Failed, Final, Finished, Image, Progress, Token, Video
from hemiola.core.memory import Need
from hemiola.core.request import MediaRequest, Request, TextRequest
from hemiola.core.sm_shares import SmShares
from hemiola.core.step import Batch, Pending, Shortfall, Slot, Work
from hemiola.core.tracing import StepTrace
from hemiola.diffusion import media
from hemiola.scheduler.running import Running
from hemiola.scheduler.simulator import VirtualClock

from . import models
from .flights import FLIGHTS, Flight, SpoilingRoom, Timetable

MIB = 1 << 20
KINDS = ("chat", "image", "own", "clip", "flux")
usual_flight = "at once"
"""Name of the flight of rigs that ask for none; the fixture `flight` sets it."""
usual_device = "cpu"
"""Of rigs that ask for none; tests/gpu/engine sets it."""
CUDA_TOLERANCE = 1e-3
"""How far pixels may be from those alone on a GPU, in float32: there batches choose the kernels."""


def modelled_s(work: Work) -> float:
    """Roughly one CPU core with small models: a token step of some 10 ms, blocks of 20 ms."""
    return 0.004 + 0.02 * work.blocks if work.blocks else 0.008 + 2e-4 * work.new_tokens


@dataclass(eq=False)
class Rig:
    """An engine over the named models (see models.py).

    Fields:
        flight: how steps are in flight; on a GPU its lanes' depth has to be that of api.placing.
        events: of each request, in order.
        made: what api.compose built.
    """

    names: tuple[str, ...] = KINDS
    policy: str = "deadline"
    memory_bytes: int = 8 * MIB
    host_bytes: int = 4 * MIB
    prefix_cache: bool = True
    max_batch_tokens: int = 64
    device: str = field(default_factory=lambda: usual_device)
    flight: Flight = field(default_factory=lambda: FLIGHTS[usual_flight])

    def __post_init__(self) -> None:
        self.clock = VirtualClock(now_s=1.0)
        self.events: dict[str, list[Event]] = defaultdict(list)
        self.trace = StepTrace()
        config = EngineConfig(
            policy=self.policy,
            memory_bytes=self.memory_bytes,
            host_bytes=self.host_bytes,
            threads=1,
            device=self.device,
            dtype="float32",
            prefix_cache=self.prefix_cache,
            max_batch_tokens=self.max_batch_tokens,
            quantum_s=0.05,  # two blocks of the rig's
        )
        self.loads = compose.plan([f"{name}={models.folder(name)}" for name in self.names], config)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compose, "engine_clock", self.clock)
            if self.device == "cpu":
                patch.setattr("hemiola.core.memory.arena.Room", SpoilingRoom)
                patch.setattr(compose, "place", lambda config: self.flight.placement())
            else:
                patch.setattr("hemiola.api.placing.SmShares", sm_shares)
            self.made = compose.build(self.loads, lambda event: self.events[event.request_id].append(event), self.trace)
        for pipeline in self.made.pipelines.values():
            pipeline.batching = None  # all share steps from the first on, whatever would be learned of it
        self._timetable = Timetable(self.flight, self.clock)
        for runner in (*self.made.languages.values(), *self.made.pipelines.values()):
            self._model_times_of(runner)

    def _model_times_of(self, runner: Any) -> None:
        launch: Callable[[Batch, Slot], Pending] = runner.launch

        def timed(batch: Batch, slot: Slot) -> Pending:
            pending: Pending = self._timetable.depart(launch(batch, slot), slot, modelled_s(batch.work))
            return pending

        runner.launch = timed

    @property
    def scheduler(self) -> Any:
        return self.made.scheduler

    @property
    def arena(self) -> Any:
        return self.made.arena

    @property
    def prefixes(self) -> Any:
        return self.made.languages["chat"].kv_cache.prefixes

    # Driving

    def submit(self, *requests: Request) -> None:
        """Submits requests as of now."""
        for request in requests:
            self.scheduler.submit(models.replaced(request, arrival_s=self.clock.now_s))

    def step(self) -> bool:
        """One iteration; the books must be right after it."""
        moved: bool = self.scheduler.step()
        self.arena.ledger.check()
        return moved

    def run(self, *requests: Request) -> None:
        """Submits requests, and iterates until all that runs has ended."""
        self.submit(*requests)
        self.run_until(lambda: self.scheduler.is_idle)

    def run_until(self, condition: Callable[[], bool], limit: int = 3000) -> None:
        for _ in range(limit):
            if condition():
                return
            assert self.step() or condition(), f"It stands still: {self.standing()}"
        raise AssertionError(f"Not done after {limit} iterations: {self.standing()}")

    def park_one(self) -> bool:
        """Parks the latest-due request, whatever memory there is; it comes back when it fits. Nothing is in flight."""
        while self.scheduler.lanes.num_in_flight:
            self.scheduler._collect(wait=True)
        parked: bool = self.scheduler._pressure.relieve(Shortfall(1), (-math.inf, 0, 0.0, ""))
        return parked

    def standing(self) -> list[str]:
        """What runs, for messages."""
        states = [entry.state for entry in self.scheduler.running.entries.values()]
        return [f"{s.id} {s.phase} waits for {s.waiting_for}" for s in states] + [f"{self.scheduler.num_queued} queued"]

    # Looking

    def entry(self, request_id: str) -> Running | None:
        found: Running | None = self.scheduler.running.find(request_id)
        return found

    def state(self, request_id: str) -> Any:
        entry = self.entry(request_id)
        return None if entry is None else entry.state

    def is_parked(self, request_id: str) -> bool:
        return self.entry(request_id) in self.scheduler._pressure.parked

    def finals(self, request_id: str) -> list[Event]:
        return [event for event in self.events[request_id] if isinstance(event, Final)]

    def final(self, request_id: str) -> Finished | Failed:
        """The one final event, which nothing follows."""
        finals = self.finals(request_id)
        assert len(finals) == 1 and self.events[request_id][-1] is finals[0], self.events[request_id]
        assert isinstance(finals[0], Finished | Failed)
        return finals[0]

    def finished(self, request_id: str) -> Finished:
        """The final event, which is a good one."""
        final = self.final(request_id)
        assert isinstance(final, Finished), final
        return final

    def failed(self, request_id: str) -> Failed:
        """The final event, which is a bad one."""
        final = self.final(request_id)
        assert isinstance(final, Failed), final
        return final

    def tokens(self, request_id: str) -> tuple[int, ...]:
        return tuple(event.token_id for event in self.events[request_id] if isinstance(event, Token))

    def pixels(self, request_id: str) -> NDArray[Any]:
        (event,) = [event for event in self.events[request_id] if isinstance(event, Image | Video)]
        return media.to_numpy(event.pixels)

    def num_steps_done(self, request_id: str) -> int:
        return max((e.done for e in self.events[request_id] if isinstance(e, Progress)), default=0)

    # Judging

    def assert_as_alone(self, request: Request, tolerance: float = 1e-5) -> None:
        """It ended well, with what it gives when nothing else runs."""
        final, expected = self.finished(request.id), alone(request)
        tolerance = tolerance if self.device == "cpu" else max(tolerance, CUDA_TOLERANCE)
        if isinstance(request, TextRequest):
            assert self.tokens(request.id) == expected.tokens, request.id
            assert (final.reason, final.usage.completion_tokens) == (expected.reason, expected.num_tokens)
        else:
            differs_by = np.abs(self.pixels(request.id) - expected.pixels).max()
            assert differs_by <= tolerance, f"'{request.id}' differs by {differs_by}"

    def assert_nothing_is_held(self) -> None:
        """All has ended; what is left in memory are caches that nobody uses."""
        assert self.scheduler.is_idle and not self.step() and not self.scheduler._pressure.parked
        self.made.check()
        for runner in self.made.languages.values():
            assert not runner._states and not runner._prefilling and not runner._encodings._jobs
            if runner._kv is not None:
                if runner._kv.prefixes is not None:
                    runner._kv.prefixes.flush()
                held = {name for owners in runner._kv.page_class.held.values() for name in owners}
                assert all(name.startswith("graphs:") for name in held), held
        for pipeline in self.made.pipelines.values():
            assert not pipeline._states and not pipeline._library._making
        self.made.check()
        owners = self.arena.ledger.owners
        assert all(owner.startswith(("condition:", "graph")) for owner in owners), dict(owners)
        assert all(lease.num_locks == 0 for lease in self.arena._shared.values()), "Somebody locks a condition or slot."
        if self.device == "cpu":
            assert self.arena.can_lease(Need(general=(self.arena.nbytes,)))
        assert self.arena.host.copies == {}

    def bytes_of(self, request_id: str) -> int:
        """All that the ledger has under the request's name, on the device and on the host, but for what retires."""
        kinds = self.arena.ledger.owners.get(request_id, {})
        assert self.scheduler.lanes.num_in_flight or not kinds.get("retiring")
        return sum(nbytes for kind, nbytes in kinds.items() if kind != "retiring")


# Alone


@dataclass(frozen=True)
class Alone:
    """What a request gives when nothing else runs."""

    tokens: tuple[int, ...] = ()
    reason: str = ""
    num_tokens: int = 0
    pixels: Any = None


def alone(request: Request) -> Alone:
    """Of a request, whoever asks and whenever: it is computed once."""
    plain: dict[str, Any] = {"id": "alone", "priority": 0, "arrival_s": 0.0, "tenant": "default"}
    plain |= {"deadline_s": None, "group": None, "program": None}
    return _alone(_Same(models.replaced(request, service_class="standard", index=0, **plain)))


class _Same:
    """A request as a key: media requests hold mappings, which have no hash."""

    def __init__(self, request: TextRequest | MediaRequest) -> None:
        self.request = request

    def __hash__(self) -> int:
        return hash(repr(self.request))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.request == other.request


@cache
def _alone(same: _Same) -> Alone:
    rig = _quiet_rig("reciter" if same.request.model == "reciter" else "", usual_device)
    rig.events.clear()
    rig.run(same.request)
    final = rig.finished("alone")
    if isinstance(same.request, TextRequest):
        return Alone(rig.tokens("alone"), final.reason, final.usage.completion_tokens)
    return Alone(pixels=rig.pixels("alone"))


@cache
def _quiet_rig(name: str, device: str) -> Rig:
    flight = FLIGHTS["at once" if device == "cpu" else "two lanes"]
    options: dict[str, Any] = {"prefix_cache": False, "max_batch_tokens": 512, "flight": flight, "device": device}
    return Rig((name,) if name else KINDS, **options)


@cache
def sm_shares(device: torch.device) -> SmShares:
    """Contexts with some of the SMs are made once in a process."""
    return SmShares(device)


def interleaved(*groups: Iterable[Request]) -> list[Request]:
    """One of each group in turn."""
    return [request for each in zip(*groups, strict=True) for request in each]
