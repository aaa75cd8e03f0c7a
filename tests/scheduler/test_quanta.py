"""How much of a step the deadline policy grants, from costs that were learned."""

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from hemiola.core.step import Blocks, Quantum, Tokens, Work, blocks_work, total_work
from hemiola.scheduler.cost_model import ALONE, CostModel, LaneUse
from hemiola.scheduler.policy import Deadline, FairShare, Group, Limits

LIMITS = Limits(quantum_s=0.010, tokens_s=0.010, idle_tokens_s=0.040, max_batch_tokens=8192)
BESIDE = LaneUse(0.6, is_shared=True)
BLOCK = Work(rows=1, new_tokens=4608, attended_pairs=4608**2, blocks=1)
SECONDS_PER_BLOCK = 0.0023


@dataclass(eq=False)
class State:
    """A view of a request with one step to do."""

    cut: Quantum
    work: Work
    cost_key: str
    model: str = "m"
    service_class: str = "interactive"
    tenant: str = ""
    priority: int = 0
    due_s: float = float("inf")
    arrival_s: float = 0.0
    behind_s: float = 0.0
    remaining: tuple[Any, ...] = ()


def prompt(num_left: int, num_done: int = 0) -> State:
    pairs = num_left * num_done + num_left * (num_left + 1) // 2
    return State(Tokens(num_left), Work(1, num_left, num_done + num_left, pairs), "mixed")


def picture(num_blocks: int) -> State:
    return State(Blocks(0, num_blocks - 1, (BLOCK,) * num_blocks), total_work([BLOCK] * num_blocks), "denoise")


def granted(costs: CostModel, states: list[State], use: LaneUse = ALONE, others: int = 0) -> Any:
    groups = [Group(SimpleNamespace(model="m"), "lane", list(states))]
    groups += [Group(SimpleNamespace(model=f"o{i}"), "lane", [prompt(1)]) for i in range(others)]
    policy = Deadline(costs, LIMITS)
    policy._shares.add(("interactive", "other"), 1.0)
    return policy.choose(groups, 0.0, use).quantum


def prefill_s(work: Work) -> float:
    """Of a model that takes the host longer than a quantum to launch, kernel by kernel."""
    return 0.012 + 2e-5 * work.new_tokens


def with_prefills(use: LaneUse = ALONE) -> CostModel:
    costs = CostModel()
    for length in (24, 24, 100, 400, 1600, 2000) * 3:
        work = prompt(length).work
        costs.observe(use.key("mixed"), work, prefill_s(work))
        costs.observe_launch("mixed", 0.012)
    return costs


@pytest.mark.parametrize("use", [ALONE, BESIDE])
def test_what_every_step_takes_does_not_make_chunks_small(use: LaneUse) -> None:
    """They were of 16 tokens, the least, as soon as the shortest step was longer than the limit."""
    chunk = granted(with_prefills(use), [prompt(2048)], use)
    assert prefill_s(Work(new_tokens=chunk.max)) == pytest.approx(0.012 + LIMITS.idle_tokens_s, rel=0.1)


def test_chunks_are_shorter_while_others_wait_for_the_lane() -> None:
    chunk = granted(with_prefills(), [prompt(2048)], others=1)
    assert prefill_s(Work(new_tokens=chunk.max)) == pytest.approx(0.012 + LIMITS.tokens_s, rel=0.1)


def test_a_chunk_makes_decodes_a_quantum_longer_than_launching_it_takes() -> None:
    costs = with_prefills()
    decode = State(Tokens(1), Work(1, 1, 100, 100), "decode")
    for _ in range(3):
        costs.observe("decode", decode.work, 0.005)
    chunk = granted(costs, [decode, prompt(2048)])
    assert prefill_s(Work(new_tokens=chunk.max)) == pytest.approx(0.012 + LIMITS.tokens_s, rel=0.1)


def test_a_chunk_beside_a_context_that_only_steps_with_prompts_have_seen() -> None:
    """What nine decodes take was guessed at 130 ms from steps of short contexts alone: chunks took as long."""
    costs, rng = CostModel(), random.Random(0)

    def step_s(work: Work) -> float:
        return 0.006 + 2e-5 * work.new_tokens + 2e-10 * work.attended_pairs

    chats = [State(Tokens(1), Work(1, 1, 60, 60), "decode")] * 8
    for _ in range(9):
        work = total_work(chat.work for chat in chats)
        costs.observe("decode", work, step_s(work))
    for num_done in range(0, 60_000, 500):
        work = total_work([*(chat.work for chat in chats), prompt(rng.randrange(100, 900), num_done).work])
        costs.observe("mixed", work, step_s(work))
    grown = State(Tokens(1), Work(1, 1, 60_000, 60_000), "decode")
    decodes = [*chats, grown]
    chunk = granted(costs, [*decodes, prompt(8192)])
    beside = total_work([*(each.work for each in decodes), prompt(chunk.max - len(decodes)).work])
    assert step_s(beside) < 0.006 + 1.2 * LIMITS.tokens_s


