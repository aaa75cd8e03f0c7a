"""Pipelines on CUDA: as on a CPU, whatever is captured, cut, interleaved, ended, parked or moved to other SMs."""

from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from hemiola.core.request import MediaRequest
from hemiola.diffusion.state import DiffusionState
from hemiola.tests.diffusion.driver import Cut, media_request, one_block, solo, whole
from hemiola.tests.diffusion.test_parity import theirs
from hemiola.tests.gpu.diffusion.cuda_driver import CudaDriver
from hemiola.tests.gpu.diffusion.pipelines import NAMES, family, pipeline_dir

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

NUM_STEPS = 6
DTYPES = (torch.float32, torch.bfloat16)


def psnr(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Decibels, of frames in [0, 1]."""
    return float(-10 * np.log10(max(np.mean((a - b) ** 2), 1e-12)))


def driver_of(name: str, dtype: torch.dtype = torch.bfloat16, *, graphs: bool = True) -> CudaDriver:
    return CudaDriver(family(name, dtype, "cuda:0"), graphs=graphs)


def asked(name: str, request_id: str = "a", **fields: Any) -> MediaRequest:
    exact = family(name, torch.float32, "cpu")
    return media_request(exact, request_id, **{"num_inference_steps": NUM_STEPS, **fields})


def eager(name: str, request: MediaRequest, dtype: torch.dtype = torch.bfloat16) -> NDArray[Any]:
    """What the request gives alone, without graphs."""
    driver = driver_of(name, dtype, graphs=False)
    driver.run([driver.admit(request)])
    driver.assert_nothing_is_held()
    return driver.frames(request.id)


@pytest.mark.parametrize("cut", [whole, one_block])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_graphs_give_the_bits_of_eager_blocks(name: str, dtype: torch.dtype, cut: Cut) -> None:
    driver = driver_of(name, dtype)
    for request in (asked(name, "a"), asked(name, "b", seed=3)):
        driver.run([driver.admit(request)], cut)
        assert np.array_equal(driver.frames(request.id), eager(name, request, dtype))
    graphs = driver.runner.graphs
    assert graphs is not None and graphs.num_slots == 1 and graphs.num_graphs > 0
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_those_of_a_cpu(name: str) -> None:
    request = asked(name, num_inference_steps=4)
    driver = driver_of(name, torch.float32)
    driver.run([driver.admit(request)])
    assert psnr(driver.frames("a"), solo(family(name, torch.float32, "cpu"), request)) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_frames_in_bfloat16_are_as_near_to_float32_as_those_of_diffusers(name: str) -> None:
    """How near that is depends on weights and on a library's kernels: some 20 dB for random FLUX, 40 for others."""
    exact = family(name, torch.float32, "cpu")
    pipeline = DiffusionPipeline.from_pretrained(pipeline_dir(name), torch_dtype=torch.bfloat16).to("cuda:0")
    ours, others = [], []
    for seed in range(3):
        request = asked(name, num_inference_steps=4, seed=seed)
        wanted = solo(exact, request)
        ours.append(psnr(eager(name, request), wanted))
        others.append(psnr(theirs(pipeline, exact, request, "a red fox", "blue"), wanted))
    assert mean(ours) >= mean(others) - 1.0, f"{ours}, {others} dB"


@pytest.mark.parametrize("name", NAMES)
def test_interleaved_requests_of_different_shapes_give_what_they_give_alone(name: str) -> None:
    requests = [asked(name, "a", seed=1), asked(name, "b", seed=2, width=32), asked(name, "c", seed=3)]
    driver = driver_of(name)
    states = [driver.admit(request) for request in requests]
    while waiting := [state for state in states if state.is_ready]:
        for state in waiting:
            if state.is_ready:
                driver.step([state], one_block)
    driver.settle()
    for request in requests:
        assert np.array_equal(driver.frames(request.id), eager(name, request))
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("name", NAMES)
def test_an_end_between_groups_in_flight_leaks_nothing_and_harms_nobody(name: str) -> None:
    driver = driver_of(name)
    request = asked(name)
    driver.run([driver.admit(request)])
    for phase in ("encode", "denoise", "decode"):
        victim, mate = driver.admit(asked(name, "v", prompt="a house", seed=5)), driver.admit(asked(name, f"m-{phase}"))
        while victim.phase != phase:
            driver.step([victim], one_block)
        driver.step([victim], one_block)
        driver.on_lane.release(victim)
        driver.run([mate], one_block)
        driver.assert_nothing_is_held()
        assert np.array_equal(driver.frames(mate.id), driver.frames("a"))


@pytest.mark.parametrize("name", NAMES)
def test_a_change_of_the_share_between_groups_changes_nothing(name: str) -> None:
    request = asked(name, num_inference_steps=10)
    driver = driver_of(name)
    state = driver.admit(request)
    num = 0
    while state.is_ready:
        driver.sm_share = 0.5 if num // 3 % 2 else 1.0
        num += 1
        driver.step([state], one_block)
    driver.settle()
    assert psnr(driver.frames("a"), eager(name, request)) >= 40
    driver.assert_nothing_is_held()


@pytest.mark.parametrize("name", NAMES)
def test_parking_while_others_are_in_flight_changes_no_bit(name: str) -> None:
    request, other = asked(name), asked(name, "b", seed=4)
    driver = driver_of(name)
    state, mate = driver.admit(request), driver.admit(other)
    while not state.is_released and state.is_ready:
        driver.step([state], one_block)
        if state.open is None and not state.is_decoded:
            park_and_resume(driver, state, mate)
    driver.run([mate])
    for each in (request, other):
        assert np.array_equal(driver.frames(each.id), eager(name, each))
    driver.assert_nothing_is_held()


def park_and_resume(driver: CudaDriver, state: DiffusionState, mate: DiffusionState) -> None:
    driver.settle()
    if mate.is_ready:
        driver.step([mate], one_block)
    driver.on_lane.park(state)
    if mate.is_ready:
        driver.step([mate], one_block)
    driver.on_lane.resume(state)


def test_no_step_waits_for_the_device() -> None:
    """Behind a kernel of a tenth of a second every launch of a request returns while that one still runs."""
    driver = driver_of("medium-zimage")
    driver.run([driver.admit(asked("medium-zimage", "warm"))])
    with driver.streams.on("media"):
        torch.cuda._sleep(2_000_000_000)
        busy = torch.cuda.Event()
        busy.record()
    state = driver.admit(asked("medium-zimage", "b", prompt="another prompt", num_inference_steps=2))
    while state.is_ready:
        driver.enqueue(driver.plan([state]))
    assert not busy.query(), "Some launch waited for the device."
    driver.assert_nothing_is_held()
