"""What may be asked of Z-Image, and what its prompts become. No torch."""

from hemiola.core.errors import ContextTooLong

from .base import Defaults, Edge, Limits, TextTokenizer
from .files import PipelineFiles
from .footprint import Footprint, picture_footprint

PATCH = 2
TOKEN_MULTIPLE = 32  # captions and pictures are padded to multiples of this many tokens
_MAX_CAPTION = 512  # tokens, as diffusers' pipeline cuts


class ZImageEdge(Edge):
    """Guidance 0 is off: the prediction is `positive + guidance * (positive - negative)`."""

    kind = "image"

    def __init__(self, files: PipelineFiles) -> None:
        vae, transformer = files.config("vae"), files.config("transformer")
        multiple = PATCH * 2 ** (len(vae["block_out_channels"]) - 1)
        positions, rows, columns = transformer["axes_lens"]
        # The picture comes one position after the padded caption, whose positions start at 1.
        self._max_caption = (positions - 2) // TOKEN_MULTIPLE * TOKEN_MULTIPLE
        size = vae.get("sample_size") or 1024
        defaults = Defaults(
            width=size, height=size, num_inference_steps=50, guidance_scale=5.0,
            max_sequence_length=min(_MAX_CAPTION, self._max_caption),
        )  # fmt: skip
        super().__init__(files, defaults, Limits(multiple, columns * multiple, rows * multiple))

    def prompt_ids(self, text: str, tokenizer: TextTokenizer, encoder: str) -> tuple[int, ...]:
        messages = [{"role": "user", "content": text}]
        rendered = tokenizer.render_chat(messages, enable_thinking=True)
        return tokenizer.encode(rendered, self.defaults.max_sequence_length)

    def footprint(self, itemsize: int) -> Footprint:
        transformer, default = self.files.config("transformer"), self.defaults.width * self.defaults.height
        width = int(transformer["dim"])
        largest, usual = ((pixels, self._num_tokens(pixels)) for pixels in (self.most_pixels, default))
        return picture_footprint(self.files.config("vae"), width, largest, usual, itemsize)

    def _num_tokens(self, pixels: int) -> int:
        """Of the picture and the longest caption, with and without the prompt."""
        return int(2 * (pixels // self.limits.multiple**2 + self._max_caption))

    def is_guided(self, guidance_scale: float) -> bool:
        return guidance_scale > 0

    def check_prompt_ids(self, param: str, ids: tuple[int, ...], encoder: str) -> None:
        if len(ids) > self._max_caption:
            raise ContextTooLong(param, f"Invalid '{param}': {len(ids)} tokens. Allowed: {self._max_caption} at most.")
