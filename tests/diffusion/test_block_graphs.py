"""Blocks as graphs over slots: the same bits as eager blocks, whatever is cut, interleaved, ended, evicted or failing.

On a CPU a graph is its function, called on the slot's tensors: what is tested is that nothing else is read or kept.
"""

import logging
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from hemiola.core.graphs import Graph, GraphPool
from hemiola.core.memory import Need
from hemiola.core.step import Shortfall
from hemiola.diffusion import block_graphs
from hemiola.diffusion.block_graphs import BlockGraphs
from hemiola.diffusion.state import DiffusionState
from hemiola.tests.diffusion.driver import Cut, Driver, media_request, one_block, solo, tiny_family, whole

NAMES = ["zimage", "wan", "flux"]
NUM_STEPS = 5


def driver_of(name: str, **options: Any) -> Driver:
    return Driver(tiny_family(name), graph_pool=GraphPool(torch.device("cpu"), lambda: nullcontext([])), **options)


def graphs_of(driver: Driver) -> BlockGraphs:
    assert driver.runner.graphs is not None
    return driver.runner.graphs


def admitted(driver: Driver, request_id: str = "a", **fields: Any) -> DiffusionState:
    return driver.admit(media_request(driver.runner.family, request_id, **{"num_inference_steps": NUM_STEPS, **fields}))


def assert_as_solo(driver: Driver, request_id: str = "a", **fields: Any) -> None:
    fields = {"num_inference_steps": NUM_STEPS, **fields}
    family = driver.runner.family
    assert np.array_equal(driver.frames(request_id), solo(family, media_request(family, request_id, **fields)))


def in_denoise(driver: Driver, request_id: str = "a", *, after: int = 3, **fields: Any) -> DiffusionState:
    """A state before some denoise step; after two, the next one is captured."""
    state = admitted(driver, request_id, **fields)
    while state.phase != "denoise" or state.num_done < after:
        driver.step([state])
    return state


def slot_bytes(driver: Driver) -> int:
    owners = driver.arena.ledger.owners
    return sum(kinds["general"] for owner, kinds in owners.items() if owner.startswith("graph:m:"))


@pytest.mark.parametrize("cut", [whole, one_block])
@pytest.mark.parametrize("name", NAMES)
def test_captured_steps_give_the_same_bits(name: str, cut: Cut) -> None:
    driver = driver_of(name)
    state = admitted(driver)
    num_blocks = len(state.job.denoise.works)
    num_graphs = []
    while not state.is_denoised:
        driver.step([state], cut)
        if state.open is None and state.num_done:
            num_graphs.append(graphs_of(driver).num_graphs)
    driver.run([state], cut)
    assert num_graphs == [0, 0, num_blocks, num_blocks, num_blocks]
    graphs = graphs_of(driver)
    assert graphs.num_slots == 1 and graphs.nbytes == slot_bytes(driver)
    assert_as_solo(driver)
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("name", NAMES)
def test_graphs_are_found_again_by_the_next_request_of_the_layout(name: str) -> None:
    driver = driver_of(name)
    driver.run([admitted(driver)])
    pool = graphs_of(driver)._pool
    before = pool.num_graphs
    again = {"prompt": "a rad fox", "seed": 9}  # another prompt of as many tokens
    driver.run([admitted(driver, "b", **again)])
    assert pool.num_graphs == before
    assert_as_solo(driver, "b", **again)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_batch_of_a_layout_runs_eagerly_while_the_slot_is_taken(name: str) -> None:
    driver = driver_of(name)
    driver.run([admitted(driver, "warm")])
    first, second = in_denoise(driver, "a", seed=1), in_denoise(driver, "b", seed=2)
    while not (first.is_denoised and second.is_denoised):
        for state in (first, second):
            if not state.is_denoised:
                driver.step([state], one_block)
        opened = [s.open for s in (first, second) if s.open is not None]
        assert sum(each._captured is not None and each._captured.store is not None for each in opened) <= 1
        stores = [each.store for each in opened]
        assert len(opened) < 2 or sum(store is not None for store in stores) == 1
    driver.run([first])
    driver.run([second])
    assert_as_solo(driver, "a", seed=1)
    assert_as_solo(driver, "b", seed=2)
    driver.assert_nothing_is_held()


