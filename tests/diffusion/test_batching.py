"""Requests that share batches, alternate, or are cut anywhere give what they give alone."""

import random

import numpy as np
import pytest

from hemiola.core.request import MediaRequest
from hemiola.core.step import Blocks, Work, total_work
from hemiola.diffusion.batching import MAX_ROWS
from hemiola.diffusion.families import load_family
from hemiola.tests.diffusion.driver import Driver, assert_close, media_request, one_block, solo, tiny_family
from hemiola.tests.tiny_diffusion import FAMILIES, tiny_pipeline_dir

BATCHED = 1e-5


def mixed_requests(name: str) -> list[MediaRequest]:
    family = tiny_family(name)
    sizes = [(48, 32), (24, 40), (48, 32), (64, 64)] if name != "wan" else [(48, 32)] * 4
    prompts = ["a red fox", "ball", "the quick brown fox jumps over the lazy dog again", "a red fox"]
    return [
        media_request(
            family, f"r{i}", prompts[i], width=width, height=height, seed=i,
            num_inference_steps=2 + i, guidance_scale=[3.0, 0.0, 4.5, 1.5][i],
        )
        for i, (width, height) in enumerate(sizes)
    ]  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_mixed_sizes_steps_and_guidance_in_one_batch_equal_solo_runs(name: str) -> None:
    family = tiny_family(name)
    requests = mixed_requests(name)
    driver = Driver(family)
    states = []
    for request in requests:  # joined one after the other, so that all stand at different steps
        states.append(driver.admit(request))
        driver.step_until(states[-1], "denoise")
        driver.step([state for state in states if state.phase == "denoise"])
    driver.run(states)
    for request in requests:
        assert_close(driver.frames(request.id), solo(family, request), BATCHED)
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("name", FAMILIES)
def test_equal_batches_give_equal_bits(name: str) -> None:
    family = tiny_family(name)
    results = []
    for _ in range(2):
        driver = Driver(family)
        requests = mixed_requests(name)
        driver.run([driver.admit(request) for request in requests])
        results.append([driver.frames(request.id) for request in requests])
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_random_cuts_give_the_bits_of_uncut_steps(name: str, seed: int) -> None:
    family = tiny_family(name)
    requests = mixed_requests(name)
    dice = random.Random(seed)
    frames = []
    for cut in (lambda offered: offered.last, lambda offered: dice.randint(offered.first, offered.last)):
        driver = Driver(family)
        driver.run([driver.admit(request) for request in requests], cut)
        frames.append([driver.frames(request.id) for request in requests])
        driver.assert_nothing_is_held()
    assert all(np.array_equal(a, b) for a, b in zip(*frames, strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_two_requests_that_alternate_blocks_equal_solo_runs_bit_for_bit(name: str) -> None:
    """Each has its own open batch: nothing of a request lies on a module."""
    family = tiny_family(name)
    requests = [media_request(family, "a", "a red fox"), media_request(family, "b", "ball", seed=9)]
    driver = Driver(family)
    states = [driver.admit(request) for request in requests]
    while alive := [state for state in states if not state.is_released]:
        for state in alive:
            if state.is_ready:  # the negative prompt is encoded once for both
                driver.step([state], one_block)
    for request in requests:
        assert np.array_equal(driver.frames(request.id), solo(family, request))
    driver.assert_nothing_is_held()


def test_a_long_clips_branches_run_apart_and_give_what_they_give_together(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = mixed_requests("wan")
    monkeypatch.setattr("hemiola.diffusion.families.wan._MANY_TOKENS", 1)
    family = load_family(tiny_pipeline_dir("wan"))
    driver = Driver(family)
    states = [driver.admit(request) for request in requests]
    apart, together = states[0].job.denoise, Driver(tiny_family("wan")).admit(requests[0]).job.denoise
    assert len(apart.works) == 2 * len(together.works)
    sums = [total_work(steps.works)._replace(rows=1, blocks=0) for steps in (apart, together)]
    assert abs(sums[0].new_tokens - sums[1].new_tokens) < len(apart.works)  # rounded for each block
    assert sums[0]._replace(new_tokens=0) == sums[1]._replace(new_tokens=0)
    driver.run(states, one_block)
    for request in requests:
        assert_close(driver.frames(request.id), solo(tiny_family("wan"), request), BATCHED)


def test_a_batch_has_a_bounded_number_of_rows() -> None:
    family = tiny_family("zimage")
    driver = Driver(family)
    states = [driver.admit(media_request(family, str(i), seed=i)) for i in range(MAX_ROWS + 2)]
    batch = driver.plan(states)
    assert len(batch.states) == MAX_ROWS


@pytest.mark.parametrize("name", FAMILIES)
def test_work_of_a_batch_is_the_sum_over_rows_and_counts_blocks_once(name: str) -> None:
    family = tiny_family(name)
    driver = Driver(family)
    states = [driver.admit(media_request(family, str(i), seed=i)) for i in range(2)]
    driver.step_until(states[0], "denoise")
    one = states[0].work
    cut = states[0].cut
    assert isinstance(cut, Blocks) and cut.first == 0 and len(cut.works) == cut.last + 1
    assert one == Work(*map(sum, zip(*cut.works, strict=True)))._replace(rows=1)
    batch = driver.plan(states)
    assert batch.work == Work(*(2 * value for value in one))._replace(blocks=one.blocks)
    assert min(one.new_tokens, one.attended_pairs, one.blocks) > 0
    driver.launch(batch)


@pytest.mark.parametrize("name", FAMILIES)
def test_decode_work_counts_convolutions_by_size(name: str) -> None:
    family = tiny_family(name)
    small, large = (
        Driver(family).admit(media_request(family, width=side, height=32)).job.decode.rest[0] for side in (32, 64)
    )
    assert 1.9 < large.pixels / small.pixels < 2.1
    assert small.new_tokens == 0 and large.attended_pairs == 4 * small.attended_pairs > 0
