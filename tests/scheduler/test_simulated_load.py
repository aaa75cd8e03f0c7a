"""Whole runs on simulated runners: interleaving, fairness, priorities, pressure, failures."""

import random
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from hemiola.core.errors import StepFailed
from hemiola.core.events import Failed, Final, Finished, Token
from hemiola.core.request import MediaRequest, ProgramShare, Sampling, TextRequest
from hemiola.core.service import completion_due_s, token_due_s
from hemiola.core.step import Batch
from hemiola.scheduler.policy import POLICIES, Limits
from hemiola.scheduler.simulator import Simulation


def text(name: str, arrival_s: float = 0.0, *, prompt: int = 20, tokens: int = 20, **terms: Any) -> TextRequest:
    sampling = Sampling(max_tokens=tokens)
    ids = tuple(range(prompt))
    return TextRequest(id=name, model="text", arrival_s=arrival_s, token_ids=ids, sampling=sampling, **terms)


def image(name: str, arrival_s: float = 0.0, *, steps: int = 8, frames: int = 1, **terms: Any) -> MediaRequest:
    return MediaRequest(
        id=name,
        model="media",
        arrival_s=arrival_s,
        token_ids={},
        width=64,
        height=64,
        num_frames=frames,
        num_inference_steps=steps,
        guidance_scale=1.0,
        **terms,
    )


def finals(simulation: Simulation) -> dict[str, list[Finished | Failed]]:
    ends: dict[str, list[Finished | Failed]] = {}
    for _, event in simulation.events:
        if isinstance(event, Final):
            ends.setdefault(event.request_id, []).append(event)
    return ends


def token_times(simulation: Simulation, name: str) -> list[float]:
    return [at for at, event in simulation.events if isinstance(event, Token) and event.request_id == name]


def most_media_steps_between_decodes(simulation: Simulation, name: str) -> int:
    """Over the life of a text request, from its prefill on: consecutive steps of others between two of its own."""
    records = list(simulation.trace.records)
    mine = [i for i, r in enumerate(records) if name in r.request_ids]
    between = [records[a + 1 : b] for a, b in pairwise(mine)]
    return max(sum(r.model == "media" for r in gap) for gap in between)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_ends_exactly_once_under_every_policy(policy: str) -> None:
    rng = random.Random(0)
    simulation = Simulation(policy, max_states=6)
    load: list[TextRequest | MediaRequest] = []
    load += [text(f"t{i}", rng.uniform(0, 5), prompt=rng.randint(1, 300), tokens=rng.randint(1, 40)) for i in range(40)]
    load += [image(f"i{i}", rng.uniform(0, 5), steps=rng.randint(1, 6), frames=rng.choice([1, 5])) for i in range(10)]
    simulation.run(load)
    assert {name: len(ends) for name, ends in finals(simulation).items()} == {r.id: 1 for r in load}
    tokens = Counter(event.request_id for _, event in simulation.events if isinstance(event, Token))
    assert all(tokens[r.id] == r.sampling.max_tokens for r in load if isinstance(r, TextRequest))
    assert not simulation.text.states


def test_at_most_one_media_quantum_lies_between_two_decode_steps() -> None:
    simulation = Simulation("deadline")
    simulation.run([image(f"i{i}") for i in range(3)] + [text("chat", 0.3, tokens=60)])
    assert most_media_steps_between_decodes(simulation, "chat") == 1
    media = [r for r in simulation.trace.records if r.model == "media"]
    chat = token_times(simulation, "chat")
    beside_chat = [r for r in media[3:] if chat[0] < r.start_s < chat[-1]]
    assert beside_chat and all(r.predicted_s <= 0.1 for r in beside_chat)
    gaps = [b - a for a, b in pairwise(chat)]
    assert max(gaps) <= 0.1 + 0.02


def test_a_policy_that_ignores_deadlines_starves_text() -> None:
    simulation = Simulation("fcfs")
    simulation.run([image(f"i{i}") for i in range(3)] + [text("chat", 0.3, tokens=60)])
    chat = token_times(simulation, "chat")
    first_after = simulation.trace.records
    assert chat[0] > max(r.end_s for r in first_after if r.model == "media")


