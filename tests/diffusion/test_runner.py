"""The runner's contract: admission, leases, ends from any phase, failures, parking, shared conditions, events."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hemiola.core.errors import CannotFit, InvalidRequest
from hemiola.core.events import Finished, Image, Progress, Video
from hemiola.core.request import TextRequest
from hemiola.core.step import Batch, Blocks, Refused, Shortfall, Slot
from hemiola.diffusion.state import DiffusionState
from hemiola.tests.diffusion.driver import Driver, assert_close, media_request, one_block, solo, tiny_family
from hemiola.tests.tiny_diffusion import FAMILIES

PHASES = ["encode", "denoise", "decode"]


# Admission


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"width": 50}, "width"),
        ({"height": 0}, "height"),
        ({"num_inference_steps": 0}, "num_inference_steps"),
        ({"num_frames": 3}, "num_frames"),
        ({"guidance_scale": float("nan")}, "guidance_scale"),
        ({"negative_token_ids": {}}, "negative_token_ids"),
    ],
)
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_wrong_is_refused_by_name_before_anything_is_leased(
    name: str, fields: dict[str, Any], param: str
) -> None:
    family = tiny_family("schnell" if name == "flux" and param == "negative_token_ids" else name)
    driver = Driver(family)
    request = media_request(family)
    changed = type(request)(**{**{f: getattr(request, f) for f in request.__struct_fields__}, **fields})
    outcome = driver.runner.admit(changed)
    assert isinstance(outcome, Refused) and isinstance(outcome.error, InvalidRequest)
    assert outcome.error.param == param
    assert not driver.arena.ledger.owners


def test_a_text_request_is_refused() -> None:
    outcome = Driver(tiny_family("zimage")).runner.admit(TextRequest(id="t", model="m", token_ids=(1,)))
    assert isinstance(outcome, Refused) and isinstance(outcome.error, InvalidRequest)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_can_never_fit_is_refused_and_what_does_not_fit_now_is_queued(name: str) -> None:
    family = tiny_family(name)
    request = media_request(family)
    needs = [sum(need.general) for need in Driver(family).admit(request).job.needs]
    small = Driver(family, arena_bytes=max(needs) // 2)
    outcome = small.runner.admit(request)
    assert isinstance(outcome, Refused) and isinstance(outcome.error, CannotFit)
    assert outcome.error.bytes_needed > outcome.error.bytes_available

    tight = Driver(family, arena_bytes=max(needs) + 1024)  # for alignment
    first = tight.admit(request)
    version = tight.arena.version
    assert isinstance(tight.runner.admit(media_request(family, "b")), Shortfall)
    assert tight.arena.version == version, "asking in vain must not look like news"
    tight.run([first], one_block)
    assert isinstance(tight.runner.admit(media_request(family, "b")), DiffusionState)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_declared_need_is_enough_for_every_phase_cut_anywhere(name: str) -> None:
    family = tiny_family(name)
    request = media_request(family)
    needs = [sum(need.general) for need in Driver(family).admit(request).job.needs]
    slack = 256 * 40  # leases start at multiples of 256
    driver = Driver(family, arena_bytes=max(needs) + slack)
    driver.run([driver.admit(request)], one_block)
    assert np.array_equal(driver.frames("a"), solo(family, request))


# Events


@pytest.mark.parametrize("name", FAMILIES)
def test_events_are_progress_per_step_then_the_result_then_finished(name: str) -> None:
    family = tiny_family(name)
    driver = Driver(family)
    driver.run([driver.admit(media_request(family, pixel_type="uint8", fps=12))], one_block)
    *progress, result, final = driver.events
    assert progress == [Progress("a", "denoise", done, 3) for done in (1, 2, 3)]
    assert isinstance(result, Video if name == "wan" else Image)
    pixels = result.pixels
    assert (pixels.height, pixels.width, pixels.pixel_type) == (32, 48, "uint8")
    assert pixels.num_frames == (5 if name == "wan" else 1)
    assert len(pixels.data) == pixels.num_frames * 32 * 48 * 3
    assert not isinstance(result, Video) or result.fps == 12
    assert isinstance(final, Finished) and (final.reason, final.usage.num_steps) == ("done", 3)
    assert final.usage.prompt_tokens > 0


def test_uint8_pixels_are_the_rounded_float_ones() -> None:
    family = tiny_family("zimage")
    as_float = solo(family, media_request(family))
    as_bytes = solo(family, media_request(family, pixel_type="uint8"))
    assert np.array_equal(as_bytes, (as_float * 255).round().astype(np.uint8))


@pytest.mark.parametrize("name", FAMILIES)
def test_remaining_work_shrinks_with_every_group_down_to_nothing(name: str) -> None:
    family = tiny_family(name)
    driver = Driver(family)
    state = driver.admit(media_request(family))
    total = float("inf")
    while not state.is_released:
        blocks = sum(work.blocks for _, work in state.remaining)
        assert blocks < total
        total = blocks
        assert state.remaining[0][0] == state.phase
        driver.step([state], one_block)
    assert total == 1


# Ends


def walk(driver: Driver, state: DiffusionState) -> Iterator[str]:
    """Before every block from admission to the end: which phase it belongs to."""
    while not state.is_released:
        yield f"{state.phase} {state.num_done} {state.next_block}"
        if not state.is_released:
            driver.step([state], one_block)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_release_before_any_block_frees_every_byte(name: str) -> None:
    family = tiny_family(name)
    request = media_request(family, num_inference_steps=2)
    driver = Driver(family)
    total = len(list(walk(driver, driver.admit(request))))
    for stop_at in range(total):
        driver = Driver(family)
        state = driver.admit(request)
        for num, where in enumerate(walk(driver, state)):
            if num == stop_at:
                driver.runner.release(state)
                driver.runner.release(state)
                driver.assert_nothing_is_held()
                assert not any(isinstance(e, Finished) for e in driver.events), where
                break


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_that_ends_in_an_open_batch_leaves_the_others_as_they_were(name: str, phase: str) -> None:
    family = tiny_family(name)
    requests = [media_request(family, str(i), f"fox {i}", seed=i, negative=f"{i}") for i in range(3)]
    results = []
    for ends in (False, True):
        driver = Driver(family)
        states = [driver.admit(request) for request in requests]
        while states[0].phase != phase:
            driver.step(states)
        driver.step(states, one_block)
        assert states[1].open is states[0].open is not None
        if ends:
            driver.runner.release(states[1])
        driver.run(states, one_block)
        results.append([driver.frames(request.id) for request in (requests[0], requests[2])])
        driver.assert_nothing_is_held()
        assert (driver.progress("1") == [1, 2, 3]) is not (ends and phase != "decode")
    for full, ended in zip(*results, strict=True):
        assert_close(full, ended, 0.0 if phase == "decode" else 1e-5)  # later denoise batches have a row less


@pytest.mark.parametrize("phase", PHASES)
def test_when_all_rows_are_dead_the_batch_is_dropped_at_once(phase: str) -> None:
    family = tiny_family("zimage")
    driver = Driver(family)
    states = [driver.admit(media_request(family, str(i), f"fox {i}")) for i in range(2)]
    while states[0].phase != phase:
        driver.step(states)
    driver.step(states, one_block)
    for state in states:
        driver.runner.release(state)
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("name", FAMILIES)
def test_stop_gives_the_good_end(name: str) -> None:
    family = tiny_family(name)
    driver = Driver(family)
    state = driver.admit(media_request(family))
    driver.step_until(state, "denoise")
    [final] = driver.runner.stop(state)
    assert isinstance(final, Finished) and final.reason == "stop"
    driver.runner.release(state)
    driver.assert_nothing_is_held()


# Failures


class Broken(RuntimeError):
    """Raised by tests in the middle of a block."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_failure_in_any_block_takes_back_the_whole_step_and_a_second_try_gives_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = tiny_family(name)
    request = media_request(family, num_inference_steps=2)
    expected = solo(family, request)
    driver = Driver(family)
    total = len(list(walk(driver, driver.admit(request))))
    for fail_at in range(total):
        driver = Driver(family)
        state = driver.admit(request)
        for num, where in enumerate(walk(driver, state)):
            if num == fail_at:
                phase, done = state.phase, state.num_done
                batch = driver.plan([state], one_block)
                break_block(monkeypatch, batch)
                with pytest.raises(Broken):
                    driver.launch(batch)
                assert (state.phase, state.num_done, state.next_block, state.open) == (phase, done, 0, None), where
        assert np.array_equal(driver.frames("a"), expected)
        driver.assert_nothing_is_held()


