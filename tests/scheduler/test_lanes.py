"""Lanes: when a launch waits for a result that is about to come."""

from typing import Any

import pytest

from hemiola.core.request import Sampling, TextRequest
from hemiola.core.step import Batch, Slot, Whole, Work
from hemiola.scheduler.lanes import Lane, Lanes, LaunchedStep
from hemiola.scheduler.simulator import Elapsed, Simulation

NOTHING: Any = None


class Later:
    """A launch whose step goes on."""

    seconds = None

    def done(self) -> bool:
        return False

    def wait(self) -> None:
        """Nobody has to."""


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


@pytest.mark.parametrize(("launch_ms", "is_clear"), [(None, True), (0.5, True), (20.0, False)])
def test_what_launching_takes_is_not_learned_behind_many_kernels(launch_ms: float | None, is_clear: bool) -> None:
    """The device's queue may be full of them: launches would seem as long as steps, and chunks grow for ever."""
    simulation = Simulation()
    lane = simulation.scheduler.lanes.all[0]
    lane.depth = 2
    if launch_ms is not None:
        (before,) = with_steps(100.0).steps
        before.pending, before.launch_s = Later(), launch_ms / 1e3
        lane.steps.append(before)
    launch = simulation.text.launch
    simulation.text.launch = lambda batch, slot: (launch(batch, slot), Later())[1]  # type: ignore
    sampling = Sampling(max_tokens=1)
    simulation.scheduler.submit(TextRequest(id="a", model="text", token_ids=(1, 2), sampling=sampling))
    simulation.scheduler.step()
    assert (simulation.scheduler.costs.launch_seconds(("text", True)) > 0) is is_clear
