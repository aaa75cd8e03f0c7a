"""What a benchmark is asked for, looked at before anything is loaded: models, prompts, pictures and clips."""

from collections.abc import Sequence

from hemiola.core.config import EngineConfig
from hemiola.core.errors import InvalidRequest

from ..engine import Engine
from ..front.media import MediaFront
from ..front.text import TextFront
from ..rehearsal import Rehearsal

PROMPT = "a heron in the reeds at dawn, its wings half open"
SOME = None
_COUNTS = {0: "no", 1: "one", SOME: "one or more"}


def asked_of(models: Sequence[str]) -> Rehearsal:
    """Their edges alone, to be closed, for the checks below.

    Raises:
        HemiolaError: one is not there.
    """
    return Rehearsal(models, EngineConfig())


def check_models(calls: Rehearsal, models: Sequence[str], *, texts: int | None, media: int | None) -> None:
    """
    Args:
        models: as they were named.
        texts, media: how many models of the kind are measured, `SOME` for one or more.

    Raises:
        InvalidRequest: more or fewer of a kind were named.
    """
    fronts = {
        "text": [name for name, front in calls.fronts.items() if isinstance(front, TextFront)],
        "media": [name for name, front in calls.fronts.items() if isinstance(front, MediaFront)],
    }
    wanted = {"text": texts, "media": media}
    if all(len(fronts[kind]) == count or (count is SOME and fronts[kind]) for kind, count in wanted.items()):
        return
    allowed = " and ".join(
        f"{_COUNTS[count]} {kind} model{'' if count == 1 else 's'}" for kind, count in wanted.items()
    )
    named = "; ".join(f"{kind}: {', '.join(names) or 'none'}" for kind, names in fronts.items())
    raise InvalidRequest("model", f"Invalid 'model': {', '.join(models)}. Allowed: {allowed}. Of these are {named}.")


def check_prompts(calls: Rehearsal, context: int, tokens: int, *, least_tokens: int = 1) -> None:
    """
    Raises:
        InvalidRequest: prompts of so many tokens, continued by so many, are more than a model's context, or too few.
    """
    if tokens < least_tokens:
        raise InvalidRequest("tokens", f"Invalid 'tokens': {tokens}. The least is {least_tokens}.")
    for front in calls.fronts.values():
        if isinstance(front, TextFront) and context + tokens > front.context_len:
            room = f"{front.context_len - tokens} at most: the context of {front.name} has {front.context_len} tokens"
            raise InvalidRequest(
                "context", f"Invalid 'context': {context}. Allowed: {room}, of which {tokens} are decoded."
            )


def check_media(calls: Rehearsal, size: str | None, steps: int) -> None:
    """
    Raises:
        InvalidRequest: one of the pipelines makes nothing of that size, or not in so many steps.
    """
    for name, front in calls.fronts.items():
        if isinstance(front, MediaFront):
            make = calls.stream_image if front.kind == "image" else calls.stream_video
            make(PROMPT, model=name, size=size, num_inference_steps=steps)


def check_rows(engine: Engine, model: str, rows: Sequence[int], length: int) -> None:
    """
    Args:
        length: of each row at its end, in tokens.

    Raises:
        InvalidRequest: so many rows cannot decode at the same time.
    """
    arena, cache = engine.composition.arena, engine.composition.languages[model].kv_cache
    row_bytes = -(-length // cache.page_len) * cache.page_bytes
    most = min(arena.nbytes // row_bytes, engine.loads.config.max_batch_tokens)
    if max(rows) > most:
        why = f"of {length} tokens each, in an arena of {arena.nbytes >> 20} MiB"
        raise InvalidRequest("rows", f"Invalid 'rows': {max(rows)}. Allowed: {most} at most, {why}.")
