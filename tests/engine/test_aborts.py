"""An abort takes effect at once, whatever the request was at, and nobody else notices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hemiola.core.request import Request

from .cast import survivors, victim_chat, victim_picture
from .models import chat, picture, prompt_ids, replaced
from .rig import MIB, Rig

pytestmark = pytest.mark.usefixtures("flight")


@dataclass(frozen=True)
class Moment:
    """Fields: who is aborted, and whether the moment has come (`rig.state("victim")` is not None by then)."""

    make: Callable[[], Request]
    has_come: Callable[[Rig], bool]
    needs_parking: bool = False


def is_between_blocks_of(stage: str) -> Callable[[Rig], bool]:
    def has_come(rig: Rig) -> bool:
        opened = rig.state("victim").open
        return opened is not None and opened.stage.name == stage and opened.next_block > 0

    return has_come


def is_encoded_by_another_model(rig: Rig) -> bool:
    """Blocks of the encoding have run, and some are left."""
    jobs = rig.made.languages["chat"]._encodings._jobs.values()
    return any(job.next_block > 0 for job in jobs) and rig.state("victim").waiting_for == "encoding"


def parked(rig: Rig) -> bool:
    return rig.is_parked("victim")


MOMENTS = {
    "prefill": Moment(victim_chat, lambda rig: 0 < rig.state("victim").num_computed < 70),
    "decode": Moment(victim_chat, lambda rig: rig.state("victim").num_generated >= 5),
    "parked text": Moment(victim_chat, parked, needs_parking=True),
    "waiting for an encoding": Moment(
        lambda: victim_picture("image"), lambda rig: rig.state("victim").waiting_for == "encoding"
    ),
    "encoding blocks": Moment(lambda: victim_picture("image"), is_encoded_by_another_model),
    "refining blocks": Moment(lambda: victim_picture("image"), is_between_blocks_of("encode")),
    "encode blocks": Moment(lambda: victim_picture("own"), is_between_blocks_of("encode")),
    "denoise blocks": Moment(lambda: victim_picture("own"), is_between_blocks_of("denoise")),
    "between denoise steps": Moment(
        lambda: victim_picture("own"), lambda rig: rig.state("victim").num_done == 1 and not rig.state("victim").open
    ),
    "decode blocks": Moment(lambda: victim_picture("own"), is_between_blocks_of("decode")),
    "parked picture": Moment(lambda: victim_picture("own"), parked, needs_parking=True),
    "encode blocks of a clip": Moment(lambda: victim_picture("clip"), is_between_blocks_of("encode")),
    "denoise blocks of a clip": Moment(lambda: victim_picture("clip"), is_between_blocks_of("denoise")),
    "decode blocks of a clip": Moment(lambda: victim_picture("clip"), is_between_blocks_of("decode")),
}


def abort_when(rig: Rig, moment: Moment) -> None:
    """Iterates until the moment has come, aborts, and looks at what is left of the victim."""
    rig.run_until(lambda: rig.state("victim") is not None)
    if moment.needs_parking:
        rig.run_until(lambda: has_begun(rig.state("victim")))
        rig.run_until(lambda: rig.park_one() and rig.is_parked("victim"))
        assert rig.arena.ledger.owners["victim"].keys() == {"host"}
    rig.run_until(lambda: moment.has_come(rig))
    num_events = len(rig.events["victim"])
    assert rig.scheduler.abort("victim")
    assert rig.state("victim") is None and not rig.scheduler.abort("victim")
    assert rig.bytes_of("victim") == 0
    assert len(rig.events["victim"]) == num_events + 1
    assert rig.failed("victim").code == "request_aborted"
    rig.arena.ledger.check()


def has_begun(state: Any) -> bool:
    return bool(state.num_generated if hasattr(state, "num_generated") else state.num_done)


@pytest.mark.parametrize("name", MOMENTS)
def test_beside_others_an_abort_ends_the_victim_alone(name: str) -> None:
    rig = Rig(max_batch_tokens=32)
    others = survivors()
    rig.submit(MOMENTS[name].make(), *others)
    abort_when(rig, MOMENTS[name])
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.final("victim")
    for request in others:
        rig.assert_as_alone(request)
    rig.assert_nothing_is_held()


@pytest.mark.parametrize("name", MOMENTS)
def test_alone_an_abort_gives_every_byte_back(name: str) -> None:
    rig = Rig(max_batch_tokens=32)
    rig.submit(MOMENTS[name].make())
    abort_when(rig, MOMENTS[name])
    rig.trace.clear()
    in_flight = [step for lane in rig.scheduler.lanes.all for step in lane.steps]
    rig.run_until(lambda: rig.scheduler.is_idle, limit=3 if not in_flight else 30)
    num_launched = sum(step.batch.work.new_tokens > 0 for step in in_flight)
    num_computed = sum(record.work.new_tokens > 0 for record in rig.trace)
    assert num_computed == num_launched, "Nothing is computed that nobody waits for."
    rig.assert_nothing_is_held()
    again = MOMENTS[name].make()
    rig.events.clear()
    rig.run(again)
    rig.assert_as_alone(again)


def test_a_request_that_was_never_looked_at_is_aborted_as_well() -> None:
    rig = Rig()
    rig.submit(victim_chat())
    assert rig.scheduler.abort("victim") and not rig.scheduler.abort("victim")
    assert rig.failed("victim").code == "request_aborted"
    rig.assert_nothing_is_held()


def test_a_request_that_is_queued_for_want_of_memory_is_aborted_and_those_behind_it_go_on() -> None:
    rig = Rig(memory_bytes=MIB // 8, host_bytes=0)
    first, behind = chat("first", prompt_ids(250, 1), 20), chat("behind", prompt_ids(150, 2), 4)
    rig.submit(first)
    rig.run_until(lambda: len(rig.tokens("first")) > 0)
    rig.submit(chat("victim", prompt_ids(260, 3), 4))
    rig.submit(behind)
    for _ in range(3):
        rig.step()
    assert rig.scheduler.num_queued == 2 and rig.bytes_of("victim") == 0
    assert rig.scheduler.abort("victim")
    assert rig.failed("victim").code == "request_aborted"
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(first)
    rig.assert_as_alone(behind)
    rig.assert_nothing_is_held()


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_an_abort_before_the_first_step_makes_room_for_the_queue(prefix_cache: bool) -> None:
    """What an admitted request was going to take was not missed as bytes when it went, and the queue slept on."""
    rig = Rig(memory_bytes=MIB // 8, host_bytes=0, prefix_cache=prefix_cache)
    behind = chat("behind", prompt_ids(150, 2), 4)
    rig.submit(chat("victim", prompt_ids(260, 3), 4), behind)
    rig.scheduler._take_in()
    assert rig.state("victim") is not None and rig.state("behind") is None
    assert rig.scheduler.abort("victim")
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(behind)
    rig.assert_nothing_is_held()


def test_the_survivor_of_an_equal_prompt_computes_what_the_victim_had_promised() -> None:
    rig = Rig(max_batch_tokens=16)
    twin = replaced(victim_chat(), id="twin")
    rig.submit(victim_chat(), twin)
    rig.run_until(lambda: rig.state("victim") is not None and rig.state("victim").num_computed == 32)
    assert rig.state("twin").num_computed <= 32 and not rig.state("twin").is_ready
    rig.scheduler.abort("victim")
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(twin)
    assert rig.finished("twin").usage.cached_tokens == 32, "Pages that the victim had launched stay."
    rig.assert_nothing_is_held()


def test_an_answer_that_is_complete_as_it_is_may_end_well_while_it_is_parked() -> None:
    """Stop strings are seen a step late, and by then the request may have been parked."""
    rig = Rig()
    mate = chat("mate", prompt_ids(20, 3), 20)
    rig.submit(victim_chat(), mate)
    rig.run_until(lambda: len(rig.tokens("victim")) == 3)
    rig.run_until(lambda: rig.park_one() and rig.is_parked("victim"))
    num_tokens = len(rig.tokens("victim"))
    assert rig.scheduler.finish("victim") and not rig.scheduler.finish("victim")
    final = rig.finished("victim")
    assert (final.reason, final.usage.completion_tokens) == ("stop", num_tokens) and rig.bytes_of("victim") == 0
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(mate)
    rig.assert_nothing_is_held()


@pytest.mark.parametrize("stage", ["encode", "denoise", "decode"])
def test_a_dead_row_goes_with_its_batch_and_a_dead_batch_at_once(stage: str) -> None:
    rig = Rig(("own",))
    mate, late = picture("mate", seed=3, num_inference_steps=3), picture("late", seed=4)
    rig.submit(victim_picture("own"), mate)
    rig.run_until(lambda: rig.state("victim") is not None and is_between_blocks_of(stage)(rig))
    opened = rig.state("victim").open
    assert [state.id for state in opened.states] == ["victim", "mate"]
    assert carries(rig) == 1
    rig.scheduler.abort("victim")
    assert [state.id for state in opened.states] == ["mate"]
    assert carries(rig) == 1 and rig.bytes_of("victim") == 0
    rig.submit(late)  # whoever comes now waits for the next step, or opens another batch
    for _ in range(2):
        rig.step()
    assert not rig.finals("mate")
    rig.scheduler.abort("mate")
    assert carries(rig) <= 1 and rig.bytes_of("mate") == 0
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(late)
    rig.assert_nothing_is_held()


def carries(rig: Rig) -> int:
    """Those in use, or still to be."""
    return sum(owner.startswith("carry:") and kinds["general"] > 0 for owner, kinds in rig.arena.ledger.owners.items())


def test_all_of_a_crowd_are_aborted_at_once() -> None:
    rig = Rig(max_batch_tokens=32)
    requests = survivors()
    rig.submit(*requests)
    for _ in range(25):
        rig.step()
    running = [request.id for request in requests if not rig.finals(request.id)]
    assert len(running) >= 4
    assert all(map(rig.scheduler.abort, running))
    assert all(rig.failed(id).code == "request_aborted" and rig.bytes_of(id) == 0 for id in running)
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_nothing_is_held()
