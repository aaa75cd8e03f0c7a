"""What callers of the text calls get, end to end: stops, ends, seeds, log probabilities, shared prompts, characters."""

import re
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from hemiola.api.engine import Engine
from hemiola.api.results import Answer
from hemiola.core.events import Finished, Token

from .models import END_OF_TURN, RECITED, chat, folder, prompt_ids, text_front
from .rig import Rig

PAGE_LEN = 4
NUM_RECITED = 17  # tokens: `ed` is one, 漢 is three, 😀 is four


def recite(engine: Engine, **options: Any) -> Answer:
    (answer,) = engine.chat("Say it.", model="reciter", **{"temperature": 0.0, **options}).answers
    return answer


# Stops and ends


def test_an_answer_ends_with_the_turn(engine: Engine) -> None:
    answer = recite(engine)
    assert (answer.text, answer.finish_reason, answer.stop_reason) == (RECITED, "stop", END_OF_TURN)
    assert len(answer.tokens) == NUM_RECITED, "The token that ends the turn is not shown,"
    assert answer.usage.completion_tokens == NUM_RECITED + 1, "but it was generated."
    assert END_OF_TURN not in answer.token_ids


@pytest.mark.parametrize(
    ("stop", "text", "num_tokens"),
    [
        ("x", "wed", 3),
        ("dx", "we", 3),  # begins inside a token, ends with another
        ("e", "w", 2),  # inside a token
        ("ed", "w", 2),
        ("xé", "wed", 5),
        ("é漢", "wedx", 8),  # over characters of several tokens
        ("漢😀s", "wedxé", 13),
        ("sTop", "wedxé漢😀", 16),
        ("!", "wedxé漢😀sTop", 17),
        (["nothing", "To", "op"], "wedxé漢😀s", 15),
        (["op", "sTop"], "wedxé漢😀", 16),  # of two that end together, the one that began first
        ([RECITED[:-1], "never"], "", 16),
    ],
)
def test_stop_strings_cut_the_text_exactly(engine: Engine, stop: Any, text: str, num_tokens: int) -> None:
    answer = recite(engine, stop=stop)
    assert (answer.text, answer.finish_reason) == (text, "stop")
    assert answer.stop_reason in ([stop] if isinstance(stop, str) else stop)
    assert len(answer.tokens) == answer.usage.completion_tokens == num_tokens, "Nothing is shown of what came after."
    assert "".join(token.text for token in answer.tokens) == text


@pytest.mark.parametrize("stop", ["Top?", "xe", "漢 ", RECITED + "?", ["!!", "nothing"]])
def test_what_only_begins_like_a_stop_string_is_shown(engine: Engine, stop: Any) -> None:
    answer = recite(engine, stop=stop)
    assert (answer.text, answer.stop_reason) == (RECITED, END_OF_TURN)
    assert len(answer.tokens) == NUM_RECITED


def test_a_stop_string_that_the_token_limit_cuts_off_is_shown(engine: Engine) -> None:
    answer = recite(engine, stop="xé", max_tokens=4)
    assert (answer.text, answer.finish_reason, answer.usage.completion_tokens) == ("wedx", "length", 4)


def test_a_stop_string_ends_the_request_in_the_engine_too(engine: Engine) -> None:
    """Else it would go on computing what nobody sees, up to the token limit."""
    ids = prompt_ids(8, 6)
    free = engine.complete(ids, model="chat", temperature=0.0, max_tokens=300, ignore_eos=True).answers[0]
    character = next(c for c in free.text if c.isprintable() and c != "\N{REPLACEMENT CHARACTER}")
    num_before = len(engine.trace)
    cut = engine.complete(ids, model="chat", temperature=0.0, max_tokens=300, ignore_eos=True, stop=character)
    assert cut.text == free.text[: free.text.index(character)] and cut.finish_reason == "stop"
    assert cut.usage.completion_tokens == len(cut.answers[0].tokens) < 50
    assert len(engine.trace) - num_before < 250, "It goes on only until the engine is told."


@pytest.mark.parametrize(("ends", "text", "num_tokens"), [("x", "wed", 3), ("ed", "w", 2), ("!", RECITED[:-1], 17)])
def test_stop_token_ids_end_the_answer_and_are_not_shown(engine: Engine, ends: str, text: str, num_tokens: int) -> None:
    (token_id,) = text_front("reciter").tokenizer.encode(ends)
    answer = recite(engine, stop_token_ids=[token_id, 5])
    assert (answer.text, answer.finish_reason, answer.stop_reason) == (text, "stop", token_id)
    assert answer.usage.completion_tokens == num_tokens and token_id not in answer.token_ids


