"""How long a context is, by whatever name a config says it; the edge and the engine never differ."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from hemiola.api.front.terms import CallTerms
from hemiola.api.front.text import TextFront
from hemiola.core.errors import ContextTooLong, UnsupportedModel
from hemiola.core.hub import context_len
from hemiola.llm.loading import load_model
from hemiola.tests.engine import models

LLAMA = {
    "model_type": "llama", "vocab_size": 264, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "vocab_size": 264, "n_embd": 16, "n_layer": 2, "n_head": 2}
DBRX = {
    "model_type": "dbrx", "vocab_size": 264, "d_model": 16, "n_heads": 2, "n_layers": 2,
    "attn_config": {"kv_n_heads": 1, "rope_theta": 1e4, "clip_qkv": 8},
    "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 2, "moe_top_k": 1},
}  # fmt: skip
TEXT = {**LLAMA, "model_type": "gemma3_text", "head_dim": 8}
VISION = {
    "model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
}  # fmt: skip
GEMMA3 = {"model_type": "gemma3", "vision_config": VISION, "mm_tokens_per_image": 4, "image_token_id": 9}


def folder_of(to: Path, config: dict[str, Any], tokenizer: dict[str, Any] | None = None) -> Path:
    """A folder with a tokenizer that fits, and no weights."""
    for file in models.folder("chat").glob("*token*"):
        to.mkdir(exist_ok=True)
        shutil.copy(file, to)
    path = to / "tokenizer_config.json"
    told = json.loads(path.read_text())
    told.pop("model_max_length", None)
    path.write_text(json.dumps(told | (tokenizer or {})))
    (to / "config.json").write_text(json.dumps(config))
    return to


@pytest.mark.parametrize(
    ("config", "tokenizer", "length"),
    [
        (LLAMA | {"max_position_embeddings": 96}, {"model_max_length": 64}, 96),
        (LLAMA | {"max_position_embeddings": 96, "n_positions": 64, "max_seq_len": 32}, {}, 96),
        (LLAMA | {"max_position_embeddings": 96, "text_config": None}, {}, 96),
        (GPT2 | {"n_positions": 64}, {"model_max_length": 32}, 64),
        (GPT2 | {"max_position_embeddings": 64}, {}, 64),
        (GPT2 | {"max_position_embeddings": 64, "n_positions": 32}, {}, 64),
        (DBRX | {"max_seq_len": 72}, {}, 72),
        (GEMMA3 | {"text_config": TEXT | {"max_position_embeddings": 80}}, {}, 80),
        # Nothing is said: what the library takes for granted.
        (LLAMA, {}, 2048),
        (LLAMA | {"n_positions": 64}, {}, 2048),
        (LLAMA | {"model_type": "qwen3", "head_dim": 8}, {}, 32768),
        (GPT2, {}, 1024),
        (GEMMA3 | {"text_config": TEXT}, {}, 131072),
        # Only the tokenizer says something: less is believed.
        (LLAMA, {"model_max_length": 300}, 300),
        (GPT2, {"model_max_length": 4096}, 1024),
        (LLAMA, {"model_max_length": int(1e30)}, 2048),
        (LLAMA, {"model_max_length": 1e30}, 2048),
        (LLAMA, {"model_max_length": -1}, 2048),
        (LLAMA, {"model_max_length": True}, 2048),
        (LLAMA, {"model_max_length": None}, 2048),
    ],
)
def test_the_edge_and_the_engine_read_one_length(
    tmp_path: Path, config: dict[str, Any], tokenizer: dict[str, Any], length: int
) -> None:
    """The edge took 2,048 tokens for any model that left it to its family: a Gemma 3 has 131,072, a GPT-2 1,024.

    Beyond the latter's, requests failed in the engine.
    """
    folder = folder_of(tmp_path / "chat", config, tokenizer)
    front = TextFront("chat", folder)
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"), load_format="dummy")
    assert (front.context_len, model.shape.max_len, context_len(folder)) == (length,) * 3
    assert front.completion_requests([1] * (length - 1), CallTerms())[0].sampling.max_tokens == 1
    with pytest.raises(ContextTooLong, match=f"maximum context length is {length} tokens"):
        front.completion_requests([1] * length, CallTerms())


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "whisper", "vocab_size": 264}, "does not say how long the context is"),
        (LLAMA | {"max_position_embeddings": None}, "max_position_embeddings"),
        ({"model_type": "no such"}, "no such"),
        ({"model_type": ["llama"]}, ""),
    ],
)
def test_a_model_of_which_no_length_is_known_is_refused_when_it_is_opened(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    folder = folder_of(tmp_path / "chat", config)
    with pytest.raises(UnsupportedModel, match=rf"chat/config\.json.*{says}") as refused:
        TextFront("chat", folder)
    assert "\n" not in refused.value.message
