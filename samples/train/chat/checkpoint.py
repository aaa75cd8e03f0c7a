"""Weights in small parts (to carry and to resume from), and the model folder that transformers loads.

``python -m samples.train.chat.checkpoint PARTS_DIR MODEL_DIR`` writes the folder from the parts.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load, save, save_file
from torch import Tensor

from samples.train.chat.model import ChatModel, Config
from samples.train.chat.tokenizer import FILE, TEMPLATE
from samples.train.chat.tokenizer import load as load_tokenizer

PART_BYTES = 15 * 2**20
CONTEXT = 4096


def save_parts(model: ChatModel, folder: Path, dtype: torch.dtype) -> None:
    """The weights under transformers' names as weights.NN.part files, the model's sizes as sizes.json."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: t.to("cpu", dtype).contiguous() for name, t in model.named_for_transformers().items()}
    data = save(weights, metadata={"sizes": json.dumps(asdict(model.config))})
    for old in folder.glob("weights.*.part"):
        old.unlink()
    for i in range(0, len(data), PART_BYTES):
        (folder / f"weights.{i // PART_BYTES:02d}.part").write_bytes(data[i : i + PART_BYTES])


def load_parts(folder: Path) -> tuple[dict[str, Tensor], Config]:
    parts = sorted(folder.glob("weights.*.part"))
    if not parts:
        raise FileNotFoundError(f"{folder} holds no weights.*.part")
    data = b"".join(part.read_bytes() for part in parts)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return load(data), Config(**json.loads(header["__metadata__"]["sizes"]))


def resume(model: ChatModel, folder: Path) -> None:
    """Load the weights into the model; the optimisers start anew and warm up again."""
    weights, config = load_parts(folder)
    assert config == model.config, f"{folder} is for {config}, not {model.config}"
    own = model.state_dict()
    for name, tensor in model.named_for_transformers().items():
        own_name = name.removeprefix("model.")
        own_name = own_name.removesuffix(".weight") if own_name.removesuffix(".weight") in own else own_name
        assert own[own_name].shape == tensor.shape == weights[name].shape, name
        own[own_name].copy_(weights[name])


def write_folder(weights: dict[str, Tensor], config: Config, folder: Path) -> None:
    """A transformers model folder in bf16: weights, configurations, tokenizer, chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer()
    end, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    sizes = asdict(config)
    written = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **sizes, "hidden_act": "silu",
        "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0, "use_sliding_window": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta}, "initializer_range": 0.02,
        "bos_token_id": None, "eos_token_id": end, "pad_token_id": pad, "dtype": "bfloat16", "use_cache": True,
    }  # fmt: skip
    generation = {"do_sample": False, "eos_token_id": [end, pad], "pad_token_id": pad}
    tokens = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT, "padding_side": "right", "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    for name, content in (("config", written), ("generation_config", generation), ("tokenizer_config", tokens)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").write_bytes(FILE.read_bytes())
    (folder / "chat_template.jinja").write_bytes(TEMPLATE.read_bytes())
    half = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in weights.items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    write_folder(*load_parts(args.parts), args.folder)


if __name__ == "__main__":
    main()
