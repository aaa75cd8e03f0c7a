"""Drives a runner as a scheduler would, in whatever order and cuts a test asks for."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hemiola.core.events import Event, Image, Progress, Video
from hemiola.core.memory import Arena, Need
from hemiola.core.request import MediaRequest
from hemiola.core.step import Batch, Blocks, Refused, Shortfall, Slot
from hemiola.diffusion import media
from hemiola.diffusion.edge import load_tokenizers
from hemiola.diffusion.families import Family, load_family
from hemiola.diffusion.runner import DiffusionRunner
from hemiola.diffusion.state import DiffusionState
from hemiola.tests.tiny_diffusion import tiny_pipeline_dir

Cut = Callable[[Blocks], int]
"""Of what may run, the last block that shall."""


def whole(cut: Blocks) -> int:
    return cut.last


def one_block(cut: Blocks) -> int:
    return cut.first


@cache
def tiny_family(name: str) -> Family:
    return load_family(tiny_pipeline_dir(name))


def media_request(family: Family, request_id: str = "a", prompt: str = "a red fox", **fields: Any) -> MediaRequest:
    """A small request; a clip of 5 frames where the family makes clips."""
    negative = fields.pop("negative", "blue")
    ids = family.edge.tokenize(prompt, negative, load_tokenizers(family.edge))
    defaults: dict[str, Any] = {
        "width": 48, "height": 32, "num_inference_steps": 3, "guidance_scale": 3.0, "seed": 7, "pixel_type": "float32",
        "num_frames": 5 if family.edge.kind == "video" else 1,
    }  # fmt: skip
    return MediaRequest(
        id=request_id,
        model="m",
        token_ids=ids.token_ids,
        negative_token_ids=ids.negative_token_ids,
        **{**defaults, **fields},
    )


class Driver:
    """One runner over one arena, and every event that it told. Steps get `sm_share` of a device."""

    sm_share = 1.0

    def __init__(self, family: Family, arena_bytes: int = 16 << 20, host_bytes: int = 4 << 20, **options: Any) -> None:
        self.arena = Arena(arena_bytes, host_bytes=host_bytes)
        self.runner = DiffusionRunner("m", family, self.arena, **options)
        self.events: list[Event] = []
        self._sequence = 0

    def admit(self, request: MediaRequest) -> DiffusionState:
        state = self.runner.admit(request)
        assert not isinstance(state, Refused | Shortfall), state
        return state

    def plan(self, states: Sequence[DiffusionState], cut: Cut = whole) -> Batch:
        offered = states[0].cut
        batch = self.runner.plan(states, Blocks(offered.first, cut(offered)))
        assert not isinstance(batch, Shortfall), batch
        return batch

    def launch(self, batch: Batch) -> None:
        self._sequence += 1
        slot = Slot("media", self.sm_share, self._sequence, 0.0)
        self.arena.clock.launched(slot.lane, slot.sequence)
        try:
            pending = self.runner.launch(batch, slot)
        except Exception:
            self.arena.clock.completed(slot.lane, slot.sequence)
            self.runner.cancel(batch)
            raise
        self.arena.clock.completed(slot.lane, slot.sequence)
        assert pending.done()
        for output in self.runner.collect(batch, pending):
            self.events += output.events
            if output.is_final:
                self.runner.release(output.state)

    def step(self, states: Sequence[DiffusionState], cut: Cut = whole) -> None:
        self.launch(self.plan(states, cut))

    def step_until(self, state: DiffusionState, phase: str) -> None:
        while state.phase != phase:
            self.step([state])

    def run(self, states: Sequence[DiffusionState], cut: Cut = whole) -> None:
        """All of them to the end, together where they may be."""
        while ready := [state for state in states if not state.is_released and state.is_ready]:
            key = ready[0].batch_key
            self.step([state for state in ready if state.batch_key == key], cut)
        assert all(state.is_released for state in states), "some are not ready and nothing runs that they wait for"

    def frames(self, request_id: str) -> NDArray[Any]:
        [event] = [e for e in self.events if isinstance(e, Image | Video) and e.request_id == request_id]
        return media.to_numpy(event.pixels)

    def progress(self, request_id: str) -> list[int]:
        return [e.done for e in self.events if isinstance(e, Progress) and e.request_id == request_id]

    def assert_nothing_is_held(self) -> None:
        """Only conditions and slots of graphs may stay, and only unlocked."""
        self.arena.ledger.check()
        owners = self.arena.ledger.owners
        assert all(owner.startswith(("condition:", "graph:")) for owner in owners), dict(owners)
        assert self.arena.can_lease(Need(general=(self.arena.nbytes,))), "a condition or slot is locked"
        assert not self.runner._states


def solo(family: Family, request: MediaRequest, cut: Cut = whole) -> NDArray[Any]:
    """What the request gives when nothing else runs."""
    driver = Driver(family)
    driver.run([driver.admit(request)], cut)
    driver.assert_nothing_is_held()
    return driver.frames(request.id)


def assert_close(a: NDArray[Any], b: NDArray[Any], tolerance: float) -> None:
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= tolerance, f"differs by {np.abs(a - b).max()}"
