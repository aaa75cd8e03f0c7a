"""A pipeline whose text encoder is another served model, reached through `core.text_encoder.TextEncoder`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3Model

from hemiola.core.errors import StepFailed, UnsupportedModel
from hemiola.core.request import MediaRequest, Terms
from hemiola.diffusion.edge import load_tokenizers
from hemiola.diffusion.families import Family, load_family
from hemiola.diffusion.warming import run_request, usual_request
from hemiola.tests.diffusion.driver import Driver, media_request, one_block, solo, tiny_family
from hemiola.tests.tiny_diffusion import tiny_shared_encoder_dirs


@dataclass
class Promise:
    """An encoding that a test completes when it likes."""

    token_ids: tuple[int, ...]
    parent: Terms
    is_done: bool = False
    error: Exception | None = None
    result: torch.Tensor | None = None
    is_released: bool = False

    @property
    def hidden_states(self) -> torch.Tensor:
        assert self.is_done and self.result is not None and not self.is_released
        return self.result

    def release(self) -> None:
        self.is_released = True


@dataclass
class Encoder:
    """A language model that computes hidden states when told to."""

    model: Any
    promises: list[Promise] = field(default_factory=list)
    hidden_size: int = 32

    def encode(self, token_ids: Sequence[int], hidden_state: int, parent: Terms) -> Promise:
        assert hidden_state == -2
        self.promises.append(Promise(tuple(token_ids), parent))
        return self.promises[-1]

    @torch.no_grad()
    def complete(self) -> None:
        for promise in self.promises:
            output = self.model(torch.tensor([promise.token_ids]), output_hidden_states=True)
            promise.result, promise.is_done = output.hidden_states[-2][0], True


@pytest.fixture(scope="module")
def family() -> Family:
    return load_family(tiny_shared_encoder_dirs()[0])


@pytest.fixture
def encoder() -> Encoder:
    return Encoder(Qwen3Model.from_pretrained(tiny_shared_encoder_dirs()[1]).eval())


def request_for(family: Family, request_id: str = "a", **fields: Any) -> MediaRequest:
    """The same as with the pipeline's own encoder, for the prompts become the same ids."""
    request = media_request(tiny_family("zimage"), request_id, **fields)
    tokenizers = load_tokenizers(family.edge, tiny_shared_encoder_dirs()[1])
    assert family.edge.tokenize("a red fox", "blue", tokenizers).token_ids == request.token_ids
    return request


def test_defaults_of_the_model_come_from_its_own_file(family: Family) -> None:
    assert family.edge.defaults.num_inference_steps == 4
    assert family.edge.files.shared_encoder is not None


def test_without_the_shared_model_the_pipeline_cannot_be_served(family: Family) -> None:
    with pytest.raises(UnsupportedModel, match=r"\.\./chat"):
        Driver(family)


def test_a_request_is_not_ready_before_it_holds_its_hidden_states_and_then_equals_the_own_encoder(
    family: Family, encoder: Encoder
) -> None:
    driver = Driver(family, text_encoders={"text_encoder": encoder})
    request = request_for(family)
    state = driver.admit(request)
    assert (state.is_ready, state.waiting_for) == (False, "encoding")
    assert [p.token_ids for p in encoder.promises] == list(family.prompts(request))
    assert all(p.parent is request for p in encoder.promises)
    encoder.complete()
    assert state.is_ready and state.phase == "encode"
    driver.run([state], one_block)
    assert all(p.is_released for p in encoder.promises)
    assert np.array_equal(driver.frames("a"), solo(tiny_family("zimage"), request))
    driver.assert_nothing_is_held()


def test_conditions_are_shared_so_that_the_encoder_is_asked_once(family: Family, encoder: Encoder) -> None:
    driver = Driver(family, text_encoders={"text_encoder": encoder})
    first = driver.admit(request_for(family))
    encoder.complete()
    driver.step_until(first, "denoise")
    second = driver.admit(request_for(family, "b", seed=4))
    assert second.is_ready and second.phase == "denoise" and len(encoder.promises) == 2


def test_a_request_that_the_encoder_raises_for_leaves_nothing_behind(
    family: Family, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(family, text_encoders={"text_encoder": encoder})

    def encode(token_ids: Sequence[int], hidden_state: int, parent: Terms) -> Promise:
        raise RuntimeError("no luck")

    monkeypatch.setattr(encoder, "encode", encode)
    with pytest.raises(RuntimeError, match="no luck"):
        driver.runner.admit(request_for(family))
    driver.assert_nothing_is_held()


def test_a_released_request_gives_up_its_encodings(family: Family, encoder: Encoder) -> None:
    driver = Driver(family, text_encoders={"text_encoder": encoder})
    driver.runner.release(driver.admit(request_for(family)))
    assert encoder.promises and all(p.is_released for p in encoder.promises)
    driver.assert_nothing_is_held()


def test_a_failed_encoding_fails_the_step_of_its_request(family: Family, encoder: Encoder) -> None:
    driver = Driver(family, text_encoders={"text_encoder": encoder})
    state = driver.admit(request_for(family))
    for promise in encoder.promises:
        promise.is_done, promise.error = True, RuntimeError("no luck")
    with pytest.raises(StepFailed, match="no luck"):
        driver.step([state])
    driver.runner.release(state)
    driver.assert_nothing_is_held()


def test_a_parked_request_asks_again_for_what_was_evicted(family: Family, encoder: Encoder) -> None:
    driver = Driver(family, text_encoders={"text_encoder": encoder})
    request = request_for(family)
    state = driver.admit(request)
    driver.runner.park(state)
    assert all(p.is_released for p in encoder.promises)
    encoder.promises.clear()
    driver.runner.resume(state)
    assert len(encoder.promises) == 2 and not state.is_ready
    encoder.complete()
    driver.run([state])
    assert np.array_equal(driver.frames("a"), solo(tiny_family("zimage"), request))


def test_warming_up_makes_hidden_states_up_and_lets_go_of_those_it_asked_for(family: Family, encoder: Encoder) -> None:
    driver = Driver(family, text_encoders={"text_encoder": encoder})
    usual = usual_request(family.edge, "m")
    fields = {field: getattr(usual, field) for field in usual.__struct_fields__}
    run_request(driver.runner, MediaRequest(**{**fields, "width": 32, "height": 32}), 1.0)
    assert encoder.promises and all(promise.is_released for promise in encoder.promises)
    assert not driver.arena.ledger.owners