@pytest.mark.parametrize("max_tokens", [1, 4, 17, 18])
def test_max_tokens_ends_the_answer(engine: Engine, max_tokens: int) -> None:
    answer = recite(engine, max_tokens=max_tokens)
    reason = "stop" if max_tokens == 18 else "length"  # the end of the turn is a token, too
    assert (answer.finish_reason, answer.usage.completion_tokens) == (reason, max_tokens)
    assert RECITED.startswith(answer.text)


def test_the_end_of_the_turn_may_be_ignored(engine: Engine) -> None:
    answer = recite(engine, ignore_eos=True, max_tokens=25)
    assert (answer.finish_reason, answer.usage.completion_tokens) == ("length", 25)
    assert answer.text.startswith(RECITED) and answer.token_ids[NUM_RECITED] == END_OF_TURN


# Characters


def test_characters_are_streamed_whole_and_as_soon_as_they_are_complete(engine: Engine) -> None:
    stream = engine.stream_chat("Say it.", model="reciter", temperature=0.0)
    events = list(stream)
    tokens = [event for event in events if isinstance(event, Token)]
    assert isinstance(events[-1], Finished) and len(tokens) == len(events) - 1
    expected = ["w", "ed", "x", "", "é", "", "", "漢", "", "", "", "😀", "s", "T", "o", "p", "!"]
    assert [token.text for token in tokens] == expected
    assert "".join(expected) == text_front("reciter").tokenizer.decode([token.token_id for token in tokens])


@pytest.mark.parametrize("stop", [None, ["\N{SNOWMAN}", "ab"]])
def test_pieces_of_any_bytes_add_up_to_what_the_tokenizer_makes_of_them(engine: Engine, stop: Any) -> None:
    """Random tokens are mostly no UTF-8. Only a character that is unfinished at the very end is not shown."""
    num_exact = 0
    for seed in range(12):
        options = {"temperature": 1.8, "seed": seed, "max_tokens": 40, "ignore_eos": True, "stop": stop}
        (answer,) = engine.complete(prompt_ids(9, seed), model="chat", **options).answers
        whole = text_front("chat").tokenizer.decode(answer.token_ids)
        if answer.stop_reason is not None:
            whole = whole[: whole.index(str(answer.stop_reason))]
        text = re.sub(r"⟨\d+⟩", "", answer.text)  # ids that the tokenizer does not have
        rest = whole.removeprefix(text)
        assert whole.startswith(text) and rest in ("", "\N{REPLACEMENT CHARACTER}")
        num_exact += rest == ""
    assert num_exact >= 6


# Sampling


def reference() -> Any:
    return Qwen3ForCausalLM.from_pretrained(folder("chat"), dtype=torch.float32, attn_implementation="eager").eval()


def test_greedy_tokens_and_log_probabilities_are_those_of_transformers(engine: Engine) -> None:
    prompt = prompt_ids(30, 11)
    options = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True, "logprobs": 4}
    (answer,) = engine.complete(prompt, model="chat", **options).answers
    ids = torch.tensor([[*prompt, *answer.token_ids]])
    log_probs = reference()(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    assert answer.token_ids == tuple(log_probs.argmax(-1).tolist())
    for token, row in zip(answer.tokens, log_probs, strict=True):
        assert token.logprob == pytest.approx(row[token.token_id].item(), abs=1e-4)
        values, places = row.topk(4)
        assert [each.token_id for each in token.top_logprobs] == places.tolist()
        assert [each.logprob for each in token.top_logprobs] == pytest.approx(values.tolist(), abs=1e-4)


def test_log_probabilities_are_of_the_distribution_before_temperature(engine: Engine) -> None:
    prompt = prompt_ids(12, 12)
    options = {"temperature": 1.7, "top_k": 50, "seed": 3, "max_tokens": 10, "ignore_eos": True, "logprobs": 0}
    (answer,) = engine.complete(prompt, model="chat", **options).answers
    ids = torch.tensor([[*prompt, *answer.token_ids]])
    log_probs = reference()(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    expected = log_probs.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    assert [token.logprob for token in answer.tokens] == pytest.approx(expected.tolist(), abs=1e-4)
    assert all(token.top_logprobs == () for token in answer.tokens)
    plain = engine.complete(prompt, model="chat", **{**options, "logprobs": None}).answers[0]
    assert plain.token_ids == answer.token_ids and all(token.logprob is None for token in plain.tokens)


def test_several_answers_are_those_of_the_seeds_that_follow_and_share_their_prompt(engine: Engine) -> None:
    prompt = prompt_ids(61, 13)
    options = {"model": "chat", "temperature": 1.0, "max_tokens": 12, "ignore_eos": True}
    num_before = len(engine.trace)
    several = engine.complete(prompt, n=4, seed=40, **options)
    steps = engine.trace.records[num_before:]
    alone = [engine.complete(prompt, seed=40 + i, **options).answers[0] for i in range(4)]
    assert [answer.token_ids for answer in several.answers] == [answer.token_ids for answer in alone]
    assert len({answer.token_ids for answer in several.answers}) == 4
    assert [answer.usage.cached_tokens for answer in several.answers] == [0, 60, 60, 60]
    assert sum(record.work.new_tokens for record in steps) == 61 + 3 * 1 + 4 * 11
    assert (several.usage.prompt_tokens, several.usage.completion_tokens) == (61, 48)


def test_seeds_left_out_are_drawn_and_differ(engine: Engine) -> None:
    options = {"model": "chat", "temperature": 1.5, "max_tokens": 12, "ignore_eos": True}
    assert len({engine.complete(prompt_ids(5), **options).answers[0].token_ids for _ in range(4)}) == 4


# Shared prefixes


def test_equal_prompts_that_come_together_are_computed_once() -> None:
    rig = Rig(("chat",), max_batch_tokens=16)
    twins = [chat(f"t{i}", prompt_ids(50, 14), 5, temperature=0.5 * i, seed=i) for i in range(5)]
    near = chat("near", [*prompt_ids(50, 14)[:42], *prompt_ids(8, 15)], 5)
    rig.run(*twins, near)
    for request in (*twins, near):
        rig.assert_as_alone(request)
    cached = [rig.finished(request.id).usage.cached_tokens for request in (*twins, near)]
    assert cached == [0, 48, 48, 48, 48, 42], "Whole pages are waited for; of those that are there, parts are taken."
    prompts = sum(record.work.new_tokens for record in rig.trace) - 6 * 4
    assert prompts == 50 + 4 * 2 + 8


def test_salts_keep_equal_prompts_apart() -> None:
    rig = Rig(("chat",))
    same = [chat(f"s{i}", prompt_ids(50, 14), 3, cache_salt=salt) for i, salt in enumerate(("", "a", "b", "a"))]
    for request in same:
        rig.run(request)
        rig.assert_as_alone(request)
    assert [rig.finished(request.id).usage.cached_tokens for request in same] == [0, 0, 0, 49]


def test_without_a_prefix_cache_everything_is_computed() -> None:
    rig = Rig(("chat",), prefix_cache=False)
    same = [chat(f"s{i}", prompt_ids(50, 14), 3) for i in range(2)]
    rig.run(*same)
    assert [rig.finished(request.id).usage.cached_tokens for request in same] == [0, 0]
    rig.assert_nothing_is_held()


def test_turns_of_a_conversation_share_all_that_was_said_before(engine: Engine) -> None:
    messages = [{"role": "user", "content": "Say it, and say it well."}]
    known = 0
    for turn in range(3):
        # The tiny template renders an answer as it was generated only where it had been asked for with thinking.
        answer = engine.chat(messages, model="reciter", temperature=0.0, enable_thinking=True).answers[0]
        assert answer.text == RECITED
        usage = answer.usage
        if turn:
            assert usage.cached_tokens >= known // PAGE_LEN * PAGE_LEN > 0
        known = usage.prompt_tokens + NUM_RECITED
        messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": f"And {turn} again."}]


# Coroutines


async def test_coroutines_get_the_same(engine: Engine) -> None:
    completion = await engine.achat("Say it.", model="reciter", temperature=0.0)
    assert completion.text == RECITED
    stream = engine.stream_chat("Say it.", model="reciter", temperature=0.0, stop="sT")
    texts = [event.text async for event in stream if isinstance(event, Token)]
    assert "".join(texts) == RECITED[: RECITED.index("sT")]