def break_block(monkeypatch: pytest.MonkeyPatch, batch: Batch) -> None:
    """The next block of the batch raises when it has run."""
    opened = batch.payload.open
    index = batch.payload.first

    def run(carry: Any, original: Any = opened.blocks[index]) -> None:
        original.run(carry)
        raise Broken

    blocks = list(opened.blocks)
    blocks[index] = type(blocks[index])(run, blocks[index].work)
    monkeypatch.setattr(opened, "blocks", blocks)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_that_failed_runs_on_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = tiny_family(name)
    requests = [media_request(family, str(i), f"fox {i}", seed=i) for i in range(2)]
    driver = Driver(family)
    states = [driver.admit(request) for request in requests]
    while states[0].phase != "denoise":
        driver.step(states)
    driver.step(states, one_block)
    batch = driver.plan(states, one_block)
    break_block(monkeypatch, batch)
    with pytest.raises(Broken):
        driver.launch(batch)
    driver.runner.release(states[0])
    driver.run([states[1]])
    assert np.array_equal(driver.frames("1"), solo(family, requests[1]))
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_launched_step_can_be_taken_back(name: str, phase: str) -> None:
    """As when collecting it fails: the last group has advanced the state, and cancel undoes it."""
    family = tiny_family(name)
    request = media_request(family)
    driver = Driver(family)
    state = driver.admit(request)
    driver.step_until(state, phase)
    done = state.num_done
    batch = driver.plan([state])
    driver.runner.launch(batch, Slot("media", 1.0, 10_000, 0.0))
    driver.runner.cancel(batch)
    assert state.num_done == done and not state.is_decoded and state.open is None
    driver.run([state])
    assert np.array_equal(driver.frames("a"), solo(family, request))
    driver.assert_nothing_is_held()


