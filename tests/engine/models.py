"""Tiny models of every kind in folders, made on the spot, for tests of the whole engine.

- `chat`: a random Qwen3 with a byte-level tokenizer; also the text encoder of `image`.
- `image`: Z-Image whose text encoder is `chat`, as its hemiola.json says.
- `own`: the same with a text encoder of its own.
- `clip`: Wan.
- `flux`: FLUX.1, with two text encoders.
- `reciter`: a language model that says one text by heart after any prompt that ends a turn, see `RECITED`.
"""

import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hemiola.api.front.media import MediaFront
from hemiola.api.front.terms import CallTerms
from hemiola.api.front.text import TextFront
from hemiola.core.request import MediaRequest, Sampling, TextRequest
from hemiola.tests.tiny_diffusion import randomise, tiny_pipeline_dir, tiny_qwen_tokenizer, tiny_shared_encoder_dirs

R = TypeVar("R", bound=TextRequest | MediaRequest)

CONTEXT_LEN = 512
END_OF_TURN = 2  # <|im_end|>
RECITED = "wedxé漢😀sTop!"
"""What the reciter says before it ends its turn, byte by byte but for the token `ed`. No token comes twice, for each
follows from the one before."""


@cache
def root() -> Path:
    return Path(tempfile.mkdtemp(prefix="hemiola-tiny-engine-"))


@cache
def folder(name: str) -> Path:
    """The folder of one of the models above."""
    if name in ("image", "chat"):
        image, chat = tiny_shared_encoder_dirs()
        # Beside each other, for the one names the other by a relative path.
        _save_chat(root() / "chat", chat)
        shutil.copytree(image, root() / "image", dirs_exist_ok=True)
        return root() / name
    if name == "reciter":
        return _save_reciter(root() / "reciter")
    return tiny_pipeline_dir({"own": "zimage", "clip": "wan", "flux": "flux"}[name])


def _config(**changes: Any) -> Qwen3Config:
    return Qwen3Config(**{
        "vocab_size": 264, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": CONTEXT_LEN,
        "tie_word_embeddings": True, "eos_token_id": END_OF_TURN, **changes,
    })  # fmt: skip


def _save_chat(to: Path, tokenizer_from: Path) -> None:
    if to.exists():
        return
    model = Qwen3ForCausalLM(_config())
    randomise(model, seed=5)
    model.save_pretrained(to)
    for file in tokenizer_from.glob("*token*"):
        shutil.copy(file, to)
    shutil.copy(tokenizer_from / "chat_template.jinja", to)


@torch.no_grad()
def _save_reciter(to: Path) -> Path:
    """Layers that add nothing, and a head in which each token's successor answers to the token's own embedding."""
    tokenizer = tiny_qwen_tokenizer()
    torch.manual_seed(3)
    model = Qwen3ForCausalLM(_config(tie_word_embeddings=False, hidden_size=64))
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    embedding = torch.nn.init.orthogonal_(torch.empty(264, 64))
    embedding /= embedding.norm(dim=1, keepdim=True)
    model.model.embed_tokens.weight.copy_(embedding)
    model.lm_head.weight.zero_()
    line = [*tokenizer("\n" + RECITED).input_ids, END_OF_TURN]
    assert len(set(line)) == len(line), "A token would have two successors."
    for token, successor in pairwise(line):
        model.lm_head.weight[successor] = 10 * embedding[token]
    model.save_pretrained(to)
    tokenizer.save_pretrained(to)
    return to


@cache
def text_front(name: str = "chat") -> TextFront:
    return TextFront(name, folder(name))


@cache
def media_front(name: str) -> MediaFront:
    return MediaFront(name, folder(name), folder("chat") if name == "image" else None)


# Requests, as a front would make them, with the terms that a test cares about.


def chat(id: str, token_ids: Sequence[int], max_tokens: int = 6, *, model: str = "chat", **options: Any) -> TextRequest:
    """Options are of Sampling or of the request's Terms. Greedy, and without an end of turn, unless they say else."""
    fields = {name: options.pop(name) for name in tuple(options) if name in Sampling.__struct_fields__}
    sampling = Sampling(**{"temperature": 0.0, "max_tokens": max_tokens, **fields})
    return TextRequest(id=id, model=model, token_ids=tuple(token_ids), sampling=sampling, **options)


def picture(id: str, prompt: str = "a red fox", *, model: str = "own", **options: Any) -> MediaRequest:
    """A small picture (a clip of 5 frames, for `clip`), as floats. Options are of the front or of the Terms."""
    terms = {name: options.pop(name) for name in tuple(options) if name in CallTerms.__dataclass_fields__}
    arrival_s = options.pop("arrival_s", 0.0)
    asked = {"size": (16, 16), "num_inference_steps": 2, "seed": 7, "pixel_type": "float32", "guidance_scale": 2.0}
    if model == "clip":
        asked["num_frames"] = 5
    (request,) = media_front(model).requests(prompt, CallTerms(id=id, **terms), **{**asked, **options})
    return replaced(request, arrival_s=arrival_s)


def replaced(request: R, **fields: Any) -> R:
    """The same with other fields."""
    return msgspec.structs.replace(request, **fields)


def prompt_ids(count: int, seed: int = 0) -> list[int]:
    """Random tokens, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(3, 259, (count,), generator=generator).tolist()
    return ids
