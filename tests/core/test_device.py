"""What is in flight per lane, and what waits for it."""

import random
from functools import partial

import pytest

from hemiola.core.device import InFlight, describe_device


def test_the_cpu_is_described() -> None:
    device = describe_device("cpu")
    assert (device.kind, device.name) == ("cpu", "CPU")
    assert device.total_bytes > 2**28
    assert device.num_units >= 1


def test_a_callback_runs_at_once_when_nothing_is_in_flight() -> None:
    ran: list[str] = []
    clock = InFlight()
    clock.retire(lambda: ran.append("now"))
    clock.launched("language", 1)
    clock.completed("language", 1)
    clock.retire(lambda: ran.append("now again"))
    assert ran == ["now", "now again"]


def test_a_callback_waits_for_all_lanes_that_were_in_flight_and_for_nothing_later() -> None:
    ran: list[str] = []
    clock = InFlight()
    clock.launched("language", 1)
    clock.launched("media", 1)
    clock.retire(lambda: ran.append("both"))
    clock.launched("language", 2)
    clock.completed("language", 1)
    assert ran == []
    clock.completed("media", 1)
    assert ran == ["both"]
    assert not clock.is_idle


def test_completing_a_step_completes_the_earlier_ones_of_its_lane() -> None:
    clock = InFlight()
    for sequence in (3, 5, 9):
        clock.launched("media", sequence)
    clock.completed("media", 5)
    assert [clock.is_complete(("media", s)) for s in (3, 5, 9)] == [True, True, False]
    assert clock.is_complete(("language", 1))
    clock.completed("media", 9)
    assert clock.is_idle


def test_sequences_of_a_lane_must_grow() -> None:
    clock = InFlight()
    clock.launched("media", 2)
    with pytest.raises(ValueError, match="launched 2 after 2"):
        clock.launched("media", 2)


def test_callbacks_run_exactly_when_their_steps_are_complete_in_any_order_of_completion() -> None:
    chance = random.Random(7)
    clock = InFlight()
    running: dict[str, list[int]] = {"language": [], "media": [], "copy": []}
    waiting: list[tuple[set[tuple[str, int]], list[bool]]] = []
    for sequence in range(3000):
        lane = chance.choice(list(running))
        act = chance.randrange(3)
        if act == 0:
            clock.launched(lane, sequence)
            running[lane].append(sequence)
        elif act == 1 and running[lane]:
            upto = chance.choice(running[lane])
            clock.completed(lane, upto)
            running[lane] = [s for s in running[lane] if s > upto]
        elif act == 2:
            ran: list[bool] = []
            clock.retire(partial(ran.append, True))
            waiting.append(({(lane, s) for lane, steps in running.items() for s in steps}, ran))
        still = {(lane, s) for lane, steps in running.items() for s in steps}
        assert clock.is_idle == (not still)
        for steps, ran in waiting:
            assert ran == ([] if steps & still else [True])
        waiting = [(steps, ran) for steps, ran in waiting if not ran]
