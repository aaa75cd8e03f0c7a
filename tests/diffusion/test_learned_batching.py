"""Which numbers of rows share a step, learned from simulated seconds and through a runner."""

import random
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from hemiola.core.step import Work
from hemiola.diffusion.batching import MAX_ROWS, Batching

from .driver import Driver, media_request, one_block, tiny_family

Seconds = Callable[[int, int], float]
"""Of a step, from the tokens of a row and the number of rows."""


def row(tokens: int, phase: str = "denoise") -> Any:
    work = Work(rows=1, new_tokens=20 * tokens, attended_pairs=20 * tokens**2, blocks=20)
    return SimpleNamespace(phase=phase, work=work, rest=[work])


def learn(batching: Batching, tokens: int, num_rows: int, seconds: float) -> None:
    steps = {index: row(tokens) for index in range(num_rows)}
    batching.learn(SimpleNamespace(steps=steps, stage=SimpleNamespace(name="denoise")), seconds)  # type: ignore[arg-type]


def simulate(cost: Seconds, num_steps: int, *, tokens: int = 256, waiting: int = 6, **options: Any) -> list[int]:
    """Numbers of rows of so many steps, one after the other."""
    batching: Batching = options.get("batching") or Batching()
    rng, scatter = random.Random(options.get("seed", 0)), options.get("scatter", 0.03)
    rows = []
    for _ in range(num_steps):
        num = len(batching.choose([row(tokens) for _ in range(waiting)]))
        learn(batching, tokens, num, cost(tokens, num) * rng.lognormvariate(0, scatter))
        rows.append(num)
    return rows


def pays(tokens: int, num_rows: int) -> float:
    """Two rows in 1.74 times the time of one: one CPU thread."""
    return 0.043 * (0.26 + 0.74 * num_rows)


def does_not_pay(tokens: int, num_rows: int) -> float:
    return 0.043 * num_rows


def hurts(tokens: int, num_rows: int) -> float:
    return 0.043 * num_rows * (1.05 if num_rows > 1 else 1.0)


def saturates(tokens: int, num_rows: int) -> float:
    """A GPU: a step takes 10 ms at least, and is full with 1,500 tokens."""
    return max(0.010, 0.010 * tokens * num_rows / 1500)


@pytest.mark.parametrize("seed", range(5))
def test_it_learns_to_batch_where_that_pays(seed: int) -> None:
    rows = simulate(pays, 200, seed=seed)
    assert min(rows[:40].count(num) for num in (1, 2)) >= 6, "What is compared was tried."
    assert sum(num > 1 for num in rows[40:]) > 0.9 * len(rows[40:])
    assert sum(rows) / sum(pays(256, num) for num in rows) > 1.1 / 0.043, "rows per second, tries included"


@pytest.mark.parametrize("cost", [does_not_pay, hurts])
@pytest.mark.parametrize("seed", range(5))
def test_it_learns_not_to_batch_where_that_does_not_pay_after_few_tries(cost: Seconds, seed: int) -> None:
    rows = simulate(cost, 1000, seed=seed)
    assert sum(num > 1 for num in rows) <= 40
    assert sum(num > 1 for num in rows[500:]) <= 2, "Tries grow with the logarithm of all steps."


@pytest.mark.parametrize("seed", range(5))
def test_steps_of_one_row_alone_do_not_keep_it_from_trying(seed: int) -> None:
    """Regression: a linear model of costs had learned from them that two rows take twice as long."""
    batching = Batching()
    assert set(simulate(pays, 300, waiting=1, batching=batching, seed=seed)) == {1}
    rows = simulate(pays, 60, batching=batching, seed=seed)
    assert rows[0] == 2 and sum(num > 1 for num in rows[20:]) >= 38


def test_sizes_are_apart() -> None:
    batching = Batching()
    small = simulate(saturates, 100, tokens=256, batching=batching)
    large = simulate(saturates, 300, tokens=4096, batching=batching)
    assert sum(num > 2 for num in small[60:]) > 35
    assert sum(num > 1 for num in large[60:]) <= 5


@pytest.mark.parametrize(("cost", "most"), [(pays, 40), (does_not_pay, 25)])
def test_it_does_not_waver(cost: Seconds, most: int) -> None:
    """Between batches and steps of one row it changes to try, and no more often; six rows, two or three are alike."""
    rows = simulate(cost, 1000)
    is_batch = [num > 1 for num in rows]
    assert sum(a != b for a, b in pairwise(is_batch)) <= most


