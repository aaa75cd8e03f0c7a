"""Parking a diffusion request and bringing it back."""

import numpy as np
import pytest
import torch
from torch import Tensor

from hemiola.core.memory import Arena, Lease
from hemiola.core.step import Shortfall
from hemiola.tests.diffusion.driver import Driver, media_request, one_block, solo, tiny_family
from hemiola.tests.tiny_diffusion import FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_parking_between_any_two_steps_changes_no_bit(name: str) -> None:
    family = tiny_family(name)
    request = media_request(family)
    driver = Driver(family)
    state = driver.admit(request)
    while not state.is_released:
        before = state.phase
        driver.runner.park(state)
        assert (state.is_ready, state.waiting_for) == (False, "resume")
        assert state.id not in {o for o, kinds in driver.arena.ledger.owners.items() if kinds["general"]}
        driver.arena.buffer.fill_(0x5A)  # what lay there is gone, conditions too
        for lease in list(driver.arena._shared.values()):
            lease.release()
        driver.runner.resume(state)
        if before == "denoise":
            assert state.phase == "encode", "its conditions were evicted"
            driver.step([state])
        driver.step([state])
    assert np.array_equal(driver.frames("a"), solo(family, request))
    driver.assert_nothing_is_held()


def test_a_parked_state_comes_back_only_when_its_whole_need_fits() -> None:
    family = tiny_family("zimage")
    request = media_request(family)
    need = max(sum(need.general) for need in Driver(family).admit(request).job.needs)
    driver = Driver(family, arena_bytes=need + 8192)
    state = driver.admit(request)
    driver.step_until(state, "denoise")
    driver.runner.park(state)
    hog = driver.arena.lease(driver.arena.nbytes - 4096, "hog")
    assert not isinstance(hog, Shortfall)
    assert isinstance(driver.runner.resume(state), Shortfall)
    assert state.bytes_needed > 0 and state.parked is not None
    hog.release()
    assert not isinstance(driver.runner.resume(state), Shortfall)
    driver.run([state])
    assert np.array_equal(driver.frames("a"), solo(family, request))


def test_without_room_in_the_host_tier_a_state_stays_where_it_is() -> None:
    family = tiny_family("wan")
    driver = Driver(family, host_bytes=0)
    state = driver.admit(media_request(family))
    assert isinstance(driver.runner.park(state), Shortfall)
    assert state.is_ready
    driver.run([state])


def test_noise_too_is_parked_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied by the host it was written at once, over bytes that a copy to the device, enqueued before, had still to
    read, or under bytes that one from the device had still to write."""
    driver = Driver(tiny_family("wan"))
    state = driver.admit(media_request(tiny_family("wan")))
    device = torch.device("meta")  # in place of a GPU
    lease = Arena(driver.arena.nbytes, device=device).lease(state.job.state_bytes, "a")
    assert isinstance(lease, Lease) and state.noise is not None
    state.lease = lease
    monkeypatch.setattr("hemiola.diffusion.runner.to_device", Tensor.to, raising=False)
    stored: list[Tensor] = []

    def store(tensor: Tensor, owner: str) -> Shortfall:
        stored.append(tensor)
        return Shortfall(0)

    monkeypatch.setattr(driver.arena.host, "store", store)
    driver.runner.park(state)
    assert [(tensor.device.type, tensor.shape) for tensor in stored] == [("meta", state.tensors(0).shape)]


def test_an_open_step_cannot_be_parked() -> None:
    family = tiny_family("zimage")
    driver = Driver(family)
    state = driver.admit(media_request(family))
    assert state.can_park
    driver.step([state], one_block)
    assert not state.can_park
