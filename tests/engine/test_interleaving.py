"""Token steps and denoise steps really share the device, step by step: read from the step trace of real runners."""

from collections.abc import Sequence

import pytest

from hemiola.core.request import Request
from hemiola.core.tracing import StepRecord
from hemiola.scheduler.policy import POLICIES

from .models import chat, picture, prompt_ids
from .rig import Rig

pytestmark = pytest.mark.usefixtures("flight")

Waiting = list[tuple[float, float]]
"""Intervals (from, until) on the rig's clock in which a text request was ready."""


def run_mixed(policy: str) -> tuple[Rig, list[StepRecord], Waiting]:
    """Chats come, talk and end while pictures and clips of several models are made; all costs were seen before."""
    rig = Rig(policy=policy)
    media: list[Request] = [
        picture("p1", model="image", size=(32, 16), num_inference_steps=14),
        picture("p2", "a house", num_inference_steps=14),
        picture("p3", size=(16, 32), guidance_scale=0.0),
        picture("v1", model="clip"),
    ]
    rig.run(*media, chat("c", prompt_ids(40, 9), 4))
    rig.events.clear()
    rig.trace.clear()
    arrived: dict[str, float] = {}
    ended: dict[str, float] = {}
    chats = [chat(f"c{i}", prompt_ids(30 + 20 * i, i), 48, service_class="interactive") for i in range(4)]
    arrivals: dict[int, Request] = {1 + 2 * i: each for i, each in enumerate(media)}
    arrivals |= {0: chats[0], 4: chats[1], 40: chats[2], 75: chats[3]}
    for iteration in range(2000):
        if iteration in arrivals:
            arrived[arrivals[iteration].id] = rig.clock.now_s
            rig.submit(arrivals[iteration])
        if not rig.step() and iteration > max(arrivals):
            break
        for each in chats:
            if rig.finals(each.id):
                ended.setdefault(each.id, rig.clock.now_s)
    for request in (*media, *chats):
        rig.assert_as_alone(request)
    return rig, list(rig.trace), [(arrived[each.id], ended[each.id]) for each in chats]


def is_interleaved(records: Sequence[StepRecord], waiting: Waiting, quantum_s: float) -> bool:
    """While text is ready: at most one quantum of media between two token steps, predicted to be short enough."""
    num_media = 0
    for record in records:
        if record.quantum == "tokens" or not any(start <= record.start_s < end for start, end in waiting):
            num_media = 0
            continue
        num_media += 1
        if num_media > 1 or record.predicted_s > quantum_s:
            return False
    return True


@pytest.mark.parametrize("flight", ["at once", "one lane"], indirect=True)
@pytest.mark.parametrize("policy", POLICIES)
def test_never_more_than_one_bounded_quantum_of_media_lies_between_two_token_steps(policy: str) -> None:
    rig, records, waiting = run_mixed(policy)
    quanta = [r for r in records if r.quantum != "tokens" and any(a <= r.start_s < b for a, b in waiting)]
    assert len(quanta) >= 5, "There is too little media beside the text to say anything."
    assert is_interleaved(records, waiting, rig.loads.config.quantum_s) == (policy == "deadline")


def test_media_goes_on_while_text_is_decoded() -> None:
    """The bound above is not kept by letting media starve."""
    _, records, waiting = run_mixed("deadline")
    for start, end in waiting:
        inside = [record for record in records if start <= record.start_s < end]
        media_s = sum(record.seconds for record in inside if record.quantum != "tokens")
        assert media_s > 0.2 * (end - start), f"{media_s:.3f} s of media in {end - start:.3f} s"
    assert {record.model for record in records} == {"chat", "image", "own", "clip"}


def test_predictions_that_bound_the_quanta_are_right() -> None:
    """A policy that keeps bounds by predictions is worth what they are."""
    _, records, _ = run_mixed("deadline")
    errors = sorted(abs(r.predicted_s - r.seconds) / r.seconds for r in records)
    assert errors[len(errors) * 9 // 10] < 0.25


@pytest.mark.parametrize("flight", ["two lanes"], indirect=True)
def test_two_lanes_run_beside_each_other() -> None:
    """While text is ready its lane is never idle, whatever media does."""
    _, records, waiting = run_mixed("deadline")
    tokens = [record for record in records if record.lane == "language" and record.quantum == "tokens"]
    beside = [record for record in records if record.lane == "media"]
    for start, end in waiting:
        assert any(start < record.start_s < end for record in beside)
    num_beside = sum(any(a.start_s < b.end_s and b.start_s < a.end_s for b in beside) for a in tokens)
    assert num_beside > len(tokens) / 2