def test_a_device_that_slows_down_changes_no_decision() -> None:
    batching = Batching()
    simulate(pays, 100, batching=batching)
    slower = simulate(lambda tokens, rows: 2 * pays(tokens, rows), 100, batching=batching)
    assert sum(num > 1 for num in slower) > 90


def test_it_notices_when_batches_stop_paying() -> None:
    batching = Batching()
    simulate(pays, 100, batching=batching)
    rows = simulate(lambda tokens, rows: does_not_pay(tokens, rows) * (1.3 if rows > 1 else 1), 2000, batching=batching)
    assert sum(num > 1 for num in rows[1000:]) < 100


def test_the_first_steps_of_each_number_of_rows_do_not_count() -> None:
    """They build and allocate what later ones find."""
    batching = Batching()
    for num_rows in (1, 2):
        for seconds in (30.0, 30.0, *[pays(256, num_rows)] * 6):
            learn(batching, 256, num_rows, seconds)
    assert len(batching.choose([row(256) for _ in range(3)])) == 3


def test_forgetting_begins_anew() -> None:
    batching = Batching()
    simulate(pays, 100, batching=batching)
    batching.forget()
    assert len(batching.choose([row(256), row(256)])) == 1


def test_a_runner_learns_from_whole_steps_however_they_are_cut() -> None:
    family = tiny_family("zimage")
    learned: list[tuple[str, int, float]] = []

    class Recorded(Batching):
        def learn(self, step: Any, seconds: float) -> None:
            learned.append((step.stage.name, len(step.steps), seconds))
            assert seconds == pytest.approx(sum(taken[-len(step.blocks) :]))
            super().learn(step, seconds)

    taken: list[float] = []
    driver = Driver(family, batching=Recorded())
    states = [driver.admit(media_request(family, str(i), seed=i, num_inference_steps=12)) for i in range(2)]
    collect = driver.runner.collect

    def collecting(batch: Any, pending: Any) -> Any:
        taken.append(pending.seconds)
        return collect(batch, pending)

    driver.runner.collect = collecting  # type: ignore[method-assign]
    driver.run(states, one_block)
    names = [name for name, _, _ in learned]
    assert names[0] == "encode" and names.count("decode") in (1, 2)
    rows = [num for name, num, _ in learned if name == "denoise"]
    assert sum(rows) == 24 and rows[:6] == [1] * 6 and 2 in rows, "One row is tried first, then two."


def test_pictures_that_denoise_together_are_encoded_together() -> None:
    """Regression: encoding them one by one let each through all its steps before the next could share any."""
    family = tiny_family("zimage")
    for together_s, num_expected in ((1.5, 2), (2.5, 1)):
        batching = Batching()
        driver = Driver(family, batching=batching)
        states = [driver.admit(media_request(family, str(i), f"a red fox {i}", seed=i)) for i in range(2)]
        for num_rows, seconds in ((1, 1.0), (2, together_s)) * 8:
            steps = {index: states[0].job.denoise for index in range(num_rows)}
            stage = SimpleNamespace(name="denoise")
            batching.learn(SimpleNamespace(steps=steps, stage=stage), seconds)  # type: ignore[arg-type]
        batch = driver.plan(states)
        assert states[0].phase == "encode" and len(batch.states) == num_expected
        driver.runner.cancel(batch)


def test_a_runner_gives_no_more_rows_than_may_share_a_step() -> None:
    family = tiny_family("zimage")
    batching = Batching()
    driver = Driver(family, batching=batching)
    states = [driver.admit(media_request(family, str(i), seed=i)) for i in range(MAX_ROWS + 2)]
    for num_rows in (1, 2, 4, 8, 16):
        for _ in range(10):
            steps = {index: states[0].job.denoise for index in range(num_rows)}
            stage = SimpleNamespace(name="denoise")
            batching.learn(SimpleNamespace(steps=steps, stage=stage), 0.1 + 0.01 * num_rows)  # type: ignore[arg-type]
    batch = driver.plan(states)
    assert len(batch.states) == MAX_ROWS
    driver.runner.cancel(batch)
