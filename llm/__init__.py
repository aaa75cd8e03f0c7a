"""Language models: requests of tokens, step by step. Templates, tokenizers and detokenizing need no torch.

models/            decoders of our own, and the generic path over the transformers library
loading.py         from a folder to a model
runner.py          executes steps: prefill chunks and decodes of all requests in one forward
state.py           a request that is running
kv_cache.py        whose keys and values lie in which pages; prefixes, parking
compose.py         from rows to the flat tensors of one forward
choosing.py        from logits to tokens and log probabilities
encodings.py       hidden states for others: the TextEncoder
chat_template.py, tokenizer.py, detokenize.py   the edge: text to tokens and back
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runner import LanguageRunner as LanguageRunner

__all__ = ["LanguageRunner"]


def __getattr__(name: str) -> Any:
    if name == "LanguageRunner":
        from .runner import LanguageRunner

        return LanguageRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
