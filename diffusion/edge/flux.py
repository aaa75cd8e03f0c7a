"""What may be asked of FLUX.1, and what its prompts become. No torch.

Two text encoders read the same prompt: CLIP, whose pooled state modulates the transformer, and T5, whose states are
its text. Ids are padded as diffusers pads them; T5's padding takes part in attention.
"""

from hemiola.core.errors import ContextTooLong, InvalidRequest, UnsupportedModel

from .base import Defaults, Edge, Encoder, Limits, TextTokenizer
from .files import PipelineFiles
from .footprint import Footprint, picture_footprint

PATCH = 2
PAD_ID = 0  # of every T5 vocabulary
_MAX_T5_TOKENS = 512
_MAX_PATCHES = 256  # along a side; the model has no limit of its own, and was trained on pictures of two megapixels


class FluxEdge(Edge):
    """Models for guidance (`dev`) are told its scale, and compute no negative prompt. Of the others (`schnell`) it is
    `negative + guidance * (positive - negative)`, off up to 1: what diffusers calls `true_cfg_scale`."""

    kind = "image"
    encoders = (Encoder("clip", "text_encoder", "tokenizer"), Encoder("t5", "text_encoder_2", "tokenizer_2"))

    def __init__(self, files: PipelineFiles) -> None:
        if files.shared_encoder is not None:
            raise UnsupportedModel(f"{files.folder / 'hemiola.json'}: FLUX.1 cannot share a 'text_encoder'.")
        vae, transformer = files.config("vae"), files.config("transformer")
        multiple = PATCH * 2 ** (len(vae["block_out_channels"]) - 1)
        self.is_told_guidance = bool(transformer.get("guidance_embeds", False))
        self.clip_len: int = files.config("text_encoder").get("max_position_embeddings", 77)
        largest = _MAX_PATCHES * multiple
        side = 64 * multiple
        is_dev = self.is_told_guidance
        defaults = Defaults(
            width=side, height=side, num_inference_steps=28 if is_dev else 4, guidance_scale=3.5 if is_dev else 0.0,
            max_sequence_length=_MAX_T5_TOKENS if is_dev else 256,
        )  # fmt: skip
        super().__init__(files, defaults, Limits(multiple, largest, largest))

    def prompt_ids(self, text: str, tokenizer: TextTokenizer, encoder: str) -> tuple[int, ...]:
        if encoder == "t5":
            length, ids = self.defaults.max_sequence_length, tokenizer.encode(text, self.defaults.max_sequence_length)
            return ids + (PAD_ID,) * (length - len(ids))
        ids = tokenizer.encode(text, self.clip_len)
        return ids + ids[-1:] * (self.clip_len - len(ids))  # CLIP's padding is its end token

    def footprint(self, itemsize: int) -> Footprint:
        transformer, default = self.files.config("transformer"), self.defaults.width * self.defaults.height
        width = int(transformer["num_attention_heads"]) * int(transformer["attention_head_dim"])
        largest, usual = ((pixels, self._num_tokens(pixels)) for pixels in (self.most_pixels, default))
        return picture_footprint(self.files.config("vae"), width, largest, usual, itemsize)

    def _num_tokens(self, pixels: int) -> int:
        """Of the picture and the longest prompt, twice where the negative one is computed."""
        return (pixels // self.limits.multiple**2 + _MAX_T5_TOKENS) * (1 if self.is_told_guidance else 2)

    def is_guided(self, guidance_scale: float) -> bool:
        return not self.is_told_guidance and guidance_scale > 1

    def check_prompt_ids(self, param: str, ids: tuple[int, ...], encoder: str) -> None:
        if encoder == "t5" and len(ids) > _MAX_T5_TOKENS:
            raise ContextTooLong(param, f"Invalid '{param}': {len(ids)} tokens. Allowed: {_MAX_T5_TOKENS} at most.")
        if encoder == "clip" and len(ids) != self.clip_len:
            raise InvalidRequest(
                param, f"Invalid '{param}': {len(ids)} tokens for 'clip'. Allowed: {self.clip_len}, padding included."
            )
