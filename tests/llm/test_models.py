"""Forwards over a flattened batch give the logits of the transformers library, for our decoder and the generic path."""

import pytest
import torch

from hemiola.kernels.attention.ragged_torch import TorchRaggedAttention
from hemiola.llm.attend import RaggedAttend
from hemiola.llm.loading import load_model
from hemiola.llm.models.base import hidden_state_index
from hemiola.llm.models.decoder import Decoder
from hemiola.llm.models.transformers_decoder import TransformersDecoder
from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import Driver, MakeRunner, ask

LENS = [40, 1, 23]
PROMPTS = [tiny.token_ids(length, seed=length) for length in LENS]
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", [*tiny.OWN, *tiny.GENERIC])
def test_logits_equal_those_of_transformers(name: str) -> None:
    model = load_model(tiny.folder_of(name), dtype=torch.float32, device=CPU)
    assert isinstance(model, Decoder if name in tiny.OWN else TransformersDecoder)
    ids = torch.tensor([token for prompt in PROMPTS for token in prompt])
    positions = torch.cat([torch.arange(length) for length in LENS])
    expected = torch.cat([tiny.reference_logits(name, prompt) for prompt in PROMPTS])
    with torch.inference_mode():
        attend = RaggedAttend(TorchRaggedAttention(), LENS)
        every = model.forward(ids, positions, attend, None)
        some = model.forward(ids, positions, attend, torch.tensor([3, 39, 40, 63]))
        none = model.forward(ids, positions, attend, torch.tensor([], dtype=torch.int64))
    assert (every - expected).abs().max() <= 1e-4
    assert (some - expected[[3, 39, 40, 63]]).abs().max() <= 1e-4
    assert none.shape == (0, tiny.VOCAB_SIZE)
    # The reference is no constant that any model would match.
    assert expected.std() > 0.05 and (expected[1:] - expected[:-1]).abs().max() > 0.05


@pytest.mark.parametrize("name", [*tiny.OWN, "gemma3_text", "gpt_oss"])
def test_cutting_and_batching_change_logits_by_rounding_only(make_runner: MakeRunner, name: str) -> None:
    def likeliest(driver: Driver, id: str) -> list[float]:
        return [one.logprob for event in driver.events[id][:-1] for one in event.top_logprobs]

    alone = Driver(make_runner(name))
    tokens = alone.run(ask("a", PROMPTS[0], max_tokens=8, logprobs=20))["a"]
    crowd = Driver(make_runner(name), quantum=7)
    others = [ask(f"o{i}", prompt, max_tokens=12) for i, prompt in enumerate(PROMPTS[1:])]
    assert crowd.run(others[0], ask("a", PROMPTS[0], max_tokens=8, logprobs=20), others[1])["a"] == tokens
    assert likeliest(crowd, "a") == pytest.approx(likeliest(alone, "a"), abs=1e-5)


def test_hidden_states_are_counted_as_in_a_list() -> None:
    shape = load_model(tiny.folder_of("qwen3"), dtype=torch.float32, device=CPU).shape
    assert [hidden_state_index(shape, i) for i in (0, 3, -1, -4)] == [0, 3, 3, 0]
    for wrong in (4, -5):
        with pytest.raises(ValueError, match=f"no hidden state {wrong}"):
            hidden_state_index(shape, wrong)
