"""What the scheduler knows of each running state."""

from typing import Any

from hemiola.scheduler.running import RunningSet

NO_RUNNER: Any = None


def test_a_state_is_suspect_until_a_step_succeeds_that_was_launched_after_the_fault() -> None:
    """One in flight that was launched before cleared all of its batch, which failed together again, for ever."""
    running = RunningSet(lambda state: 2)
    entries = [running.add(state, NO_RUNNER) for state in ("a", "b")]
    running.launched(["a", "b"])
    running.suspect(["a", "b"])
    running.launched(["a"])
    running.collected(["a", "b"])
    assert [entry.is_suspect for entry in entries] == [True, True]
    running.collected(["a"])
    assert [entry.is_suspect for entry in entries] == [False, True]


def test_whoever_has_ended_is_no_suspect() -> None:
    running = RunningSet()
    running.suspect(["gone"])
    assert running.of("gone") is None
