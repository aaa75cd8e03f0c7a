"""JSON out of texts of many genres, as training asks for it: keys and schemas in many styles, nested and list values."""

import json

from samples.train.chat.abilities import structured
from samples.train.chat.abilities.records import Item, Value, as_text, draw, genres, record, said
from samples.train.chat.abilities.schemas import key_lines, key_list, shown_schema, styled_keys
from samples.train.chat.world import Exchange, World

Wanted = dict[str, object]
_GROUPS = ("person", "details", "info", "data", "contact", "order", "facts", "item", "main", "meta", "subject", "entry")


def _wanted(world: World, items: list[Item]) -> Wanted:
    """Some of the items in some order, under keys of one style; at times a key of which the text says nothing."""
    chosen = world.rng.sample(items, len(items)) if world.chance(0.6) else list(items)
    if len(chosen) > 1 and world.chance(0.4):
        chosen = chosen[: world.number(1, len(chosen) - 1)]
    keys = [item.key for item in chosen]
    values: list[Value | None] = [item.value for item in chosen]
    if world.chance(0.07):
        taken = {key for item in items for key in (item.key, item.label)}
        fact = world.rng.choice(world.rng.choice(genres()).facts)
        if not taken & set(fact.keys):
            at = world.number(0, len(keys))
            keys.insert(at, world.rng.choice(fact.keys))
            values.insert(at, None)
    return dict(zip(styled_keys(world, list(dict.fromkeys(keys))), values, strict=False))


def _nested(world: World, wanted: Wanted) -> Wanted:
    """The same with some of the keys inside of a group."""
    keys = list(wanted)
    cut = world.number(1, len(keys) - 1) if len(keys) > 1 else 1
    group = world.rng.choice(_GROUPS)
    inner = {key: wanted[key] for key in keys[:cut]}
    outer = {key: wanted[key] for key in keys[cut:] if key != group}
    return {group: inner, **outer} if world.chance(0.6) else {**outer, group: inner}


def extract(world: World) -> Exchange:
    """Fields of a text as JSON, in the order in which they were asked for."""
    if world.chance(0.3):
        return structured.extract(world)
    items, sentences = record(world)
    text = as_text(world, items, sentences)
    wanted = _wanted(world, items)
    think = " ".join(f"{key}: {said(v) if isinstance(v, str | int | list) else v}." for key, v in wanted.items())
    roll = world.rng.random()
    if roll < 0.08:
        wanted = _nested(world, wanted)
        user = world.ask("extract_schema", j=shown_schema(world, wanted), s=text)
    elif roll < 0.4:
        user = world.ask("extract_schema", j=shown_schema(world, _without_null(wanted)), s=text)
    elif roll < 0.48:
        user = world.ask("extract_schema", j="\n" + key_lines(world, list(wanted)), s=text)
    else:
        user = world.ask("extract", k=key_list(world, list(wanted)), s=text)
    return Exchange("extract", user, json.dumps(wanted, ensure_ascii=False), think, ("json",))


def _without_null(wanted: Wanted) -> Wanted:
    """A schema does not tell what is missing."""
    return {key: "" if value is None else value for key, value in wanted.items()}


def make_json(world: World) -> Exchange:
    """Pairs of keys and values, as people write them, as an object."""
    if world.chance(0.4):
        return structured.make_json(world)
    rng = world.rng
    if world.chance(0.5):
        items, _ = record(world)
        pairs: dict[str, Value] = {item.key: item.value for item in items[:4] if not isinstance(item.value, list)}
    else:
        kinds = ("number", "first", "word", "colour", "city", "small", "date", "code", "food", "full", "email")
        pairs = {key: draw(world, rng.choice(kinds)) for key in world.sample("n", world.number(1, 4))}
    form = rng.choice(
        (
            "{k} = {v}",
            "{k} {v}",
            "{k}: {v}",
            "the {k} is {v}",
            "{k} set to {v}",
            "{k} is {v}",
            "{k}={v}",
            "{k} -> {v}",
            '"{k}" is "{v}"',
            "{v} as {k}",
            "a {k} of {v}",
            "{k} ({v})",
            "{k} being {v}",
            "{k} equal to {v}",
        )
    )
    joint = rng.choice((", ", " and ", "; ", "\n", ", ", " & ", ", and "))
    text = joint.join(form.format(k=k, v=v) for k, v in pairs.items())
    text = "\n" + text if "\n" in joint and len(pairs) > 1 else text
    answer = json.dumps(pairs, ensure_ascii=False)
    return Exchange("make_json", world.ask("make_json", p=text), answer, f"The keys are {', '.join(pairs)}.", ("json",))
