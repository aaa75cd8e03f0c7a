"""Programs on a server of somebody else's: all that the plain OpenAI protocol can say, and refusals by name beyond."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import hemiola as hm
from hemiola.core.errors import InvalidRequest
from hemiola.core.hub import resolve_all
from hemiola.llm.tokenizer import TextTokenizer
from hemiola.tests.api.programs.plain_server import PlainServer, running


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[PlainServer, hm.Client]]:
    server = PlainServer()
    with running(server) as address, hm.Client(base_url=address) as client:
        yield server, client


@hm.tool
def weather(city: str) -> str:
    """Tells the weather."""
    return f"sunny in {city}"


def test_texts_tools_forks_and_pictures_need_no_extension(plain: tuple[PlainServer, hm.Client]) -> None:
    @hm.program
    def book(s: hm.State) -> None:
        s += hm.system("Be short.")
        s += hm.user("A fox?")
        s += hm.assistant(hm.gen("story", max_tokens=20, temperature=0.5, top_p=0.9, seed=3, stop="\n"))
        for i, scene in enumerate(s.fork(2)):
            scene += hm.user(f"Scene {i}")
            scene += hm.assistant(hm.gen("lines", n=2))
            scene += hm.gen_image("picture", scene["lines"][1], size=(16, 16))
        s += hm.user("Weather?")
        s += hm.assistant(hm.gen("report", tools=[weather]))

    _, client = plain
    run = book.on(client).run().raise_for_errors()
    assert run["story"] == "You said: A fox?"
    assert [fork["lines"] for fork in run.forks] == [2 * ["You said: Scene 0"], 2 * ["You said: Scene 1"]]
    assert run.forks[1]["picture"].image.getpixel((0, 0)) == (len("You said: Scene 1"), 0, 0)
    assert run["report"] == "You said: sunny in Oslo"
    assert [message["role"] for message in run.messages()[-3:]] == ["assistant", "tool", "assistant"]
    assert run.nodes[0].usage is not None and run.nodes[0].usage.prompt_tokens == 7


def test_plain_text_is_completed(plain: tuple[PlainServer, hm.Client]) -> None:
    @hm.program
    def tale(s: hm.State) -> None:
        s += "Once"
        s += hm.gen("rest", max_tokens=5)

    assert tale.on(plain[1]).run().text() == "Once upon a time"


@pytest.mark.parametrize(
    ("expressions", "param"),
    [
        ([hm.user("?"), hm.assistant("It is ", hm.gen("x"))], "continue_final_message"),
        ([hm.user("?"), hm.gen("x", top_k=5)], "top_k"),
        ([hm.user("?"), hm.gen("x", enable_thinking=True)], "chat_template_kwargs"),
        ([hm.gen_image("x", "a fox", seed=1)], "seed"),
        ([hm.gen_image("x", "a fox", steps=4)], "steps"),
        ([hm.gen_video("x", "a fox", frames=9)], "frames"),
    ],
)
def test_what_the_protocol_has_no_word_for_is_refused_by_name_and_never_sent(
    plain: tuple[PlainServer, hm.Client], expressions: list[Any], param: str
) -> None:
    @hm.program
    def beyond(s: hm.State) -> None:
        for expression in expressions:
            s += expression

    server, client = plain
    before = len(server.bodies)
    (error,) = beyond.on(client).run().errors
    assert f"'{param}' is not of the OpenAI API" in str(error) and "owned_by: somebody" in str(error)
    assert "test_plain_server.py:" in str(error) and error.code == "unsupported_parameter"
    assert len(server.bodies) == before


def test_a_clip_where_there_are_none_says_so(plain: tuple[PlainServer, hm.Client]) -> None:
    @hm.program
    def clip(s: hm.State) -> None:
        s += hm.gen_video("clip", "a fox")

    (error,) = clip.on(plain[1]).run().errors
    assert "'clip' (test_plain_server.py:" in str(error) and "404" in str(error)


@pytest.mark.parametrize(("owner", "extensions"), [("vllm", None), ("somebody", True)])
def test_servers_that_are_known_to_honour_more_are_asked_more(owner: str, extensions: bool | None) -> None:
    server = PlainServer(owner)
    refused = pytest.raises(InvalidRequest, match="Unrecognized request argument supplied: top_k")
    with running(server) as address, hm.Client(address, extensions=extensions) as client, refused:
        client.chat("?", top_k=5)
    assert server.bodies[0][1]["top_k"] == 5


@pytest.fixture(scope="module")
def reference() -> Any:
    path = next(source.path for source in resolve_all(["demo"]) if source.kind == "language")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True).eval()
    tokenizer = TextTokenizer(path)

    def logprobs(text: str) -> dict[str, Any]:
        """As vLLM tells them: none for the first token, one token more at the end."""
        ids = tokenizer.encode(text)
        tokens = [tokenizer.decode([token_id], skip_special_tokens=False) for token_id in ids]
        with torch.inference_mode():
            found = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), -1)
        told = [None, *(float(found[i, ids[i + 1]]) for i in range(len(ids) - 1)), -0.5]
        offsets = [sum(map(len, tokens[:i])) for i in range(len(ids) + 1)]
        return {"tokens": [*tokens, "!"], "token_logprobs": told, "text_offset": offsets}

    return logprobs


@pytest.mark.parametrize("scoring", ["mean", "sum", "greedy"])
def test_select_in_plain_text_is_exact_where_completions_tell_log_probabilities(
    demo: hm.Engine, reference: Any, scoring: Any
) -> None:
    @hm.program
    def moods(s: hm.State) -> None:
        s += "The capital of France is"
        s.select("city", [" Paris", " Rome", " a city", "ly"], scoring=scoring)

    with running(PlainServer(logprobs=reference)) as address, hm.Client(address) as client:
        there = moods.on(client).run().raise_for_errors()
    here = moods.on(demo).run().raise_for_errors()
    assert there["city"] == here["city"]
    for mine, theirs in zip(here.scores("city"), there.scores("city"), strict=True):
        assert theirs.choice == mine.choice
        assert theirs.logprobs == pytest.approx(mine.logprobs, abs=1e-4)


def test_select_elsewhere_is_refused_by_name(plain: tuple[PlainServer, hm.Client], reference: Any) -> None:
    @hm.program
    def choose(s: hm.State, is_chat: bool, scoring: Any) -> None:
        s += hm.user("?") if is_chat else "Once"
        s.select("mood", [" calm", " sad"], scoring=scoring)

    def why(client: hm.Client, is_chat: bool, scoring: str) -> str:
        (error,) = choose.on(client).run(is_chat, scoring).errors
        assert "'mood' (test_plain_server.py:" in str(error)
        return str(error)

    assert "scores no choices in a conversation" in why(plain[1], True, "mean")
    assert "'echo' is not supported" in why(plain[1], False, "mean")
    with running(PlainServer(logprobs=reference)) as address, hm.Client(address) as client:
        assert "without a prompt, as scoring 'unconditional' needs" in why(client, False, "unconditional")
    with running(PlainServer(logprobs=lambda _: {"tokens": "x"})) as address, hm.Client(address) as client:
        assert "tells log probabilities in another way" in why(client, False, "mean")


def test_a_client_needs_one_address() -> None:
    wrong: list[dict[str, Any]] = [{}, {"url": "http://a", "base_url": "http://b"}]
    for addresses in wrong:
        with pytest.raises(InvalidRequest, match="Say where the server is"):
            hm.Client(**addresses)
