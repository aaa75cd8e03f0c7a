"""Whatever raises for one request, wherever: it fails alone, once, with `step_failed`, and leaves nothing behind."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from hemiola.core.request import Request
from hemiola.diffusion import phases
from hemiola.diffusion.phases import DecodePhase, DenoisePhase, EncodePhase
from hemiola.diffusion.runner import DiffusionRunner
from hemiola.diffusion.stage import Block
from hemiola.llm import token_steps
from hemiola.llm.encodings import Encodings
from hemiola.llm.kv_cache import KvCache
from hemiola.llm.runner import LanguageRunner

from .cast import VICTIM_SEED, survivors, victim_chat, victim_picture
from .models import picture
from .rig import Rig

pytestmark = pytest.mark.usefixtures("flight")

Patch = pytest.MonkeyPatch
PROMPT = "it never ends well"


class Broken(RuntimeError):
    """What the tests make raise."""


def breaks(patch: Patch, owner: Any, name: str, is_hit: Callable[..., bool], *, after: bool = False) -> None:
    """Makes a function or method raise when its arguments hit, before or after it has done its work."""
    original = getattr(owner, name)

    def broken(*args: Any, **options: Any) -> Any:
        is_due = is_hit(*args, **options)
        result = original(*args, **options) if after or not is_due else None
        if is_due:
            raise Broken(f"{name} is broken")
        return result

    patch.setattr(owner, name, broken)


def breaks_block(patch: Patch, phase: Any, index: int) -> None:
    """Makes block `index` of a stage raise in batches in which the victim is alive."""
    begin = phase.begin

    def begun(self: Any, states: Any) -> Any:
        opened = begin(self, states)
        if hasattr(opened, "blocks"):
            place = index % len(opened.blocks)
            block = opened.blocks[place]

            def run(carry: Any) -> None:
                if holds_victim(opened.states):
                    raise Broken(f"block {place} is broken")
                block.run(carry)

            opened.blocks = [*opened.blocks[:place], Block(run, block.work), *opened.blocks[place + 1 :]]
        return opened

    patch.setattr(phase, "begin", begun)


def holds_victim(states: Iterable[Any]) -> bool:
    return any(state.id == "victim" for state in states)


def is_far(state: Any) -> bool:
    return bool(state.id == "victim" and state.num_generated >= 3)


def samples(counter: int) -> Callable[..., bool]:
    """Whether the victim's token of that number is chosen."""
    return lambda sampler, logits, asked: any(
        each.sampling.seed == VICTIM_SEED and each.counter == counter for each in asked.values()
    )


def encodes_prompt(opened: Any) -> bool:
    """Whether a batch of encodings has the victim's prompt: the longest that anybody asks for."""
    return any(len(state.token_ids) > 30 for state in opened.states)


@dataclass(frozen=True)
class Fault:
    """Fields: whose it is; how it is put in; whether the victim has to be parked for it."""

    make: Callable[[], Request]
    put: Callable[[Patch], None]
    needs_parking: bool = False


def of_text(put: Callable[[Patch], None], **options: bool) -> Fault:
    return Fault(victim_chat, put, **options)


def of_picture(put: Callable[[Patch], None], model: str = "own", **options: bool) -> Fault:
    return Fault(lambda: victim_picture(model, PROMPT), put, **options)


