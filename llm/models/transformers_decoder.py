"""The generic path: any decoder of the transformers library whose attention goes through its AttentionInterface.

The library's model runs on one flattened batch [1, T] with explicit positions and without a cache; its layers call
`_attention`, which hands queries, keys and values to the step's `Attend`. A dry run at load time finds out what the
layers pass, and whether this path can serve them. Layers whose values are narrower than their keys are padded.
Shape suffixes: T tokens, R rows, H query heads, K key heads, D head size.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from ...core.errors import UnsupportedModel
from ...core.hub import one_line
from ...kernels.attention import ScoreOptions, needs_of
from .base import Attend, ModelShape

ATTENTION = "hemiola"
_SERVED_LAYERS = ("full_attention", "sliding_attention")


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    hemiola_attend: Attend | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What the library calls in every layer: [1, heads, T, D] in, [1, T, H, D] out."""
    assert hemiola_attend is not None, f"{type(module).__name__} does not pass keywords on to its attention."
    options = ScoreOptions(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap, sliding_window)
    value_dim, missing = value.shape[-1], key.shape[-1] - value.shape[-1]
    if missing:
        value = torch.nn.functional.pad(value, (0, missing))
    kv_T2KD = torch.stack((key[0], value[0])).permute(2, 0, 1, 3)
    out_THD = hemiola_attend(module.layer_idx, query[0].transpose(0, 1), kv_T2KD, options, s_aux)
    return out_THD[None, ..., :value_dim], None


def _no_mask(*_: Any, **__: Any) -> None:
    """Rows are told apart by `Attend`; a mask over the flattened batch would be wrong."""


def register() -> None:
    """Makes the attention known to the library; loading a model with `attn_implementation=ATTENTION` needs it."""
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, _no_mask)


class TransformersDecoder:
    """See `LanguageModel`.

    Args:
        model: loaded with `attn_implementation=ATTENTION`, with or without a language head.
    """

    num_blocks = 1
    is_capturable = False  # the library may look at what tensors hold

    def __init__(self, model: Any, *, has_head: bool = True) -> None:
        self._model = model.eval().requires_grad_(False)
        self._has_head = has_head
        self.dtype: torch.dtype = model.dtype
        self.shape = _shape_of(model.config.get_text_config(), self._probe())

    def forward(self, token_ids_T: Tensor, positions_T: Tensor, attend: Attend, rows_R: Tensor | None) -> Tensor:
        assert self._has_head, "This model has no language head: it can only encode."
        keep = 0 if rows_R is None else rows_R
        logits: Tensor = self._run(token_ids_T, positions_T, attend, logits_to_keep=keep).logits
        return logits[0].float()

    def encode_block(
        self, block: int, carry_TC: Tensor | None, token_ids_T: Tensor, positions_T: Tensor, attend: Attend, until: int
    ) -> Tensor:
        keep = {"logits_to_keep": 1} if self._has_head else {}
        states = self._run(token_ids_T, positions_T, attend, output_hidden_states=True, **keep).hidden_states
        state: Tensor = states[until][0]
        return state

    def _run(self, token_ids_T: Tensor, positions_T: Tensor, attend: Attend, **options: Any) -> Any:
        return self._model(
            input_ids=token_ids_T[None],
            position_ids=positions_T[None],
            use_cache=False,
            hemiola_attend=attend,
            **options,
        )

    def _probe(self) -> "Sequence[_Seen]":
        """What the layers pass to attention, in the order in which they run."""
        seen: list[_Seen] = []

        def record(
            layer: int, q_THD: Tensor, kv_T2KD: Tensor, options: ScoreOptions, sinks_H: Tensor | None = None
        ) -> Tensor:
            seen.append(_Seen(layer, q_THD.shape[1], kv_T2KD.shape[2], q_THD.shape[2], options, sinks_H is not None))
            return torch.zeros_like(q_THD)

        tokens = torch.zeros(2, dtype=torch.int64, device=self._model.device)
        try:
            with torch.inference_mode():
                self._run(tokens, torch.arange(2, device=tokens.device), record)
        except (AssertionError, TypeError, AttributeError) as error:
            name = type(self._model).__name__
            raise UnsupportedModel(f"{name} cannot run on a flattened batch: {one_line(error)}") from error
        return seen


class _Seen:
    """A call of one layer's attention."""

    __slots__ = ("has_sinks", "head_dim", "layer", "num_heads", "num_kv_heads", "options")

    def __init__(
        self, layer: int, num_heads: int, num_kv_heads: int, head_dim: int, options: ScoreOptions, has_sinks: bool
    ) -> None:
        self.layer, self.options, self.has_sinks = layer, options, has_sinks
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim


def _shape_of(config: Any, seen: Sequence[_Seen]) -> ModelShape:
    """The shape that the dry run saw.

    Raises:
        UnsupportedModel: some layer does not attend, or not in a way that pages can serve.
    """
    num_layers = config.num_hidden_layers
    name = f"'{config.model_type}'"
    if [call.layer for call in seen] != list(range(num_layers)):
        raise UnsupportedModel(
            f"{name} has {num_layers} layers, but attends in layers {sorted({call.layer for call in seen})} only: "
            "layers of other kinds are not served."
        )
    if len({(call.num_kv_heads, call.head_dim) for call in seen}) != 1:
        raise UnsupportedModel(f"{name} has layers with different key heads or head sizes.")
    for i, kind in enumerate(getattr(config, "layer_types", None) or ()):
        if kind not in _SERVED_LAYERS or (kind == "sliding_attention" and seen[i].options.window is None):
            raise UnsupportedModel(
                f"{name}: layer {i} is of the kind '{kind}', which it does not pass on to attention."
            )
    return ModelShape(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=num_layers,
        num_heads=max(call.num_heads for call in seen),
        num_kv_heads=seen[0].num_kv_heads,
        head_dim=seen[0].head_dim,
        max_len=config.max_position_embeddings,
        attention_needs=needs_of((call.options for call in seen), has_sinks=any(call.has_sinks for call in seen)),
    )
