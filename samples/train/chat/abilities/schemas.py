"""How people show the keys that they want: lists in many styles, JSON skeletons and schemas, types, forms, tables."""

import json
import re

from samples.train.chat.world import World

Shown = dict[str, object]


def styled_keys(world: World, keys: list[str]) -> list[str]:
    """All keys in one style of writing; mostly as they are."""
    roll = world.rng.random()
    if roll < 0.72:
        return keys
    parts = [re.split(r"_|(?<=[a-z])(?=[A-Z])", key) for key in keys]
    if roll < 0.80:
        return [words[0].lower() + "".join(word.capitalize() for word in words[1:]) for words in parts]
    if roll < 0.86:
        return [" ".join(words).lower() for words in parts]
    if roll < 0.91:
        return [" ".join(word.capitalize() for word in words) for words in parts]
    if roll < 0.95:
        return ["_".join(words).upper() for words in parts]
    return ["".join(word.capitalize() for word in words) for words in parts]


def key_list(world: World, keys: list[str]) -> str:
    """The keys as they stand in a sentence."""
    rng, roll = world.rng, world.rng.random()
    if roll < 0.58:
        shown = keys
    else:
        mark = rng.choice(('"{}"', '"{}"', "'{}'", "`{}`", "`{}`", "<{}>", "{{{}}}", "*{}*"))
        shown = [mark.format(key) for key in keys]
    roll = rng.random()
    if len(shown) == 1:
        return shown[0]
    if roll < 0.4:
        return (
            ", ".join(shown[:-1])
            + rng.choice((" and ", " and ", ", and ", " & ", " as well as ", " plus "))
            + shown[-1]
        )
    if roll < 0.75:
        return ", ".join(shown)
    if roll < 0.85:
        return rng.choice(("; ", "/", " / ", ",", " + ", " | ")).join(shown)
    if roll < 0.92:
        return "[" + ", ".join(shown) + "]" if world.chance(0.6) else "(" + ", ".join(shown) + ")"
    return rng.choice((", then ", " and ", " and also ")).join(shown)


def key_lines(world: World, keys: list[str]) -> str:
    """The keys one a line."""
    mark = world.rng.choice(
        ("- {}", "* {}", "{}", "• {}", "- {}:", "{}:", "- `{}`", "-> {}", "[ ] {}", "{}: ?", "{}: ___", '"{}"')
    )
    if world.chance(0.12):
        return "\n".join(f"{i}. {key}" for i, key in enumerate(keys, 1))
    return "\n".join(mark.format(key) for key in keys)


def _type(value: object, names: dict[str, str]) -> str:
    if isinstance(value, bool):
        return names["bool"]
    return names["int" if isinstance(value, int) else "list" if isinstance(value, list) else "str"]


_NAMES = (
    {"str": "string", "int": "number", "bool": "boolean", "list": "string[]"},
    {"str": "str", "int": "int", "bool": "bool", "list": "list[str]"},
    {"str": "text", "int": "number", "bool": "yes/no", "list": "list"},
    {"str": "String", "int": "Integer", "bool": "Boolean", "list": "Array"},
)


def json_schema(world: World, wanted: Shown) -> str:
    """A JSON schema as APIs use it."""
    names = {"str": "string", "int": "integer" if world.chance(0.6) else "number", "bool": "boolean", "list": "array"}
    properties: dict[str, object] = {}
    for key, value in wanted.items():
        if isinstance(value, dict):
            properties[key] = {"type": "object", "properties": {k: {"type": _type(v, names)} for k, v in value.items()}}
        elif isinstance(value, list):
            properties[key] = {"type": "array", "items": {"type": "string"}}
        else:
            properties[key] = {"type": _type(value, names)}
    schema: dict[str, object] = {"type": "object", "properties": properties}
    if world.chance(0.5):
        schema["required"] = list(wanted)
    if world.chance(0.2):
        schema["additionalProperties"] = False
    return json.dumps(schema, indent=world.rng.choice((None, None, 2)))


def skeleton(world: World, wanted: Shown) -> str:
    """The object with empty or telling values."""
    rng = world.rng
    style = rng.randrange(8)

    def blank(key: str, value: object) -> object:
        if isinstance(value, dict):
            return {k: blank(k, v) for k, v in value.items()}
        if isinstance(value, list):
            return rng.choice(([], ["..."], ["string"]))
        is_number = isinstance(value, int)
        return (
            0 if is_number else "", "...", "number" if is_number else "string", f"<{key}>", None, "?",
            "int" if is_number else "str", "integer" if is_number else "text",
        )[style]  # fmt: skip

    return json.dumps(
        {key: blank(key, value) for key, value in wanted.items()}, indent=rng.choice((None, None, None, 2))
    )


def typed(world: World, wanted: Shown) -> str:
    """A type as programmers write it, or a form as everybody does."""
    rng = world.rng
    names = rng.choice(_NAMES)
    flat = {key: "object" if isinstance(value, dict) else _type(value, names) for key, value in wanted.items()}
    title = rng.choice(("Record", "Item", "Entry", "Result", "Output", "Data", "Row", "Answer", "Info"))
    forms = (
        lambda: "{ " + "; ".join(f"{key}: {kind}" for key, kind in flat.items()) + " }",
        lambda: "{" + ", ".join(f"{key}: {kind}" for key, kind in flat.items()) + "}",
        lambda: f"interface {title} {{\n" + "".join(f"  {key}: {kind};\n" for key, kind in flat.items()) + "}",
        lambda: f"type {title} = {{ " + ", ".join(f"{key}: {kind}" for key, kind in flat.items()) + " }",
        lambda: f"class {title}:\n" + "\n".join(f"    {key}: {kind}" for key, kind in flat.items()),
        lambda: "\n".join(f"{rng.choice(('- ', '* '))}{key} ({kind})" for key, kind in flat.items()),
        lambda: "\n".join(f"{key}: {kind}" for key, kind in flat.items()),
        lambda: ", ".join(f"{key} ({kind})" for key, kind in flat.items()),
        lambda: "| field | type |\n|---|---|\n" + "\n".join(f"| {key} | {kind} |" for key, kind in flat.items()),
        lambda: "| " + " | ".join(flat) + " |",
        lambda: ", ".join(f"{key}=?" for key in flat),
        lambda: "\n".join(f"{key}: ____" for key in flat),
        lambda: "{" + ", ".join(flat) + "}",
        lambda: "{" + ", ".join(f'"{key}"' for key in flat) + "}",
        lambda: "<" + ">, <".join(flat) + ">",
        lambda: key_lines(world, list(flat)),
    )
    return rng.choice(forms)()


def shown_schema(world: World, wanted: Shown) -> str:
    """Any of the ways."""
    roll = world.rng.random()
    if roll < 0.3:
        return json_schema(world, wanted)
    has_parts = any(isinstance(value, dict) for value in wanted.values())
    return skeleton(world, wanted) if roll < 0.65 or has_parts else typed(world, wanted)
