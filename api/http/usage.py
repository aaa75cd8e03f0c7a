"""What a call cost, as the OpenAI API tells it."""

from typing import Any

from hemiola.core.events import Usage


def usage_json(usage: Usage, reasoning_tokens: int | None = None) -> dict[str, Any]:
    """`usage` of all answers together. Completion tokens include those of reasoning."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return body