def test_overdue_media_do_not_starve_text() -> None:
    simulation = Simulation("deadline")
    late = [image(f"i{i}", steps=20, deadline_s=0.01) for i in range(4)]
    simulation.run([*late, text("chat", 0.2, tokens=50)])
    assert most_media_steps_between_decodes(simulation, "chat") == 1


def test_text_without_end_does_not_starve_media() -> None:
    simulation = Simulation("deadline")
    simulation.run([text(f"t{i}", tokens=2000) for i in range(4)] + [image("i", 0.1, service_class="background")])
    ends = {e.request_id: at for at, e in simulation.events if isinstance(e, Final)}
    assert ends["i"] < ends["t0"]


def test_a_long_prompt_does_not_hold_up_tokens_of_others() -> None:
    simulation = Simulation("deadline", Limits(tokens_s=0.1))
    simulation.run([text("chat", tokens=100), text("long", 0.2, prompt=8000, tokens=2)])
    chat = token_times(simulation, "chat")
    assert max(b - a for a, b in pairwise(chat[3:])) < 0.15
    assert len(token_times(simulation, "long")) == 2


def test_lower_priority_numbers_run_earlier() -> None:
    simulation = Simulation("deadline")
    simulation.media.max_batch = 1
    simulation.run([image("first"), image("urgent", 0.01, priority=-1)])
    order = [e.request_id for _, e in simulation.events if isinstance(e, Final)]
    assert order == ["urgent", "first"]


def test_tenants_share_device_time_whatever_they_ask_for() -> None:
    simulation = Simulation("deadline")
    simulation.media.max_batch = 1
    greedy = [image(f"g{i}", tenant="greedy", service_class="background", steps=10) for i in range(10)]
    simulation.run([*greedy, image("modest", 0.5, tenant="modest", service_class="background", steps=10)])
    order = [e.request_id for _, e in simulation.events if isinstance(e, Final)]
    assert order.index("modest") <= 2


def test_memory_for_one_parks_the_latest_due_and_brings_it_back() -> None:
    simulation = Simulation("deadline", max_states=1)
    simulation.run([image("picture", steps=6), text("chat", 0.3, tokens=30)])
    ends = finals(simulation)
    assert isinstance(ends["picture"][0], Finished) and isinstance(ends["chat"][0], Finished)
    order = [e.request_id for _, e in simulation.events if isinstance(e, Final)]
    assert order == ["chat", "picture"]
    assert simulation.scheduler.num_parks == 1


def test_a_failing_state_fails_alone_and_others_run_on() -> None:
    simulation = Simulation("deadline")

    def fail(batch: Batch) -> None:
        if any(s.request.id == "bad" and s.num_generated == 3 for s in batch.states):
            raise RuntimeError("broken row")

    simulation.text.fail = fail
    simulation.run([text("a"), text("bad"), text("b"), image("i")])
    ends = finals(simulation)
    assert all(len(e) == 1 for e in ends.values())
    failed = ends["bad"][0]
    assert isinstance(failed, Failed) and failed.code == StepFailed.code and "broken row" in failed.message
    assert all(isinstance(ends[name][0], Finished) for name in ("a", "b", "i"))
    assert len(token_times(simulation, "a")) == len(token_times(simulation, "b")) == 20


@pytest.mark.parametrize("steps_before", [0, 1, 2, 5, 9])
def test_abort_at_any_time_ends_once_and_frees(steps_before: int) -> None:
    simulation = Simulation("deadline")
    for request in (text("t"), image("i"), image("j")):
        simulation.scheduler.submit(request)
    for _ in range(steps_before):
        simulation.scheduler.step()
    assert simulation.scheduler.abort("i")
    assert not simulation.scheduler.abort("i")
    assert not simulation.scheduler.abort("nobody")
    simulation.run([])
    ends = finals(simulation)
    assert isinstance(ends["i"][0], Failed) and ends["i"][0].code == "request_aborted"
    assert all(len(e) == 1 for e in ends.values()) and len(ends) == 3
    assert not simulation.text.states


def test_finishing_a_running_request_is_a_good_end() -> None:
    simulation = Simulation("deadline")
    simulation.scheduler.submit(text("t", tokens=1000))
    for _ in range(5):
        simulation.scheduler.step()
    assert simulation.scheduler.finish("t")
    simulation.run([])
    assert [type(e) for e in finals(simulation)["t"]] == [Finished]


