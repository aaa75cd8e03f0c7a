"""What pictures cost, in the words of the API."""

from collections.abc import Sequence
from typing import Any

from hemiola.core.events import Finished


def usage_of(finished: Sequence[Finished]) -> dict[str, Any]:
    """The prompt's tokens, counted once for all pictures; a denoiser gives out no tokens, but takes steps."""
    num_prompt_tokens = finished[0].usage.prompt_tokens if finished else 0
    return {
        "input_tokens": num_prompt_tokens,
        "input_tokens_details": {"text_tokens": num_prompt_tokens, "image_tokens": 0},
        "output_tokens": 0,
        "total_tokens": num_prompt_tokens,
        "num_steps": sum(each.usage.num_steps for each in finished),
    }
