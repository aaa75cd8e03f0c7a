"""Somebody wants something while a step is in flight, so that nobody waits for it: that is no standstill."""

from collections.abc import Callable
from typing import Any

import pytest

from hemiola.core.step import Pending, Shortfall, Slot

from .flights import FLIGHTS
from .models import chat, prompt_ids
from .rig import Rig


@pytest.fixture
def rig() -> Rig:
    """Of one chat model, whose steps are not done before they were asked for often; it is called all the time."""
    made = Rig(names=("chat",), flight=FLIGHTS["two lanes"])
    depart = made._timetable.depart

    def late(pending: Pending, slot: Slot, seconds: float) -> Any:
        later = depart(pending, slot, seconds)
        later.num_polls = 20
        return later

    made._timetable.depart = late  # type: ignore[method-assign]
    made.scheduler._is_called = lambda: True
    return made


def take_all(rig: Rig) -> Callable[[], None]:
    """Leaves nobody any memory; gives back what gives it back."""
    pages, leases = rig.made.languages["chat"].kv_cache.page_class, []
    while not isinstance(lease := rig.arena.lease(256, "hog"), Shortfall):
        leases.append(lease)
    taken = pages.take(pages.num_free, "hog")
    assert not isinstance(taken, Shortfall)

    def give_back() -> None:
        pages.free(taken, "hog")
        for each in leases:
            each.release()

    return give_back


def step_until(rig: Rig, condition: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if condition():
            return
        rig.step()
    raise AssertionError(f"Not done: {rig.standing()}")


def test_who_lacks_memory_is_not_parked_or_ended_while_his_step_is_in_flight(rig: Rig) -> None:
    """He was parked, so that the token of that step was lost, and then ended for want of memory."""
    asked = chat("c", prompt_ids(30), 60)
    rig.submit(asked)
    step_until(rig, lambda: rig.state("c") is not None and rig.state("c").num_generated >= 2)
    give_back = take_all(rig)
    step_until(rig, lambda: rig.entry("c").is_held and rig.scheduler.lanes.num_in_flight)  # type: ignore[union-attr]
    for _ in range(5):
        rig.step()
        assert rig.scheduler.lanes.num_in_flight and not rig.is_parked("c")
    give_back()
    step_until(rig, lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(asked)
    assert rig.scheduler.num_parks == 0
    rig.assert_nothing_is_held()


def test_who_is_queued_is_not_ended_while_the_bytes_of_the_last_one_retire(rig: Rig) -> None:
    """The last one was aborted: what he held is free when his step is over. He who came next was refused before."""
    rig.submit(chat("last", prompt_ids(30), 60))
    step_until(rig, lambda: rig.scheduler.lanes.num_in_flight > 0)
    give_back = take_all(rig)
    rig.scheduler.abort("last")
    asked = chat("c", prompt_ids(40, seed=1), 6)
    rig.submit(asked)
    for _ in range(5):
        rig.step()
        assert rig.scheduler.lanes.num_in_flight and not rig.finals("c")
    give_back()
    step_until(rig, lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(asked)
    rig.assert_nothing_is_held()
