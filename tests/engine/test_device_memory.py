"""Where a step finds too little of the device's memory, its request fails alone and is told what to do."""

from typing import Any

import pytest
import torch

from hemiola.diffusion.phases import DecodePhase
from hemiola.diffusion.stage import Block

from .cast import survivors, victim_picture
from .flights import FLIGHTS
from .models import picture
from .rig import Rig

SAID = "CUDA out of memory. Tried to allocate 878.00 MiB. GPU 0 has 139.80 GiB of which 773.12 MiB is free."
PROMPT = "it never ends well"


@pytest.mark.parametrize("flight", ["one lane", "two lanes"])  # whose runners are on lanes, as on a GPU
def test_a_request_that_finds_no_memory_fails_alone(flight: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = DecodePhase.begin

    def begun(phase: Any, states: Any) -> Any:
        opened = begin(phase, states)

        def run(carry: Any) -> None:
            if any(state.id == "victim" for state in opened.states):
                raise torch.OutOfMemoryError(SAID)
            opened_block.run(carry)

        opened_block = opened.blocks[1]
        opened.blocks = [opened.blocks[0], Block(run, opened_block.work), *opened.blocks[2:]]
        return opened

    monkeypatch.setattr(DecodePhase, "begin", begun)
    rig = Rig(max_batch_tokens=32, flight=FLIGHTS[flight])
    others = [*survivors(), picture("mate", PROMPT + "?", seed=5, num_inference_steps=3)]
    rig.submit(*others[:3], victim_picture("image", PROMPT), *others[3:])
    rig.run_until(lambda: rig.scheduler.is_idle)
    monkeypatch.undo()
    failed = rig.failed("victim")
    assert failed.code == "insufficient_memory"
    assert all(part in failed.message for part in ("878.00 MiB", "773.12 MiB", "size", "'memory_bytes'"))
    for other in others[:-1]:
        rig.assert_as_alone(other)
    assert rig.finals("mate") and rig.bytes_of("victim") == 0
    rig.assert_nothing_is_held()