def test_models_of_one_party_share_its_time() -> None:
    simulation = Simulation("deadline")
    chats = [text(f"t{i}", tokens=3000, service_class="background") for i in range(2)]
    simulation.run([*chats, image("i", 0.5, steps=10, service_class="background")])
    (done_s,) = [at for at, e in simulation.events if isinstance(e, Finished) and e.request_id == "i"]
    alone_s = sum(r.seconds for r in simulation.trace.records if r.model == "media")
    assert done_s - 0.5 < 2.2 * alone_s


def share(behind_s: float) -> ProgramShare:
    return ProgramShare(id="p", behind_s=behind_s)


@pytest.mark.parametrize("service_class", ["standard", "background"])
def test_what_more_waits_for_goes_first_in_its_class(service_class: str) -> None:
    simulation = Simulation("deadline")
    simulation.media.max_batch = 1
    asked = [image(f"i{i}", service_class=service_class, program=share(s)) for i, s in enumerate([0.0, 2.0, 9.0, 5.0])]
    simulation.run([*asked, image("plain", 0.0, service_class=service_class)])
    order = [e.request_id for _, e in simulation.events if isinstance(e, Final)]
    assert order[:3] == ["i2", "i3", "i1"] and set(order[3:]) == {"i0", "plain"}


def test_what_waits_for_nothing_gets_its_turn_before_programs_that_came_much_later() -> None:
    """However many parts of programs come that hold up others: they count as older, not as anybody's betters."""
    simulation = Simulation("deadline")
    simulation.media.max_batch = 1
    parts = [image(f"part{i}", i * 0.5, service_class="background", program=share(4.0)) for i in range(40)]
    simulation.run([image("plain", 1.0, service_class="background"), *parts])
    order = [e.request_id for _, e in simulation.events if isinstance(e, Final)]
    assert order.index("plain") <= order.index("part12")


def test_a_part_is_due_early_enough_for_what_waits_for_it() -> None:
    terms: dict[str, Any] = {"deadline_s": 60.0, "program": share(50.0)}
    assert completion_due_s(image("i", 100.0, **terms)) == 110.0
    assert completion_due_s(image("i", 100.0, program=share(50.0))) == 170.0
    assert token_due_s(text("t", 100.0, service_class="background", **terms), 0, 0.0) == 110.0
    assert token_due_s(text("t", 100.0, service_class="background", **terms), 5, 140.0) == 110.0
    assert token_due_s(text("t", 100.0, deadline_s=60.0), 5, 140.0) == 140.15, "The class wants its tokens earlier."
    assert token_due_s(text("t", 100.0, program=share(50.0)), 0, 0.0) == 50.5
    assert token_due_s(text("t", 100.0, program=share(50.0)), 1, 101.0) == 101.15


def test_a_program_of_many_parts_gets_no_more_than_one_request_of_another_tenant() -> None:
    simulation = Simulation("deadline")
    simulation.media.max_batch = 1
    terms: dict[str, Any] = {"service_class": "background", "steps": 10}
    parts = [image(f"part{i}", tenant="program", program=share(3.0 * i), **terms) for i in range(12)]
    simulation.run([*parts, *(image(f"single{i}", 0.2, tenant="other", **terms) for i in range(3))])
    order = [e.request_id for _, e in simulation.events if isinstance(e, Final)]
    assert order.index("single2") <= 6, "Three of each, and one that had begun."


@dataclass
class GoesOn:
    """A launch whose step may go on behind it; over whenever somebody looks again."""

    seconds: float
    is_over: bool

    def done(self) -> bool:
        was_over, self.is_over = self.is_over, True
        return was_over

    def wait(self) -> None:
        self.is_over = True


@pytest.mark.parametrize("is_over", [False, True])
def test_what_launching_takes_is_learned_where_steps_go_on_behind_it(is_over: bool) -> None:
    """Where a launch is the step itself, its time is no part of a step that is there whatever the step does."""
    simulation = Simulation()
    launch = simulation.text.launch
    simulation.text.launch = lambda batch, slot: GoesOn(launch(batch, slot).seconds, is_over)  # type: ignore
    simulation.run([text("a", tokens=20)])
    learned_s = simulation.scheduler.costs.launch_seconds(("text", True))
    assert learned_s == (0.0 if is_over else pytest.approx(0.0082))
