"""What a model's files say of sampling is checked when the model is opened, not in requests that never named it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TopPLogitsWarper

from hemiola.api.front.terms import CallTerms
from hemiola.api.front.text import TextFront
from hemiola.core.errors import CorruptWeights
from hemiola.core.request import Sampling
from hemiola.kernels.sampling import Draw
from hemiola.kernels.sampling.torch_reference import TorchSampler
from hemiola.tests.api.front.test_context import LLAMA, folder_of

CONFIG = LLAMA | {"max_position_embeddings": 96}


def front_of(folder: Path, generation: object, **config: Any) -> TextFront:
    folder_of(folder, CONFIG | config)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return TextFront("chat", folder)


def sampling_of(front: TextFront, **asked: Any) -> Sampling:
    return front.completion_requests([1, 2], CallTerms(), **asked)[0].sampling


@pytest.mark.parametrize(
    ("generation", "says"),
    [
        ({"temperature": -1}, "temperature is -1. Allowed: a number from 0 to 2."),
        ({"temperature": "hot"}, "temperature is 'hot'. "),
        ({"temperature": float("nan")}, "temperature is nan. "),
        ({"temperature": False}, "temperature is False. "),
        ({"temperature": []}, "temperature is []. "),
        ({"top_p": -0.5}, "top_p is -0.5. Allowed: a number above 0 and at most 1."),
        ({"top_p": float("nan")}, "top_p is nan. "),
        ({"top_p": [0.9]}, "top_p is [0.9]. "),
        ({"top_k": "x"}, "top_k is 'x'. Allowed: a whole number from -1 to 2,147,483,648."),
        ({"top_k": -2}, "top_k is -2. "),
        ({"top_k": -0.5}, "top_k is -0.5. "),
        ({"top_k": float("nan")}, "top_k is nan. "),
        ({"do_sample": "no"}, "do_sample is 'no'. Allowed: true or false."),
        ({"do_sample": 2}, "do_sample is 2. "),
        ({"do_sample": []}, "do_sample is []. "),
        ({"eos_token_id": "end"}, "eos_token_id is 'end'. Allowed: a token id of at most "),
        ({"eos_token_id": [2, "end"]}, "eos_token_id is [2, 'end']. "),
        ({"eos_token_id": 2**70}, "eos_token_id is 1180591620717411303424. "),
        ({"eos_token_id": True}, "eos_token_id is True. "),
        ({"eos_token_id": 2.5}, "eos_token_id is 2.5. "),
        ({"eos_token_id": float("inf")}, "eos_token_id is inf. "),
        ({"eos_token_id": {"end": 2}}, "eos_token_id is {'end': 2}. "),
    ],
)
def test_values_that_mean_nothing_are_named_when_the_model_is_opened(
    tmp_path: Path, generation: dict[str, Any], says: str
) -> None:
    """Every request failed, under a name that its user had not sent; false and [] were taken for the usual value."""
    with pytest.raises(CorruptWeights) as refused:
        front_of(tmp_path, generation)
    assert refused.value.message.startswith(f"{tmp_path / 'generation_config.json'}: {says}")
    assert " Allowed: " in refused.value.message


@pytest.mark.parametrize("generation", [[], "warm", None])
def test_a_file_that_holds_no_object_is_named(tmp_path: Path, generation: object) -> None:
    with pytest.raises(CorruptWeights, match=r"generation_config\.json has to hold a JSON object"):
        front_of(tmp_path, generation)


@pytest.mark.parametrize("file", ["generation_config.json", "tokenizer_config.json", "config.json"])
def test_a_file_that_is_no_json_is_named(tmp_path: Path, file: str) -> None:
    """It was the traceback of a parser."""
    folder_of(tmp_path, CONFIG)
    (tmp_path / file).write_text("{")
    with pytest.raises(CorruptWeights, match=rf"{file} cannot be read: ".replace(".", r"\.")):
        TextFront("chat", tmp_path)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({}, (1.0, 1.0, 0)),
        ({"temperature": None, "top_p": None, "top_k": None, "do_sample": None}, (1.0, 1.0, 0)),
        ({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True}, (0.6, 0.95, 20)),
        ({"temperature": 2, "top_p": 1, "top_k": -1}, (2.0, 1.0, 0)),
        ({"temperature": 0}, (0.0, 1.0, 0)),
        ({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": False}, (0.0, 1.0, 0)),
        ({"top_k": 50.0}, (1.0, 1.0, 50)),
        ({"top_k": -1.0}, (1.0, 1.0, 0)),
        ({"temperature": 0.6, "do_sample": 1}, (0.6, 1.0, 0)),
        ({"temperature": 0.6, "do_sample": 0}, (0.0, 1.0, 0)),
    ],
)
def test_requests_that_say_nothing_are_sampled_as_the_model_says(
    tmp_path: Path, generation: dict[str, Any], expected: tuple[float, float, int]
) -> None:
    """A temperature of 0 was taken for 1, and a do_sample of null for false; a top_k of 50.0 and a do_sample of 1 were
    refused.
    """
    front = front_of(tmp_path, generation)
    sampling = sampling_of(front)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == expected
    assert isinstance(sampling.top_k, int)
    asked = sampling_of(front, temperature=0.5, top_p=0.25, top_k=7)
    assert (asked.temperature, asked.top_p, asked.top_k) == (0.5, 0.25, 7)


@pytest.mark.parametrize(
    ("field", "value", "used"),
    [
        ("temperature", 2.5, 2.0),
        ("temperature", float("inf"), 2.0),
        ("top_p", 0, 1e-6),
        ("top_p", 2, 1.0),
        ("top_k", 2**40, 2**31),
        ("top_k", float("inf"), 2**31),
        ("top_k", 1.75, 2),
        ("top_k", 0.25, 1),
    ],
)
def test_the_nearest_is_used_for_what_requests_may_not_ask_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, value: float, used: float
) -> None:
    """Models that run elsewhere were not opened."""
    with caplog.at_level(logging.WARNING):
        front = front_of(tmp_path, {field: value})
    [record] = caplog.records
    assert record.getMessage().startswith(f"{tmp_path / 'generation_config.json'}: {field} is {value!r}. Allowed: ")
    assert record.getMessage().endswith(f" The nearest is used: {used}.")
    assert getattr(sampling_of(front), field) == used


def test_a_top_p_of_0_keeps_the_tokens_that_transformers_keeps(tmp_path: Path) -> None:
    """It failed; the bound of requests is above 0, so that a small one has to mean the same."""
    logits_RV = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    kept_RV = TopPLogitsWarper(0.0)(torch.empty(0), logits_RV).isfinite()
    top_p_R = torch.full((64,), sampling_of(front_of(tmp_path, {"top_p": 0})).top_p)
    uniform_R = torch.linspace(0, 0.999, 64, dtype=torch.float64)
    drawn_R = TorchSampler.sample(
        logits_RV, Draw(torch.ones(64), top_p_R, torch.zeros(64, dtype=torch.int64), uniform_R)
    )
    assert torch.equal(kept_RV.nonzero()[:, 1], drawn_R)


@pytest.mark.parametrize(
    ("field", "value"), [("temperature", -1), ("temperature", 2.5), ("top_p", 0.0), ("top_k", "x")]
)
def test_what_a_greedy_model_does_not_use_is_only_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, value: object
) -> None:
    """Models are published so, and run everywhere."""
    with caplog.at_level(logging.WARNING):
        front = front_of(tmp_path, {"do_sample": False, field: value})
    [record] = caplog.records
    assert f"{field} is {value!r}." in record.getMessage()
    assert record.getMessage().endswith(" It is not used, for do_sample is false.")
    sampling = sampling_of(front)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 1.0, 0)


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        ({"eos_token_id": 5}, {"eos_token_id": 6}, (5,)),
        ({"eos_token_id": [5, 7]}, {}, (5, 7)),
        ({"eos_token_id": [5, None]}, {}, (5,)),
        ({"eos_token_id": None}, {"eos_token_id": 6}, (6,)),
        ({}, {"eos_token_id": [6, 8]}, (6, 8)),
        ({}, {"text_config": {"max_position_embeddings": 96, "eos_token_id": 9}}, (9,)),
        ({"eos_token_id": []}, {"eos_token_id": 6}, (6,)),
        ({"eos_token_id": [None]}, {"eos_token_id": 6}, (6,)),
        ({"eos_token_id": -1}, {"eos_token_id": 6}, (6,)),
        ({"eos_token_id": [-1, None]}, {"eos_token_id": 6}, (6,)),
        ({"eos_token_id": -1}, {"text_config": {"max_position_embeddings": 96, "eos_token_id": 9}}, (9,)),
        ({"eos_token_id": -1}, {"eos_token_id": -1}, ()),
        ({"eos_token_id": 2.0}, {}, (2,)),
        ({"eos_token_id": [5.0, 7]}, {}, (5, 7)),
        ({"eos_token_id": -1.0}, {"eos_token_id": 6.0}, (6,)),
        ({}, {}, ()),
    ],
)
def test_a_turn_ends_as_the_first_file_says_that_says_anything(
    tmp_path: Path, generation: dict[str, Any], config: dict[str, Any], ends: tuple[int, ...]
) -> None:
    """A null or -1 in the generation config hid what the config says, so that no answer ended; a null in a list and a
    whole number written as a float failed all.
    """
    front = front_of(tmp_path, generation, **config)
    assert front.end_ids == sampling_of(front).stop_token_ids == ends
    assert all(isinstance(each, int) for each in front.end_ids)


def test_an_end_that_no_token_is_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Some configs have -1 for "none"."""
    with caplog.at_level(logging.WARNING):
        front = front_of(tmp_path, {"eos_token_id": [-1, 5]})
    assert front.end_ids == (5,)
    assert "generation_config.json: eos_token_id has -1." in caplog.text


def test_an_end_that_no_token_is_is_warned_of_once_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A config without a part about text is its own."""
    with caplog.at_level(logging.WARNING):
        front_of(tmp_path, {"eos_token_id": -1}, eos_token_id=-1)
    named = [record.getMessage().partition(": ")[0] for record in caplog.records]
    assert named == [str(tmp_path / "generation_config.json"), str(tmp_path / "config.json")]
