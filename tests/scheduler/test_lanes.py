"""Lanes: when a launch waits for a result that is about to come."""

from typing import Any

import pytest

from hemiola.core.step import Batch, Slot, Whole, Work
from hemiola.scheduler.lanes import Lane, Lanes, LaunchedStep
from hemiola.scheduler.simulator import Elapsed

NOTHING: Any = None


def with_steps(*predicted_ms: float, name: str = "x", since_ms: float = 0.0) -> Lane:
    """Launched one after the other at `since_ms`."""
    lane = Lane(name, depth=2)
    for seconds in (ms / 1e3 for ms in predicted_ms):
        batch = Batch([], Work(), "k", Whole(), None)
        slot = Slot(name, 1.0, 1, since_ms / 1e3)
        lane.steps.append(LaunchedStep(NOTHING, batch, Elapsed(seconds), slot, "phase", "k", seconds))
    return lane


@pytest.mark.parametrize(
    ("now_ms", "is_later"),
    [(1.0, False), (7.0, True), (9.0, True), (11.0, False)],
    ids=["long before", "just before", "just after it was expected", "long after: predictions may be wrong"],
)
def test_a_launch_waits_for_a_result_that_is_about_to_come(now_ms: float, is_later: bool) -> None:
    language, media = with_steps(8.0), with_steps(20.0)
    assert Lanes([language, media]).is_better_later(media, now_ms / 1e3) is is_later


def test_no_launch_waits_whose_lane_has_nothing_or_little_to_do_meanwhile() -> None:
    language = with_steps(8.0)
    for media in (with_steps(), with_steps(8.5)):
        assert not Lanes([language, media]).is_better_later(media, 0.008)


def test_the_first_lane_waits_for_nobody() -> None:
    language, media = with_steps(20.0), with_steps(8.0)
    assert not Lanes([language, media]).is_better_later(language, 0.008)


def test_a_step_begins_when_the_one_before_it_was_collected() -> None:
    lane = with_steps(8.0, 5.0)
    assert lane.next_end_s == pytest.approx(0.008)
    lane.take_first(now_s=0.010)
    assert lane.next_end_s == pytest.approx(0.015)
