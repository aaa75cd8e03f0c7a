"""Captions through the frozen chat model: a user turn and its generation prompt, hidden states before the last layer.

ZImagePipeline renders prompts with the chat template of its own tokenizer and `enable_thinking=True`. The chat model's
template would then open a thought; the pipeline's tokenizer therefore has the same vocabulary and the plain template
below, so that stock diffusers, the engine and the training all feed the same ids.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen3ForCausalLM

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
HIDDEN_STATE = -2
"""Index into the text model's hidden states: the input of its last layer."""

SLOTS = 32
"""Captions are padded to multiples of this many tokens, by ZImageTransformer2DModel itself."""


def prompt_text(caption: str) -> str:
    """What CHAT_TEMPLATE makes of one user turn."""
    return f"<|im_start|>user\n{caption}<|im_end|>\n<|im_start|>assistant\n"


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The chat model's tokenizer with the plain template."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.padding_side = "right"  # the encoder takes positions from the padded row
    return tokenizer


def load_encoder(folder: Path, device: torch.device) -> Qwen3ForCausalLM:
    """The chat model, frozen, in the compute type of the device."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.to(device).eval().requires_grad_(False)


class CaptionEncoder:
    """Captions to ids to padded hidden states, many at a time."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.tokenizer, self.model, self.device = load_tokenizer(folder), load_encoder(folder, device), device
        self.width: int = self.model.config.hidden_size
        self._fast = self.tokenizer.backend_tokenizer
        self._fast.no_padding()
        self._fast.no_truncation()

    def tokenize(self, captions: Sequence[str]) -> list[list[int]]:
        """Ids of each caption within its template (by the library below transformers, which is far faster in bulk)."""
        texts = [prompt_text(caption) for caption in captions]
        return [row.ids for row in self._fast.encode_batch(texts, add_special_tokens=False)]

    @torch.no_grad()
    def __call__(self, rows: Sequence[list[int]], slots: int, batch: int = 1024) -> tuple[Tensor, Tensor]:
        """Ids to (hidden states [N, slots, D], lengths [N]); a caption beyond `slots` tokens raises ValueError.

        Attention is causal and padding is on the right, so that no mask is needed.
        """
        longest = max(map(len, rows))
        if longest > slots:
            raise ValueError(f"a caption has {longest} tokens, more than {slots}")
        padding: int = self.tokenizer.pad_token_id
        ids = torch.tensor([row + [padding] * (slots - len(row)) for row in rows], device=self.device)
        hidden = [
            self.model(part, output_hidden_states=True, use_cache=False, logits_to_keep=1).hidden_states[HIDDEN_STATE]
            for part in ids.split(batch)
        ]
        return torch.cat(hidden), torch.tensor([len(row) for row in rows], device=self.device)