def test_layouts_have_slots_of_their_own_and_are_interleaved_block_by_block() -> None:
    driver = driver_of("zimage")
    sizes: list[dict[str, Any]] = [{"width": 48}, {"width": 32}, {"guidance_scale": 0.0}]
    states = [in_denoise(driver, str(i), **fields) for i, fields in enumerate(sizes)]
    while any(not state.is_denoised for state in states):
        for state in states:
            if not state.is_denoised:
                driver.step([state], one_block)
    assert graphs_of(driver).num_slots == 3
    for i, state in enumerate(states):
        driver.run([state])
        assert_as_solo(driver, str(i), **sizes[i])
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("name", NAMES)
def test_shares_have_graphs_of_their_own_and_may_change_between_blocks(name: str) -> None:
    driver = driver_of(name)
    shares = [1.0, 0.5]
    state = admitted(driver, num_inference_steps=8)
    num = 0
    while not state.is_denoised:
        driver.sm_share = shares[num // 2 % 2]
        num += 1
        driver.step([state], one_block)
    driver.run([state])
    [layout] = graphs_of(driver)._layouts.values()
    assert {share for share, _ in layout.graphs} == {1.0, 0.5}
    assert_as_solo(driver, num_inference_steps=8)


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_after_any_block_gives_the_slot_back_and_a_second_try_gives_the_same_bits(name: str) -> None:
    driver = driver_of(name)
    driver.run([admitted(driver, "warm")])
    state = in_denoise(driver, after=0)
    num_blocks = len(state.job.denoise.works)
    for fail_at in range(num_blocks):
        for _ in range(fail_at):
            driver.step([state], one_block)
        batch = driver.plan([state], one_block)
        opened = batch.payload.open
        block = opened.blocks[fail_at]

        def broken(carry: Any, block: Any = block) -> None:
            block.run(carry)
            raise RuntimeError("broken")

        opened.blocks = [*opened.blocks[:fail_at], type(block)(broken, block.work), *opened.blocks[fail_at + 1 :]]
        with pytest.raises(RuntimeError, match="broken"):
            driver.launch(batch)
        assert not any(layout.is_taken for layout in graphs_of(driver)._layouts.values())
        driver.step([state])
    driver.run([state])
    assert_as_solo(driver)
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("name", NAMES)
def test_an_end_between_any_two_blocks_gives_the_slot_back(name: str) -> None:
    driver = driver_of(name)
    driver.run([admitted(driver, "warm")])
    num_blocks = len(in_denoise(driver, "count").job.denoise.works)
    driver.runner.release(next(iter(driver.runner._states)))
    for num_run in range(1, num_blocks):
        state = in_denoise(driver, str(num_run))
        for _ in range(num_run):
            driver.step([state], one_block)
        driver.runner.release(state)
        driver.assert_nothing_is_held()
    driver.run([admitted(driver)])
    assert_as_solo(driver)


def test_a_slot_is_evicted_for_those_who_need_its_bytes_and_its_graphs_are_dropped() -> None:
    driver = driver_of("zimage")
    driver.run([admitted(driver, "warm")])
    graphs = graphs_of(driver)
    pool = graphs._pool
    assert pool.num_graphs > 0
    hog = driver.arena.lease(driver.arena.nbytes, "hog")
    assert not isinstance(hog, Shortfall)
    hog.release()
    driver.run([admitted(driver)])
    assert_as_solo(driver)
    assert (graphs.num_slots, pool.num_graphs) == (1, graphs.num_graphs), "It was captured anew."
    driver.assert_nothing_is_held()


def test_a_slot_in_use_is_not_evicted() -> None:
    driver = driver_of("zimage")
    state = in_denoise(driver)
    driver.step([state], one_block)
    assert state.open is not None and state.open._captured is not None and state.open._captured.store is not None
    assert not driver.arena.can_lease(Need(general=(driver.arena.nbytes,)))
    while isinstance(driver.arena.lease(1 << 12, "hog"), Shortfall) is False:
        pass
    driver.step([state])
    assert state.num_done == 4


def test_the_number_of_slots_is_bounded_and_the_least_recently_used_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_graphs, "MAX_SLOTS", 2)
    driver = driver_of("zimage")
    graphs = graphs_of(driver)
    for i, width in enumerate((16, 32, 48, 16)):
        driver.run([admitted(driver, str(i), width=width)])
        assert graphs.num_slots == min(i + 1, 2)
        assert graphs._pool.num_graphs == graphs.num_graphs
    for i, width in enumerate((16, 32, 48, 16)):
        assert_as_solo(driver, str(i), width=width)
    driver.assert_nothing_is_held()


def test_only_so_many_layouts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_graphs, "MAX_KNOWN", 2)
    driver = driver_of("zimage")
    for i, width in enumerate((16, 32, 48, 64)):
        driver.run([admitted(driver, str(i), width=width, num_inference_steps=1)])
    assert len(graphs_of(driver)._layouts) == 2


def test_without_room_for_a_slot_steps_run_eagerly_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    family = tiny_family("zimage")
    request = media_request(family, num_inference_steps=8)
    needs = [sum(need.general) for need in Driver(family).admit(request).job.needs]
    driver = driver_of("zimage", arena_bytes=max(needs) + 256 * 8)
    state = driver.admit(request)
    with caplog.at_level(logging.WARNING):
        driver.run([state], one_block)
    assert graphs_of(driver).num_slots == 0
    assert sum("runs without graphs" in record.message for record in caplog.records) == 1
    assert np.array_equal(driver.frames("a"), solo(family, request))


def test_what_cannot_be_captured_runs_eagerly_from_then_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(pool: GraphPool, function: Any) -> Graph:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(GraphPool, "capture", refuses)
    driver = driver_of("zimage")
    with caplog.at_level(logging.WARNING):
        driver.run([admitted(driver)], one_block)
        driver.run([admitted(driver, "b")], one_block)
    assert sum("could not be captured" in record.message for record in caplog.records) == 1
    assert_as_solo(driver)
    assert_as_solo(driver, "b")
    driver.assert_nothing_is_held()


def test_batches_of_several_rows_have_layouts_too() -> None:
    driver = driver_of("zimage")
    fields = [{"seed": 1}, {"seed": 2, "width": 32}]
    states = [admitted(driver, str(i), **each) for i, each in enumerate(fields)]
    eager = Driver(tiny_family("zimage"))
    others = [admitted(eager, str(i), **each) for i, each in enumerate(fields)]
    driver.run(states, one_block)
    eager.run(others, one_block)
    assert graphs_of(driver).num_graphs > 0
    for i in range(2):
        assert np.array_equal(driver.frames(str(i)), eager.frames(str(i)))
