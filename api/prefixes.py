"""The prefix caches of an engine's language models, and how they are emptied. For the loop's thread."""

from hemiola.core.memory.radix import PrefixStats
from hemiola.llm.kv_cache import KvCache

from .compose import Composition


def kv_caches(composition: Composition) -> list[KvCache]:
    """Of the models that generate text."""
    return [runner.kv_cache for runner in composition.languages.values() if runner.generates]


def forget_prefixes(composition: Composition) -> int:
    """Empties the prefix caches of what nobody uses; how many tokens were forgotten."""
    num_tokens = 0
    for prefixes in (cache.prefixes for cache in kv_caches(composition)):
        if prefixes is not None:
            num_tokens += prefixes.num_tokens + prefixes.num_host_tokens
            prefixes.flush()
            num_tokens -= prefixes.num_tokens + prefixes.num_host_tokens
    return num_tokens


def forget_first_requests(composition: Composition) -> None:
    """Nothing of what ran before the first user's request shall be seen: no prefix, step or count of it."""
    forget_prefixes(composition)
    composition.scheduler.trace.clear()
    for cache in kv_caches(composition):
        if cache.prefixes is not None:
            cache.prefixes.stats = PrefixStats()
