"""What may be asked of Wan, and what its prompts become. No torch.

Ids are padded to `max_sequence_length`, for it is part of the model's input: the padding takes part in attention.
"""

import html
import re

import ftfy

from hemiola.core.errors import ContextTooLong, UnsupportedModel

from .base import Defaults, Edge, Limits, TextTokenizer
from .files import PipelineFiles
from .footprint import Footprint, clip_decode_bytes, clip_denoise_bytes

PAD_ID = 0  # of every T5 vocabulary
_MAX_TOKENS = 512
_UNSUPPORTED = ("transformer_2", "boundary_ratio", "expand_timesteps", "image_encoder")


class WanEdge(Edge):
    """Guidance 1 is off: the prediction is `negative + guidance * (positive - negative)`."""

    kind = "video"

    def __init__(self, files: PipelineFiles) -> None:
        for option in _UNSUPPORTED:
            if files.is_set(option):
                raise UnsupportedModel(
                    f"WanPipeline with '{option}' is not supported: only Wan 2.1's text to video is."
                )
        vae, transformer = files.config("vae"), files.config("transformer")
        patch_t, patch_h, patch_w = transformer.get("patch_size", (1, 2, 2))
        spatial, temporal = vae.get("scale_factor_spatial", 8), vae.get("scale_factor_temporal", 4)
        if patch_h != patch_w or patch_t != 1:
            raise UnsupportedModel(
                f"Wan: 'patch_size' is {[patch_t, patch_h, patch_w]}, and only [1, n, n] is supported."
            )
        positions = transformer.get("rope_max_seq_len", 1024)
        multiple = patch_h * spatial
        limits = Limits(
            multiple, positions * multiple, positions * multiple,
            max_frames=(positions - 1) * temporal + 1, frame_multiple=temporal,
        )  # fmt: skip
        defaults = Defaults(
            width=832, height=480, num_frames=81, num_inference_steps=50, guidance_scale=5.0,
            max_sequence_length=_MAX_TOKENS, fps=16,
        )  # fmt: skip
        super().__init__(files, defaults, limits)

    def prompt_ids(self, text: str, tokenizer: TextTokenizer, encoder: str) -> tuple[int, ...]:
        length = self.defaults.max_sequence_length
        ids = tokenizer.encode(clean_prompt(text), length)
        return ids + (PAD_ID,) * (length - len(ids))

    def footprint(self, itemsize: int) -> Footprint:
        vae, transformer = self.files.config("vae"), self.files.config("transformer")
        frames, defaults = self.limits.max_frames, self.defaults
        largest = clip_denoise_bytes(transformer, self._num_tokens(self.most_pixels, frames), itemsize)
        pixels = min(defaults.width * defaults.height, self.most_pixels)
        usual = clip_denoise_bytes(transformer, self._num_tokens(pixels, min(defaults.num_frames, frames)), itemsize)
        return Footprint(max(largest, clip_decode_bytes(vae, self.most_pixels, frames, itemsize)), usual)

    def _num_tokens(self, pixels: int, frames: int) -> int:
        return ((frames - 1) // self.limits.frame_multiple + 1) * pixels // self.limits.multiple**2

    def is_guided(self, guidance_scale: float) -> bool:
        return guidance_scale > 1

    def check_prompt_ids(self, param: str, ids: tuple[int, ...], encoder: str) -> None:
        if len(ids) > _MAX_TOKENS:
            raise ContextTooLong(param, f"Invalid '{param}': {len(ids)} tokens. Allowed: {_MAX_TOKENS} at most.")


def clean_prompt(text: str) -> str:
    """Mends encodings, resolves HTML entities (twice escaped ones too) and collapses white space."""
    mended = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    return re.sub(r"\s+", " ", mended).strip()