@dataclass
class Eager:
    """A device behind a host that takes `launch_s` for a step that is no graph, and is at most one step ahead.

    Where the launches of a step lie behind a long one, it takes a third of what it takes else.
    """

    launch_s: float
    now_s: float = 0.0
    free_s: float = 0.0

    def run(self, costs: CostModel, key: str, work: Work) -> None:
        begun_s = max(self.now_s, self.free_s)
        host_s = self.launch_s if key == "mixed" else 0.001
        costs.observe_launch(key, host_s)
        device_s = 0.006 + 2e-5 * work.new_tokens + 1e-7 * work.context_tokens
        end_s = max(begun_s + device_s, self.now_s + host_s)
        self.now_s, self.free_s = max(self.now_s + host_s, self.free_s), end_s
        costs.observe(key, work, end_s - begun_s)


def prefilled(device: Eager, costs: CostModel) -> None:
    """16 prompts of 1,024, which decode as soon as they are through."""
    limits = Limits(0.005, 0.010, 0.040, max_batch_tokens=8192)
    policy, left, num_decoding = Deadline(costs, limits), [1024] * 16, 0
    while left:
        short = [State(Tokens(1), Work(1, 1, 1100, 1100), "decode") for _ in range(num_decoding)]
        long = [prompt(count, 1024 - count) for count in left]
        chunk = policy.choose([Group(SimpleNamespace(model="m"), "lane", [*short, *long])], 0.0).quantum
        assert isinstance(chunk, Tokens)
        num_free, works = chunk.max - num_decoding, [each.work for each in short]
        while left and num_free:
            taken = min(num_free, left[0])
            works.append(prompt(taken, 1024 - left[0]).work)
            left[0], num_free = left[0] - taken, num_free - taken
            if not left[0]:
                left, num_decoding = left[1:], num_decoding + 1
        device.run(costs, "mixed", total_work(works))


@pytest.mark.parametrize("launch_s", [0.02, 0.03, 0.04])
def test_prompts_are_prefilled_as_fast_whatever_was_measured_before(launch_s: float) -> None:
    """Chunks were measured against the shortest step there had been. Once that was one whose launches lay behind a long
    step, every chunk seemed too long: 16 prompts of 1,024 took 22 s instead of 0.4.
    """
    costs, device, rng = CostModel(), Eager(launch_s), random.Random(0)
    for _ in range(8):
        begun_s = device.now_s
        prefilled(device, costs)
        assert device.now_s - begun_s < 0.7
        for _ in range(rng.randrange(50, 250)):
            device.run(costs, "decode", Work(16, 16, 17600, 17600))
        device.run(costs, "mixed", prompt(rng.randrange(16, 3000)).work)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_as_many_blocks_run_as_fit_the_quantum(num_rows: int) -> None:
    """At most two did: a batch counts a row once, and predictions for several blocks counted it for each."""
    costs = CostModel()
    for num_blocks in (1, 1, 1, 2, 2, 2):
        work = blocks_work([[BLOCK] * num_blocks] * num_rows)
        costs.observe("denoise", work, SECONDS_PER_BLOCK * num_blocks)
    assert granted(costs, [picture(57) for _ in range(num_rows)]) == Blocks(0, 3)


@pytest.mark.parametrize("use", [ALONE, BESIDE])
def test_blocks_keep_to_their_limits(use: LaneUse) -> None:
    costs = CostModel()
    for num_blocks in (1, 2, 4, 8, 16, 32) * 3:
        costs.observe(use.key("denoise"), blocks_work([[BLOCK] * num_blocks]), SECONDS_PER_BLOCK * num_blocks)
    assert granted(costs, [picture(57)], use) == Blocks(0, 3)


def test_work_of_blocks_counts_rows_and_blocks_once() -> None:
    rows = [[Work(rows=1, new_tokens=5, blocks=1)] * 3, [Work(rows=1, new_tokens=7, blocks=1)] * 3]
    assert blocks_work(rows) == Work(rows=2, new_tokens=36, blocks=3)
    assert blocks_work([]) == Work()


def test_accounts_of_those_who_owe_nothing_are_closed() -> None:
    shares = FairShare()
    for i in range(5000):
        shares.add(f"tenant {i}", 0.1)
        shares.advance(shares.time(f"tenant {i}"))
    shares.add("late", 0.5)
    assert len(shares._virtual_s) < 1100
    floor_s = shares.time("nobody")
    assert shares.time("tenant 3") == floor_s and shares.time("late") == pytest.approx(floor_s + 0.5)
