"""Routes beside generation: models, tokens, health, figures, and what administrators do."""

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

import hemiola
from hemiola.api.http.settings import Settings

from .text_rig import CONTEXT_LEN, Reciter, RecitingCalls, served


def test_models_are_listed_with_their_aliases(calls: RecitingCalls) -> None:
    settings = Settings(aliases={"gpt-4o": "org/tiny", "lost": "none"})
    with served(calls, settings) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="any") as client:
        models = {model.id: model for model in client.models.list()}
        assert list(models) == ["org/tiny", "gpt-4o"]
        extra = models["gpt-4o"].model_extra
        assert extra is not None and extra["root"] == "org/tiny" and extra["max_model_len"] == CONTEXT_LEN
        assert extra["modalities"] == {"input": ["text"], "output": ["text"]}
        # Sent as org%2Ftiny.
        assert client.models.retrieve("org/tiny") == models["org/tiny"]
        answer = client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "Hi!"}])
        assert answer.model == "gpt-4o" and calls.reciter.requests[-1].model == "org/tiny"


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_texts_become_tokens_and_back(http: httpx.Client, reciter: Reciter, prefix: str) -> None:
    ids = reciter.tokenizer.encode("the fox 漢")
    body = http.post(f"{prefix}/tokenize", json={"prompt": "the fox 漢", "return_token_strs": True}).json()
    assert body["tokens"] == ids and body["count"] == len(ids) and body["max_model_len"] == CONTEXT_LEN
    assert body["token_strs"] == [reciter.tokenizer.token(i) for i in ids]
    assert http.post(f"{prefix}/detokenize", json={"tokens": ids}).json() == {
        "prompt": "the fox 漢",
        "text": "the fox 漢",
    }


def test_several_texts_become_several_lists(http: httpx.Client, reciter: Reciter) -> None:
    body = http.post("/tokenize", json={"prompt": ["a", "bcd"]}).json()
    assert body["tokens"] == [reciter.tokenizer.encode("a"), reciter.tokenizer.encode("bcd")]
    assert body["count"] == [1, 3] and body["token_strs"] is None


def test_a_conversation_becomes_the_tokens_of_its_prompt(http: httpx.Client, reciter: Reciter) -> None:
    messages = [{"role": "user", "content": "Hi!"}]
    assert http.post("/v1/chat/completions", json={"messages": messages}).status_code == 200
    body = http.post("/tokenize", json={"messages": messages, "model": "org/tiny"}).json()
    assert body["tokens"] == list(reciter.requests[0].token_ids)
    shorter = http.post("/tokenize", json={"messages": messages, "add_generation_prompt": False}).json()
    assert shorter["count"] < body["count"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/tokenize", {}, "missing_required_parameter"),
        ("/tokenize", {"prompt": "a", "messages": []}, "missing_required_parameter"),
        ("/tokenize", {"prompt": [1]}, "invalid_type"),
        ("/tokenize", {"prompt": []}, "invalid_value"),
        ("/tokenize", {"prompt": "a", "model": "none"}, "model_not_found"),
        ("/tokenize", {"messages": [{"role": "user"}]}, "missing_required_parameter"),
        ("/detokenize", {}, "missing_required_parameter"),
        ("/detokenize", {"tokens": "a"}, "invalid_type"),
        ("/detokenize", {"tokens": [10**9]}, "integer_above_max_value"),
    ],
)
def test_mistakes_of_tokenizing_name_their_field(http: httpx.Client, path: str, body: object, code: str) -> None:
    response = http.post(path, json=body)
    assert response.status_code in (400, 404) and response.json()["error"]["code"] == code


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_is_that_of_the_engine(http: httpx.Client, calls: RecitingCalls, path: str) -> None:
    assert http.get(path).json() == {"status": "ok"} and http.head(path).status_code == 200
    for condition in ("starting", "draining", "dead"):
        calls.condition_now = condition
        response = http.get(path)
        assert response.status_code == 503 and response.json() == {"status": condition}
        assert int(response.headers["retry-after"]) > 0
    assert http.get("/liveness").status_code == http.get("/ping").status_code == 200


def test_health_can_be_asked_of_a_real_token(http: httpx.Client, reciter: Reciter, calls: RecitingCalls) -> None:
    assert http.get("/health_generate").status_code == 200
    assert [request.sampling.max_tokens for request in reciter.requests] == [1]
    calls.condition_now = "dead"
    assert http.get("/health_generate").status_code == 503 and len(reciter.requests) == 1


def test_the_server_says_what_it_is(http: httpx.Client) -> None:
    assert http.get("/version").json() == {"version": hemiola.__version__}
    info = http.get("/server_info").json()
    assert info["status"] == "ready" and [model["served_model_name"] for model in info["models"]] == ["org/tiny"]
    assert http.get("/model_info", params={"model": "org/tiny"}).json() == info["models"][0]
    assert http.get("/get_model_info").json() == info["models"][0]
    assert http.get("/model_info", params={"model": "none"}).status_code == 404


def test_figures_are_the_engines_and_those_of_http(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": "a"})
    http.get("/no/such/route/1")
    families = {family.name: family for family in text_string_to_metric_families(http.get("/metrics").text)}
    assert families["hemiola_fake"].samples[0].value == 1
    counted = [sample.labels for sample in families["hemiola_http_responses"].samples]
    assert {"route": "/v1/completions", "method": "POST", "status": "200"} in counted
    assert {"route": "other", "method": "GET", "status": "404"} in counted


def test_the_caches_can_be_emptied(http: httpx.Client, calls: RecitingCalls) -> None:
    assert http.post("/flush_cache").json() == {"success": True, "num_tokens": 7}
    assert http.get("/flush_cache").status_code == http.post("/reset_prefix_cache").status_code == 200
    calls.condition_now = "dead"
    assert http.post("/flush_cache").status_code == 500
