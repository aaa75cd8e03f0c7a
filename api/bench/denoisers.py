"""One denoise step as diffusers runs it: the pipeline's transformer, from its config, on inputs of a request's shape.

Also counts the operations of such a step, on the meta device, where nothing is computed.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from hemiola.core.errors import UnsupportedModel
from hemiola.core.hub import ModelSource
from hemiola.core.hub.source import read_json
from hemiola.diffusion.edge import Edge


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one request. `branches`: 2 where guidance computes a negative prompt beside."""

    width: int
    height: int
    num_frames: int
    text_len: int
    branches: int


def shape_of(edge: Edge, width: int, height: int, num_frames: int, text_len: int) -> Shape:
    """The shape of a request with the pipeline's default guidance."""
    return Shape(width, height, num_frames, text_len, 1 + edge.is_guided(edge.defaults.guidance_scale))


def diffusers_step(source: ModelSource, shape: Shape, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    """Runs the transformer once per guidance branch.

    Raises:
        UnsupportedModel: no inputs are known for a pipeline of this class.
    """
    if source.architecture not in _INPUTS:
        known = ", ".join(sorted(_INPUTS))
        raise UnsupportedModel(f"'{source.architecture}' cannot be compared with diffusers. Known: {known}.")
    class_name = next(class_name for name, _, class_name in source.components if name == "transformer")
    config = read_json(source.path / "transformer" / "config.json")
    made: Any = getattr(importlib.import_module("diffusers"), class_name)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            transformer = made.from_config(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)
    inputs = _INPUTS[source.architecture](config, shape, {"device": device, "dtype": dtype})

    def run() -> None:
        with torch.inference_mode():
            for _ in range(shape.branches):
                transformer(**inputs, return_dict=False)

    return run


def step_flops(source: ModelSource, shape: Shape) -> int:
    """Floating-point operations of a denoise step: matrix products and attention."""
    step = diffusers_step(source, shape, torch.device("meta"), torch.float32)
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def _flux(config: dict[str, Any], shape: Shape, where: dict[str, Any]) -> dict[str, Any]:
    num_patches = (shape.width // 16) * (shape.height // 16)
    inputs = {
        "hidden_states": torch.randn(1, num_patches, config["in_channels"], **where),
        "encoder_hidden_states": torch.randn(1, shape.text_len, config["joint_attention_dim"], **where),
        "pooled_projections": torch.randn(1, config["pooled_projection_dim"], **where),
        "timestep": torch.full((1,), 0.5, **where),
        "img_ids": torch.zeros(num_patches, 3, **where),
        "txt_ids": torch.zeros(shape.text_len, 3, **where),
    }
    return inputs | ({"guidance": torch.full((1,), 3.5, **where)} if config["guidance_embeds"] else {})


def _zimage(config: dict[str, Any], shape: Shape, where: dict[str, Any]) -> dict[str, Any]:
    return {
        "x": [torch.randn(config["in_channels"], 1, shape.height // 8, shape.width // 8, **where)],
        "t": torch.full((1,), 0.5, **where),
        "cap_feats": [torch.randn(shape.text_len, config["cap_feat_dim"], **where)],
    }


def _wan(config: dict[str, Any], shape: Shape, where: dict[str, Any]) -> dict[str, Any]:
    frames = (shape.num_frames - 1) // 4 + 1
    return {
        "hidden_states": torch.randn(1, config["in_channels"], frames, shape.height // 8, shape.width // 8, **where),
        "timestep": torch.full((1,), 500.0, **where),
        "encoder_hidden_states": torch.randn(1, shape.text_len, config["text_dim"], **where),
    }


_INPUTS: dict[str, Callable[[dict[str, Any], Shape, dict[str, Any]], dict[str, Any]]] = {
    "FluxPipeline": _flux,
    "WanPipeline": _wan,
    "ZImagePipeline": _zimage,
}
