"""Bodies of media requests, sent as JSON or as multipart forms, read into one kind of `Fields`.

JSON is taken strictly: `"3"` is no integer. In a form everything is a string, so `3`, `true` and JSON texts are read as
what they say. Nested names of forms (`lora[name]`, `list[]`) become objects and lists. Files are measured and dropped:
no pipeline here takes one. Knows no field by name except those that only wrap others.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from hemiola.core.errors import InvalidRequest

from .body import read_object
from .errors import malformed
from .fields import Fields, plain
from .server import server_of

MAX_PARTS = 200

# Objects whose entries count as if they stood beside them, where those are not given.
_WRAPPERS = ("extra_body", "extra_params", "extra_args", "diffusers_kwargs")
_NESTED = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])+)")


@dataclass(frozen=True, slots=True)
class File:
    """A file in a form, of which only the size is kept; its name and type are whatever the sender claims."""

    nbytes: int


async def read_fields(request: Request) -> Fields:
    """The body's fields, with those of wrapping objects beside the others.

    Raises:
        HttpError: the body is too large, or neither JSON nor a form.
        InvalidRequest: it is wrong in itself.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "multipart/form-data":
        return Fields(_unwrapped(await _read_form(request)), is_form=True)
    return Fields(_unwrapped(await read_object(request)), is_form=False)


async def _read_form(request: Request) -> dict[str, Any]:
    settings = server_of(request).settings
    parser = MultiPartParser(
        request.headers,
        request.stream(),
        max_files=MAX_PARTS,
        max_fields=MAX_PARTS,
        max_part_size=settings.max_json_bytes,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise malformed(f"The body is not a valid multipart form: {error.message}") from error
    values: dict[str, Any] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            _put(values, name, File(value.size or 0))
            await value.close()
        else:
            _put(values, name, value)
    return values


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    """Adds a part under its name; `a[b]` goes into an object, `a[]` and a name that comes again into a list."""
    match = _NESTED.fullmatch(name)
    if match is None:
        if name in values:
            raise InvalidRequest(plain(name), f"Invalid '{plain(name)}': given more than once.")
        values[name] = value
        return
    first, keys = match[1], re.findall(r"\[([^\[\]]*)\]", match[2])
    if keys == [""]:
        values.setdefault(first, [])
        if isinstance(values[first], list):
            values[first].append(value)
        return
    inner = values.setdefault(first, {})
    for key in keys[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner
    if isinstance(inner, dict):
        inner[keys[-1]] = value


def _unwrapped(values: dict[str, Any]) -> Mapping[str, Any]:
    for name in _WRAPPERS:
        wrapped = values.pop(name, None)
        if isinstance(wrapped, str):
            wrapped = _parsed(wrapped)
        if wrapped is None:
            continue
        if not isinstance(wrapped, dict):
            raise InvalidRequest(name, f"Invalid type for '{name}': expected an object.", "invalid_type")
        values = wrapped | values
    return values


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