# Conditions and shortfalls


def test_equal_prompts_are_encoded_once() -> None:
    family = tiny_family("zimage")
    driver = Driver(family)
    first = driver.admit(media_request(family, "a"))
    driver.step_until(first, "denoise")
    second = driver.admit(media_request(family, "b", seed=2))
    assert second.phase == "denoise"
    third = driver.admit(media_request(family, "c", "another", seed=3))
    assert third.phase == "encode" and len(third.missing) == 1
    driver.run([first, second, third])
    assert np.array_equal(driver.frames("c"), solo(family, media_request(family, "c", "another", seed=3)))
    driver.assert_nothing_is_held()


def test_a_request_waits_for_a_condition_that_another_computes_and_computes_it_if_that_one_ends() -> None:
    family = tiny_family("zimage")
    for ends in (False, True):
        driver = Driver(family)
        maker = driver.admit(media_request(family, "a"))
        driver.step([maker], one_block)
        waiter = driver.admit(media_request(family, "b"))
        assert (waiter.is_ready, waiter.waiting_for) == (False, "encoding")
        if ends:
            driver.runner.release(maker)
            assert waiter.is_ready and waiter.phase == "encode"
        else:
            driver.step([maker])
            assert waiter.is_ready and waiter.phase == "denoise"
        driver.run([waiter])
        driver.runner.release(maker)
        driver.assert_nothing_is_held()


def test_a_short_plan_leases_nothing_and_a_batch_shrinks_to_what_fits() -> None:
    family = tiny_family("zimage")
    driver = Driver(family, arena_bytes=1 << 20)
    states = [driver.admit(media_request(family, str(i), seed=i)) for i in range(2)]
    while states[0].phase != "denoise":
        driver.step(states)
    carry = states[0].steps.carry_bytes
    room = driver.arena.lease(carry * 3 // 2, "room")
    assert not isinstance(room, Shortfall)
    free = driver.arena.nbytes
    while free >= 256:
        if isinstance(driver.arena.lease(free, "hog"), Shortfall):
            free //= 2
    before = dict(driver.arena.ledger.owners)
    offered = states[0].cut
    assert isinstance(driver.runner.plan(states, Blocks(0, 0)), Shortfall)
    assert dict(driver.arena.ledger.owners) == before and all(state.open is None for state in states)
    room.release()
    batch = driver.plan(states, one_block)
    assert len(batch.states) == 1 and batch.quantum == Blocks(offered.first, offered.first)
