"""What share of prompts a judge found drawn right, ability by ability."""

from collections.abc import Callable
from typing import Any

from samples.train.image.judge import Verdict, ground_label
from samples.train.image.prompts import Prompt
from samples.train.scenes.objects import THINGS


def _has_object(prompt: Prompt, verdict: Verdict) -> bool:
    return bool(verdict.things) and verdict.things[0].thing_id == prompt.scene.items[0].thing_id


def _has_colour(prompt: Prompt, verdict: Verdict) -> bool:
    return bool(verdict.things) and verdict.things[0].tint == prompt.scene.items[0].tint


def _has_count(prompt: Prompt, verdict: Verdict) -> bool:
    return len(verdict.things) == len(prompt.scene.items)


def _has_both(prompt: Prompt, verdict: Verdict) -> bool:
    """Both things are there, wherever they are."""
    seen = sorted(sighting.thing_id for sighting in verdict.things[:2])
    return seen == sorted(item.thing_id for item in prompt.scene.items)


def _is_ordered(prompt: Prompt, verdict: Verdict) -> bool:
    """The first thing is left of (or above) the second; to be asked where both are seen."""
    places = {s.thing_id: (s.center_x, s.center_y) for s in verdict.things[:2]}
    axis = 0 if prompt.kind == "left_right" else 1
    first, second = (places[item.thing_id][axis] for item in prompt.scene.items)
    return first < second


def _has_background(prompt: Prompt, verdict: Verdict) -> bool:
    return verdict.background == ground_label(prompt.scene.background)


def _share(
    prompts: list[Prompt], verdicts: list[Verdict], is_asked: Callable[[Prompt], bool], is_right: Callable[..., bool]
) -> dict[str, float]:
    rows = [(p, v) for p, v in zip(prompts, verdicts, strict=True) if is_asked(p)]
    right = sum(is_right(p, v) for p, v in rows)
    return {"percent": round(100 * right / max(1, len(rows)), 1), "n": len(rows)}


def score(prompts: list[Prompt], verdicts: list[Verdict]) -> dict[str, Any]:
    """The table: percent right and number of prompts for each ability; objects that were missed."""

    def of(is_right: Callable[[Prompt, Verdict], bool], *kinds: str) -> dict[str, float]:
        return _share(prompts, verdicts, lambda p: p.kind in kinds, is_right)

    both = [(p, v) for p, v in zip(prompts, verdicts, strict=True) if "_" in p.kind and _has_both(p, v)]
    seen_prompts, seen_verdicts = [p for p, _ in both], [v for _, v in both]
    missed = [p for p, v in zip(prompts, verdicts, strict=True) if p.kind == "object" and not _has_object(p, v)]
    return {
        "object": of(_has_object, "object"),
        "background": _share(prompts, verdicts, lambda p: p.scene.background.kind != "plain", _has_background),
        "colour": of(_has_colour, "colour"),
        "colour and object": of(lambda p, v: _has_colour(p, v) and _has_object(p, v), "colour"),
        "count": of(_has_count, "count"),
        "count and object": of(lambda p, v: _has_count(p, v) and _has_object(p, v), "count"),
        "two objects, both there": of(_has_both, "left_right", "above_below"),
        "left/right, where both are there": _share(
            seen_prompts, seen_verdicts, lambda p: p.kind == "left_right", _is_ordered
        ),
        "above/below, where both are there": _share(
            seen_prompts, seen_verdicts, lambda p: p.kind == "above_below", _is_ordered
        ),
        "objects asked for": len({p.scene.items[0].thing_id for p in prompts if p.kind == "object"}),
        "objects missed": sorted(THINGS[p.scene.items[0].thing_id].name for p in missed),
    }
