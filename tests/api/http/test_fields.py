"""The tables of fields say what the code does, and the page says what the tables do."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from hemiola.api.http import field_docs
from hemiola.api.http.fields import Fields, FieldTable
from hemiola.api.http.settings import Settings
from hemiola.api.http.text_fields import CHAT_FIELDS, COMPLETION_FIELDS, DETOKENIZE_FIELDS, TOKENIZE_FIELDS

from .text_rig import Reciter, RecitingCalls, served

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI: Any = [{"role": "user", "content": "Hi!"}]
LEAST: dict[str, Any] = {"messages": HI, "prompt": "a"}
TABLES = ((CHAT, "messages", CHAT_FIELDS), (COMPLETIONS, "prompt", COMPLETION_FIELDS))


def test_the_page_of_fields_is_up_to_date(root: Path) -> None:
    written = (root / "api" / "http" / "FIELDS.md").read_text(encoding="utf-8")
    assert written == field_docs.to_markdown(), "python -m hemiola.api.http.field_docs > api/http/FIELDS.md"


@pytest.mark.parametrize("table", [*field_docs.ENDPOINTS.values()])
def test_a_field_has_one_fate(table: FieldTable) -> None:
    names = [*table.honoured, *table.harmless, *table.unsupported]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("bodies", "table", "path"),
    [
        ([{"messages": HI}, {"messages": HI, "max_completion_tokens": 3}], CHAT_FIELDS, CHAT),
        ([{"prompt": "a"}], COMPLETION_FIELDS, COMPLETIONS),
        ([{"prompt": "a"}, {"messages": HI}], TOKENIZE_FIELDS, "/tokenize"),
        ([{"tokens": [5]}], DETOKENIZE_FIELDS, "/detokenize"),
    ],
)
def test_the_fields_that_are_honoured_are_those_that_are_read(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, bodies: Any, table: FieldTable, path: str
) -> None:
    read: set[str] = set()
    refuse_rest = Fields.refuse_rest

    def watched(self: Fields, *args: Any, **options: Any) -> None:
        read.update(self.names_read)
        refuse_rest(self, *args, **options)

    monkeypatch.setattr(Fields, "refuse_rest", watched)
    for body in bodies:
        assert http.post(path, json=body).status_code == 200
    assert read == set(table.honoured)


@pytest.mark.parametrize(
    ("path", "needed", "field", "values"),
    [(path, needed, field, values) for path, needed, t in TABLES for field, values in t.unsupported.items()],
)
def test_what_is_not_supported_is_refused_unless_it_changes_nothing(
    http: httpx.Client, path: str, needed: str, field: str, values: Any
) -> None:
    least = {needed: LEAST[needed], "max_tokens": 1}
    refused = http.post(path, json=least | {field: {"surely": "not this"}})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unsupported_parameter" and refused.json()["error"]["param"] == field
    for value in (None, *values):
        assert http.post(path, json=least | {field: value}).status_code == 200, value


@pytest.mark.parametrize(("path", "needed", "table"), TABLES)
def test_harmless_fields_are_accepted(http: httpx.Client, path: str, needed: str, table: FieldTable) -> None:
    for field in table.harmless:
        assert http.post(path, json={needed: LEAST[needed], field: "anything"}).status_code == 200


@pytest.mark.parametrize(("path", "needed", "table"), TABLES)
def test_null_is_as_good_as_absence(
    http: httpx.Client, reciter: Reciter, path: str, needed: str, table: FieldTable
) -> None:
    nulls = dict.fromkeys((*table.honoured, *table.harmless, *table.unsupported))
    assert http.post(path, json=nulls | {needed: LEAST[needed]}).status_code == 200
    assert http.post(path, json={needed: LEAST[needed]}).status_code == 200
    one, other = (request.sampling for request in reciter.requests)
    assert (one.temperature, one.top_p, one.max_tokens) == (other.temperature, other.top_p, other.max_tokens)


@pytest.mark.parametrize(("path", "needed", "table"), TABLES)
def test_unknown_fields_are_ignored_unless_the_server_is_strict(
    http: httpx.Client, calls: RecitingCalls, path: str, needed: str, table: FieldTable
) -> None:
    body = {needed: LEAST[needed], "frobnicate": 1}
    assert http.post(path, json=body).status_code == 200
    with served(calls, Settings(strict_params=True)) as address:
        refused = httpx.post(f"{address}{path}", json=body)
        assert refused.status_code == 400 and refused.json()["error"]["code"] == "unknown_parameter"
        assert httpx.post(f"{address}{path}", json={needed: LEAST[needed], "user": "me"}).status_code == 200
