"""When an engine that died is there again, as far as that can be known."""

import pytest

from hemiola.api.http.errors import problem_of
from hemiola.api.restarts import Starts
from hemiola.core.errors import Overloaded


def test_the_last_start_tells_when_the_next_one_will_be_over() -> None:
    starts = Starts()
    starts.begin(100.0)
    assert starts.not_yet(104.0).retry_after_s is None
    starts.end(109.5)
    starts.begin(201.0)  # after a pause
    assert starts.not_yet(200.0).retry_after_s == pytest.approx(10.5)
    assert starts.not_yet(208.0).retry_after_s == pytest.approx(2.5)
    assert starts.not_yet(211.0).retry_after_s is None  # it takes longer than the last one


@pytest.mark.parametrize(("left_s", "told"), [(None, "2"), (0.3, "2"), (8.2, "9"), (40.0, "40")])
def test_clients_are_told_to_come_back_when_the_engine_will_be_there(left_s: float | None, told: str) -> None:
    """They were told 2 s, and gave up after twice as long, when the engine was still starting."""
    problem = problem_of(Overloaded("The engine is starting.", left_s), retry_after_s=2)
    assert (problem.status, problem.headers["retry-after"]) == (503, told)
