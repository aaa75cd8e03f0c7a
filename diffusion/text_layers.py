"""Text encoders of pipelines as lists of layers, over the modules of the transformers library.

Prompts run one by one and unpadded: what diffusers masks out is never computed, and no prompt's result depends on
which others are encoded beside it. So lengths vary, and attention is not to be cuDNN's: see `without_plans`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hemiola.core.staging import ints_to_device
from hemiola.core.step import Work
from hemiola.kernels.attention.dense_torch import without_plans

_UNKNOWN_END = 2


class TextLayers(Protocol):
    """`embed`, then every layer in turn, then `finish`: [1, num_tokens, hidden_size] throughout."""

    hidden_size: int
    num_layers: int
    dtype: torch.dtype

    def embed(self, token_ids: Sequence[int]) -> Tensor: ...

    def layer(self, index: int, hidden_NLH: Tensor) -> Tensor: ...

    def finish(self, hidden_NLH: Tensor) -> Tensor: ...


def layer_work(num_tokens: int) -> Work:
    """Of one layer over one prompt."""
    return Work(rows=1, new_tokens=num_tokens, attended_pairs=num_tokens**2, blocks=1)


class DecoderLayers:
    """A causal language model (Qwen3's shape) up to a hidden state, counted as transformers counts: -1 is the last
    one, after the final norm; -2 is what goes into the last layer."""

    def __init__(self, model: nn.Module, hidden_state: int) -> None:
        inner: Any = getattr(model, "model", model)
        self._model = inner
        self.hidden_size: int = inner.config.hidden_size
        self.num_layers = len(inner.layers) + 1 + hidden_state
        self.dtype = inner.embed_tokens.weight.dtype
        self._is_last = hidden_state == -1

    def embed(self, token_ids: Sequence[int]) -> Tensor:
        embedding = self._model.embed_tokens
        return embedding(ints_to_device(token_ids, embedding.weight.device).unsqueeze(0))  # type: ignore[no-any-return]

    def layer(self, index: int, hidden_NLH: Tensor) -> Tensor:
        positions = torch.arange(hidden_NLH.shape[1], device=hidden_NLH.device).unsqueeze(0)
        rope = self._model.rotary_emb(hidden_NLH, positions)
        with without_plans():
            return _first(self._model.layers[index](hidden_NLH, position_embeddings=rope, position_ids=positions))

    def finish(self, hidden_NLH: Tensor) -> Tensor:
        return self._model.norm(hidden_NLH) if self._is_last else hidden_NLH


class T5Layers:
    """T5's encoder, whose first layer has the position bias of all, or UMT5's, with one in each; and the final norm."""

    def __init__(self, model: nn.Module) -> None:
        stack: Any = model.encoder
        self._stack = stack
        self._owner = stack.block[0].layer[0].SelfAttention
        self.hidden_size: int = stack.config.d_model
        self.num_layers = len(stack.block)
        self.dtype = stack.embed_tokens.weight.dtype

    def embed(self, token_ids: Sequence[int]) -> Tensor:
        embedding = self._stack.embed_tokens
        return embedding(ints_to_device(token_ids, embedding.weight.device).unsqueeze(0))  # type: ignore[no-any-return]

    def layer(self, index: int, hidden_NLH: Tensor) -> Tensor:
        block, length = self._stack.block[index], hidden_NLH.shape[1]
        with without_plans():
            if block.layer[0].SelfAttention.has_relative_attention_bias:
                return _first(block(hidden_NLH))
            return _first(block(hidden_NLH, position_bias=self._owner.compute_bias(length, length)))

    def finish(self, hidden_NLH: Tensor) -> Tensor:
        return self._stack.final_layer_norm(hidden_NLH)  # type: ignore[no-any-return]


class ClipLayers:
    """CLIP's text model, with the final norm. Causal, so that what stands behind the pooled token is never needed."""

    def __init__(self, model: nn.Module) -> None:
        inner: Any = getattr(model, "text_model", model)
        self._model = inner
        self.hidden_size: int = inner.config.hidden_size
        self.num_layers = len(inner.encoder.layers)
        self.dtype = inner.embeddings.token_embedding.weight.dtype
        self._end_id: int = inner.eos_token_id

    def read(self, token_ids: Sequence[int]) -> Sequence[int]:
        """The ids up to the one that is pooled: the first end token or, with a config from before transformers knew
        its id, the first of the highest ids."""
        end = max(token_ids) if self._end_id == _UNKNOWN_END else self._end_id
        return token_ids[: token_ids.index(end) + 1] if end in token_ids else token_ids[:1]

    def embed(self, token_ids: Sequence[int]) -> Tensor:
        embeddings = self._model.embeddings
        return embeddings(ints_to_device(token_ids, embeddings.token_embedding.weight.device).unsqueeze(0))  # type: ignore[no-any-return]

    def layer(self, index: int, hidden_NLH: Tensor) -> Tensor:
        length = hidden_NLH.shape[1]
        mask = hidden_NLH.new_full((1, 1, length, length), float("-inf")).triu(1)
        with without_plans():
            return _first(self._model.encoder.layers[index](hidden_NLH, attention_mask=mask))

    def finish(self, hidden_NLH: Tensor) -> Tensor:
        return self._model.final_layer_norm(hidden_NLH)  # type: ignore[no-any-return]


def _first(output: Any) -> Tensor:
    """Layers return a tensor or, in older versions of transformers, a tuple that starts with it."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden
