"""Hidden states for others are those of the transformers library, whoever shares the batch, and end as they should."""

from pathlib import Path

import pytest
import torch

from hemiola.core.errors import ContextTooLong, InvalidRequest, RequestAborted
from hemiola.core.memory import Arena
from hemiola.core.request import MediaRequest
from hemiola.core.step import Blocks, Refused, Shortfall, Slot, Whole
from hemiola.llm import LanguageRunner
from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import Driver, MakeRunner, ask

PROMPTS = [tiny.token_ids(length, seed=40 + length) for length in (5, 17, 17, 1)]
PARENT = MediaRequest(
    id="picture",
    model="image",
    token_ids={},
    width=64,
    height=64,
    num_inference_steps=2,
    guidance_scale=1.0,
    tenant="them",
    priority=2,
    arrival_s=3.0,
)


def reference_states(name: str, ids: list[int], hidden_state: int) -> torch.Tensor:
    with torch.no_grad():
        out = tiny.reference(name)(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    states_TC: torch.Tensor = out.hidden_states[hidden_state][0]
    return states_TC


@pytest.mark.parametrize("name", ["qwen3", "mistral", "gemma2"])
@pytest.mark.parametrize("hidden_state", [0, 1, -2, -1])
def test_hidden_states_equal_those_of_transformers(make_runner: MakeRunner, name: str, hidden_state: int) -> None:
    driver = Driver(make_runner(name))
    encodings = [driver.runner.encode(ids, hidden_state, PARENT) for ids in PROMPTS]
    assert not any(encoding.is_done for encoding in encodings)
    driver.run()
    for ids, encoding in zip(PROMPTS, encodings, strict=True):
        expected = reference_states(name, ids, hidden_state)
        torch.testing.assert_close(encoding.hidden_states, expected, rtol=1e-4, atol=1e-4)
        encoding.release()
    assert_nothing_is_locked(driver)


def test_layers_are_steps_and_only_those_that_are_needed_run(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    driver.runner.encode(PROMPTS[1], -2, PARENT)
    (state,) = driver.runner.chores()
    assert (state.service_class, state.tenant, state.priority, state.arrival_s) == ("standard", "them", 2, 3.0)
    assert state.due_s == 123.0
    assert state.cut == Blocks(0, 1, (state.block_work,) * 2)
    assert state.block_work.new_tokens == 17 and state.block_work.attended_pairs == 17 * 18 // 2
    driver.chores.append(state)
    driver.run()
    assert [batch.quantum for batch in driver.launched] == [Blocks(0, 0), Blocks(1, 1)]
    assert list(driver.runner.chores()) == []


def test_equal_asks_share_one_job_and_one_result(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    first, second = (driver.runner.encode(PROMPTS[0], -2, PARENT) for _ in range(2))
    driver.run()
    assert len(driver.launched) == 2
    later = driver.runner.encode(PROMPTS[0], 2, PARENT)  # the same state, counted from the start
    assert later.is_done
    assert first.hidden_states.data_ptr() == second.hidden_states.data_ptr() == later.hidden_states.data_ptr()
    other = driver.runner.encode(PROMPTS[0], -1, PARENT)
    assert not other.is_done
    for encoding in (first, second, later, other):
        encoding.release()
    driver.run()
    assert_nothing_is_locked(driver)


def test_the_most_urgent_parent_counts(make_runner: MakeRunner) -> None:
    runner = make_runner()
    runner.encode(PROMPTS[0], -2, PARENT)
    (state,) = runner.chores()
    urgent = MediaRequest(
        **{**{n: getattr(PARENT, n) for n in PARENT.__struct_fields__}, "priority": 0, "tenant": "us"}
    )
    runner.encode(PROMPTS[0], -2, urgent)
    runner.encode(PROMPTS[0], -2, PARENT)
    assert (state.tenant, state.priority) == ("us", 0)


def test_encodings_touch_neither_pages_nor_the_prefix_cache(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    kv = driver.runner.kv_cache
    driver.run(ask("a", PROMPTS[1]))
    held = {page: list(owners) for page, owners in kv.page_class.held.items()}
    stats = kv.prefixes.stats.num_queries
    encoding = driver.runner.encode(PROMPTS[1], -1, PARENT)
    driver.run()
    assert encoding.is_done and encoding.error is None
    assert {page: list(owners) for page, owners in kv.page_class.held.items()} == held
    assert kv.prefixes.stats.num_queries == stats


def test_encoding_beside_decoding_changes_nothing(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    driver.admit(ask("a", PROMPTS[1], max_tokens=12))
    driver.step()
    encoding = driver.runner.encode(PROMPTS[2], -2, PARENT)
    driver.run()
    assert driver.tokens("a") == tiny.reference_greedy("qwen3", PROMPTS[1], 12)
    torch.testing.assert_close(encoding.hidden_states, reference_states("qwen3", PROMPTS[2], -2), rtol=1e-4, atol=1e-4)


def test_a_job_that_nobody_waits_for_ends_without_computing(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    encoding = driver.runner.encode(PROMPTS[0], -2, PARENT)
    driver.chores += driver.runner.chores()
    encoding.release()
    assert driver.chores[0].cut == Whole()
    driver.run()
    assert driver.chores == []
    assert_nothing_is_locked(driver)
    assert driver.runner.kv_cache.arena.find(("encoding", "tiny", 2, tuple(PROMPTS[0]))) is None


def test_an_open_batch_that_nobody_waits_for_is_dropped_at_the_next_border(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    encodings = [driver.runner.encode(ids, -1, PARENT) for ids in PROMPTS[:2]]
    driver.step()
    encodings[0].release()
    driver.step()  # one of two still waits: it goes on
    encodings[1].release()
    driver.run()
    assert [batch.work.new_tokens > 0 for batch in driver.launched] == [True, True, False]
    assert_nothing_is_locked(driver)


def test_what_is_asked_for_again_while_its_batch_is_dropped_is_computed_anew(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    encoding = driver.runner.encode(PROMPTS[1], -1, PARENT)
    driver.step()
    encoding.release()
    driver.launch()
    again = driver.runner.encode(PROMPTS[1], -1, PARENT)
    driver.run()
    torch.testing.assert_close(again.hidden_states, reference_states("qwen3", PROMPTS[1], -1), rtol=1e-4, atol=1e-4)
    again.release()
    assert_nothing_is_locked(driver)


def test_one_of_two_in_an_open_batch_may_go(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    encodings = [driver.runner.encode(ids, -1, PARENT) for ids in PROMPTS[:2]]
    driver.step()
    encodings[0].release()
    driver.run()
    torch.testing.assert_close(
        encodings[1].hidden_states, reference_states("qwen3", PROMPTS[1], -1), rtol=1e-4, atol=1e-4
    )
    encodings[1].release()
    assert_nothing_is_locked(driver)


def test_an_error_reaches_every_holder(make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(make_runner())
    runner = driver.runner
    holders = [runner.encode(PROMPTS[0], -2, PARENT) for _ in range(2)]
    driver.step()
    monkeypatch.setattr(runner._model, "encode_block", lambda *_: 1 / 0)
    (state,) = driver.chores
    batch = runner.plan([state], Blocks(1, 1))
    with pytest.raises(ZeroDivisionError):
        runner.launch(batch, Slot("device", 1.0, 9, 0.0))
    runner.cancel(batch)
    assert state.next_block == 0
    runner.release(state)
    assert all(holder.is_done and isinstance(holder.error, ZeroDivisionError) for holder in holders)
    for holder in holders:
        holder.release()
    assert_nothing_is_locked(driver)


def test_a_job_that_is_ended_from_outside_tells_its_holders(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    encoding = driver.runner.encode(PROMPTS[0], -2, PARENT)
    driver.step()
    driver.runner.release(driver.chores.pop())
    assert isinstance(encoding.error, RequestAborted)
    encoding.release()
    assert_nothing_is_locked(driver)


def test_prompts_that_cannot_be_encoded_come_back_with_an_error(make_runner: MakeRunner) -> None:
    runner = make_runner()
    for ids, kind in (([], InvalidRequest), ([1] * 513, ContextTooLong), ([5, 99999], InvalidRequest)):
        encoding = runner.encode(ids, -2, PARENT)
        assert encoding.is_done and isinstance(encoding.error, kind)
    with pytest.raises(ValueError, match="no hidden state 9"):
        runner.encode([1], 9, PARENT)


def test_results_are_evictable_once_released_and_a_shortfall_leases_nothing(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    arena = driver.runner.kv_cache.arena
    encoding = driver.runner.encode(PROMPTS[1], -2, PARENT)
    driver.chores += driver.runner.chores()
    hogs = []
    while not isinstance(lease := arena.lease(arena.span_bytes, "hog"), Shortfall):
        hogs.append(lease)
    while not isinstance(lease := arena.lease(256, "hog"), Shortfall):
        hogs.append(lease)
    assert isinstance(driver.runner.plan(driver.chores, Blocks(0, 0)), Shortfall)
    for lease in hogs:
        lease.release()
    driver.run()
    encoding.release()
    big = arena.lease(arena.nbytes, "big")
    assert not isinstance(big, Shortfall)
    big.release()
    assert not driver.runner.encode(PROMPTS[1], -2, PARENT).is_done


def test_a_bare_encoder_only_encodes(make_runner: MakeRunner, tmp_path: Path) -> None:
    tiny.reference("qwen3").model.save_pretrained(tmp_path)
    arena = Arena(1 << 20)
    driver = Driver(LanguageRunner("encoder", tmp_path, arena))
    assert len(arena.page_classes) == 0
    refused = driver.runner.admit(ask("a", PROMPTS[0]))
    assert isinstance(refused, Refused) and "only encodes" in refused.error.message
    encoding = driver.runner.encode(PROMPTS[1], -2, PARENT)
    driver.run()
    expected = reference_states("qwen3", PROMPTS[1], -2)
    torch.testing.assert_close(encoding.hidden_states, expected, rtol=1e-4, atol=1e-4)


def assert_nothing_is_locked(driver: Driver) -> None:
    arena = driver.runner.kv_cache.arena
    arena.ledger.check()
    everything = arena.lease(arena.nbytes, "everything")
    assert not isinstance(everything, Shortfall)
    everything.release()
