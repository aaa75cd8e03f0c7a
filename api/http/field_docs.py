"""Writes down what becomes of every field of every endpoint, from the tables that decide it: FIELDS.md.

    python -m hemiola.api.http.field_docs > api/http/FIELDS.md

A test holds the page against the tables.
"""

import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from ..programs.schema import (
    MAX_BRANCHES,
    MAX_BYTES,
    MAX_NODES,
    MAX_REFERENCES,
    MAX_STEPS,
    ForkStep,
    GenStep,
    ImageStep,
    JoinStep,
    KeepStep,
    LetStep,
    Said,
    SelectStep,
    Texts,
    TurnStep,
    Value,
    Values,
    VideoStep,
)
from .fields import FieldTable
from .media_fields import IMAGE_FIELDS, VIDEO_FIELDS
from .program_asks import PROGRAM_FIELDS
from .text_fields import CHAT_FIELDS, COMPLETION_FIELDS, DETOKENIZE_FIELDS, TOKENIZE_FIELDS

ENDPOINTS: Mapping[str, FieldTable] = {
    "POST /v1/chat/completions": CHAT_FIELDS,
    "POST /v1/completions": COMPLETION_FIELDS,
    "POST /v1/images/generations": IMAGE_FIELDS,
    "POST /v1/videos": VIDEO_FIELDS,
    "POST /v1/programs": PROGRAM_FIELDS,
    "POST /tokenize": TOKENIZE_FIELDS,
    "POST /detokenize": DETOKENIZE_FIELDS,
}

_INTRODUCTION = """# Fields of requests

Written by `hemiola.api.http.field_docs` from the tables that the server decides by. `null` is as good as absence.
A field is honoured, accepted without effect, or refused with status 400 and code `unsupported_parameter` (unless its
value says what is so anyway). A field that is not listed is ignored and logged, or refused with `--strict-params`.
"""


_PROGRAMS = """## What programs consist of

`program` is `{"version": 1, "steps": [...]}`. Each of these has its name as `type`. Steps are turn, image, video, fork,
join, keep and let; gen and select stand in turns; value, said, list and text stand in texts. A field without a value
here has to be said. Nothing runs before all of it was found right.
"""
_PARTS = (TurnStep, GenStep, SelectStep, ImageStep, VideoStep, ForkStep, JoinStep, KeepStep, LetStep)
_REFERENCES = (Value, Said, Values, Texts)


def to_markdown() -> str:
    """The whole page."""
    sections = (line for name, table in ENDPOINTS.items() for line in _section(name, table))
    return "\n".join([_INTRODUCTION, *sections, *_of_programs()])


def _of_programs() -> Iterator[str]:
    yield from (_PROGRAMS, "| type | what it is | fields |", "|---|---|---|")
    for kind in (*_PARTS, *_REFERENCES):
        what = " ".join(inspect.getdoc(kind).split())  # type: ignore[union-attr]  # each has a docstring
        fields = ", ".join(_field(field) for field in msgspec.structs.fields(kind))
        yield f"| `{kind.__struct_config__.tag}` | {_cell(what)} | {fields} |"
    limits = {"steps": MAX_STEPS, "nodes": MAX_NODES, "branches": MAX_BRANCHES, "references": MAX_REFERENCES}
    counts = ", ".join(f"{count} {what}" for what, count in limits.items())
    yield f"\nAt most {counts}, and {MAX_BYTES} bytes of JSON.\n"


def _field(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return f"`{field.name}`"
    return f"`{field.name}` ({msgspec.json.encode(field.default).decode()})"


def _section(name: str, table: FieldTable) -> Iterator[str]:
    yield from (f"## {name}", "", "| field | what it does |", "|---|---|")
    yield from (f"| `{field}` | {_cell(text)} |" for field, text in table.honoured.items())
    if table.harmless:
        yield from ("", f"Without effect: {', '.join(f'`{field}`' for field in sorted(table.harmless))}.")
    if table.unsupported:
        yield from ("", "| refused | unless it is | instead |", "|---|---|---|")
        for field, values in table.unsupported.items():
            yield f"| `{field}` | {_values(values)} | {_cell(table.hints.get(field, ''))} |"
    yield ""


def _values(values: Collection[Any]) -> str:
    return ", ".join(f"`{msgspec.json.encode(value).decode()}`" for value in values)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(to_markdown(), end="")
