"""The cost model learns what steps cost, key by key, and says how wrong it was."""

import random

from hemiola.core.step import Work
from hemiola.scheduler.cost_model import CostModel


def test_it_learns_a_decode_step_from_noisy_observations() -> None:
    model, rng = CostModel(), random.Random(0)

    def step() -> tuple[Work, float]:
        rows = rng.randint(1, 8)
        context = rows * rng.randint(10, 2000)
        return Work(rows, rows, context, context), 0.008 + 4e-4 * rows + 1e-6 * context

    for _ in range(100):
        work, seconds = step()
        model.observe("decode", work, seconds * rng.uniform(0.95, 1.05))
    for _ in range(20):
        work, seconds = step()
        assert abs(model.seconds("decode", work) - seconds) < 0.1 * seconds
    assert model.errors()["decode"][0] == 100
    assert model.errors()["decode"][1] < 0.1


def test_keys_are_apart_and_unknown_keys_are_guesses() -> None:
    model = CostModel()
    assert not model.knows("a")
    for _ in range(3):
        model.observe("a", Work(rows=1, blocks=4), 2.0)
    assert model.knows("a") and not model.knows("b")
    assert model.seconds("a", Work(rows=1, blocks=4)) > 1.5
    assert 0 < model.seconds("b", Work(rows=1, blocks=4)) < 0.1


def test_one_stalled_step_moves_the_prediction_little() -> None:
    model = CostModel()
    work = Work(rows=1, new_tokens=64, blocks=2)
    for _ in range(30):
        model.observe("denoise", work, 0.02)
    model.observe("denoise", work, 5.0)
    assert model.seconds("denoise", work) < 0.08
    for _ in range(5):
        model.observe("denoise", work, 0.02)
    assert abs(model.seconds("denoise", work) - 0.02) < 0.01


def test_far_beyond_what_was_seen_it_is_careful() -> None:
    """Blocks of a decoder grow: two cheap ones must not make a quantum of all the dear ones."""
    model = CostModel()
    for _ in range(2):
        model.observe("decode", Work(rows=1, blocks=1, pixels=1_000), 0.01)
    assert model.seconds("decode", Work(rows=1, blocks=1, pixels=1_000_000)) >= 5


def test_a_range_that_was_seen_is_predicted_linearly() -> None:
    model = CostModel()
    for blocks in (1, 2, 4, 8, 16) * 4:
        model.observe("denoise", Work(rows=1, blocks=blocks), 0.001 + 0.01 * blocks)
    assert abs(model.seconds("denoise", Work(rows=1, blocks=30)) - 0.301) < 0.05