FAULTS = {
    # Text
    "admit: prefixes": of_text(
        lambda p: breaks(p, KvCache, "look_up", lambda kv, memory, ids: is_victims(memory), after=True)
    ),
    "admit: room": of_text(lambda p: breaks(p, LanguageRunner, "_missing_pages", lambda r, state: is_victim(state))),
    "plan: pages": of_text(lambda p: breaks(p, KvCache, "grow", lambda kv, memory, count: is_victims(memory))),
    "plan: after its pages": of_text(
        lambda p: breaks(p, KvCache, "grow", lambda kv, memory, count: is_victims(memory), after=True)
    ),
    "prefill": of_text(
        lambda p: breaks(
            p, token_steps, "compose", lambda decodes, chunks, *rest: holds_victim(c.state for c in chunks)
        )
    ),
    "prefill: a later chunk": of_text(
        lambda p: breaks(
            p,
            token_steps,
            "compose",
            lambda decodes, chunks, *rest: any(c.state.id == "victim" and c.state.num_computed > 32 for c in chunks),
        )
    ),
    "prefill: its token": of_text(lambda p: breaks(p, token_steps, "choose", samples(0))),
    "prefill: its pages for others": of_text(
        lambda p: breaks(p, KvCache, "launched", lambda kv, memory, count: is_victims(memory) and count > 40)
    ),
    "decode": of_text(
        lambda p: breaks(p, token_steps, "compose", lambda decodes, *rest: any(map(is_far, decodes)), after=True)
    ),
    "decode: its token": of_text(lambda p: breaks(p, token_steps, "choose", samples(4), after=True)),
    "collect text: its event": of_text(lambda p: breaks(p, token_steps, "Token", lambda id, *rest: id == "victim")),
    "collect text: its end": of_text(lambda p: breaks(p, token_steps, "finished", lambda s, *rest: s.id == "victim")),
    "park text": of_text(
        lambda p: breaks(p, LanguageRunner, "park", lambda runner, state: state.id == "victim"), needs_parking=True
    ),
    "resume text": of_text(
        lambda p: breaks(p, KvCache, "resume", lambda kv, memory, *rest: is_victims(memory)), needs_parking=True
    ),
    "resume text: after its pages": of_text(
        lambda p: breaks(p, KvCache, "resume", lambda kv, memory, *rest: is_victims(memory), after=True),
        needs_parking=True,
    ),
    # Another model's text encoder
    "encoding: plan": of_picture(
        lambda p: breaks(p, Encodings, "_open", lambda e, states: any(len(s.token_ids) > 30 for s in states)), "image"
    ),
    "encoding: blocks": of_picture(
        lambda p: breaks(p, Encodings, "_run", lambda e, opened, *rest: encodes_prompt(opened)), "image"
    ),
    "encoding: last block": of_picture(
        lambda p: breaks(
            p, Encodings, "_run", lambda e, opened, step, slot: encodes_prompt(opened) and step.first > 0, after=True
        ),
        "image",
    ),
    # Pictures and clips
    "admit: latents": of_picture(lambda p: breaks(p, DiffusionRunner, "_look_for_conditions", is_state_of_victim)),
    "plan: encode": of_picture(lambda p: breaks(p, EncodePhase, "begin", lambda phase, states: holds_victim(states))),
    "plan: denoise": of_picture(lambda p: breaks(p, DenoisePhase, "begin", lambda phase, states: holds_victim(states))),
    "encode: its prompt": of_picture(lambda p: breaks(p, phases, "_prompt", lambda wanted, state: is_victim(state))),
    "encode: first block": of_picture(lambda p: breaks_block(p, EncodePhase, 0)),
    "encode: last block": of_picture(lambda p: breaks_block(p, EncodePhase, -1)),
    "refine: last block": of_picture(lambda p: breaks_block(p, EncodePhase, -1), "image"),
    "denoise: first block": of_picture(lambda p: breaks_block(p, DenoisePhase, 0)),
    "denoise: third block": of_picture(lambda p: breaks_block(p, DenoisePhase, 2)),
    "denoise: last block": of_picture(lambda p: breaks_block(p, DenoisePhase, -1)),
    "denoise: solver": of_picture(
        lambda p: breaks(p, DenoisePhase, "_advance", lambda phase, states, *rest: holds_victim(states), after=True)
    ),
    "decode: first block": of_picture(lambda p: breaks_block(p, DecodePhase, 0)),
    "decode: fourth block": of_picture(lambda p: breaks_block(p, DecodePhase, 3)),
    "decode: last block": of_picture(lambda p: breaks_block(p, DecodePhase, -1)),
    "decode: pixels": of_picture(
        lambda p: breaks(p, DecodePhase, "commit", lambda phase, batch, *rest: holds_victim(batch.states))
    ),
    "collect picture": of_picture(lambda p: breaks(p, phases, "_media_event", lambda state, *rest: is_victim(state))),
    "collect picture: progress": of_picture(
        lambda p: breaks(p, phases, "Progress", lambda id, stage, done, total: id == "victim" and done == 2)
    ),
    "park picture": of_picture(
        lambda p: breaks(p, DiffusionRunner, "park", lambda runner, state: is_victim(state)), needs_parking=True
    ),
    "resume picture": of_picture(
        lambda p: breaks(p, DiffusionRunner, "resume", lambda runner, state: is_victim(state)), needs_parking=True
    ),
    "resume picture: after its latents": of_picture(
        lambda p: breaks(
            p,
            DiffusionRunner,
            "_look_for_conditions",
            lambda runner, state: is_victim(state) and state.num_done > 0,
        ),
        needs_parking=True,
    ),
    "clip: encode": of_picture(lambda p: breaks_block(p, EncodePhase, 1), "clip"),
    "clip: denoise": of_picture(lambda p: breaks_block(p, DenoisePhase, 1), "clip"),
    "clip: decode": of_picture(lambda p: breaks_block(p, DecodePhase, 9), "clip"),
}


def is_victims(memory: Any) -> bool:
    return bool(memory.owner == "victim")


def is_victim(state: Any) -> bool:
    return bool(state.id == "victim")


def is_state_of_victim(runner: Any, state: Any) -> bool:
    return is_victim(state)


@pytest.mark.parametrize("name", FAULTS)
def test_a_failure_ends_the_request_at_fault_and_no_other(name: str, flight: str, monkeypatch: Patch) -> None:
    fault = FAULTS[name]
    rig = Rig(max_batch_tokens=32)
    others = survivors()
    fault.put(monkeypatch)
    rig.submit(*others[:3], fault.make(), *others[3:], picture("mate", PROMPT + "?", seed=5, num_inference_steps=3))
    if fault.needs_parking:
        rig.run_until(lambda: rig.state("victim") is not None and has_begun(rig.state("victim")))
        rig.run_until(lambda: rig.finals("victim") != [] or (rig.park_one() and rig.is_parked("victim")))
    rig.run_until(lambda: rig.scheduler.is_idle)
    monkeypatch.undo()
    failed = rig.failed("victim")
    assert failed.code == "step_failed" and "is broken" in failed.message
    for other in others:
        rig.assert_as_alone(other)
    assert rig.bytes_of("victim") == 0
    rig.assert_nothing_is_held()


def has_begun(state: Any) -> bool:
    return bool(state.num_generated if hasattr(state, "num_generated") else state.num_done)
