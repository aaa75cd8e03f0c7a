"""Whatever else runs, however it is ordered, cut, batched, parked and aborted: everybody gets what he gets alone."""

import random
from typing import Any

import pytest

from hemiola.core.events import Failed
from hemiola.core.request import MediaRequest, Request, TextRequest
from hemiola.scheduler.policy import POLICIES

from .models import chat, picture, prompt_ids, replaced
from .rig import MIB, Rig

pytestmark = pytest.mark.usefixtures("flight")

STEMS = [prompt_ids(70, seed) for seed in (100, 101)]
PROMPTS = ("a red fox", "a house", "two boats, far out", "rain")
CLASSES = ("interactive", "standard", "background")
NUM_SCHEDULES = 5


def random_chat(rng: random.Random, id: str) -> TextRequest:
    ids = rng.choice(STEMS)[: rng.randint(1, 70)] if rng.random() < 0.6 else []
    ids = ids + prompt_ids(rng.randint(1, 40), rng.randint(0, 4))
    sampled: dict[str, Any] = {
        "temperature": rng.choice((0.7, 1.3)),
        "seed": rng.randint(0, 9),
        "top_k": rng.choice((0, 20)),
    }
    options: dict[str, Any] = {} if rng.random() < 0.5 else sampled | {"top_p": rng.choice((1.0, 0.9))}
    stops = tuple(prompt_ids(12, rng.randint(0, 50))) if rng.random() < 0.3 else ()
    return chat(id, ids, rng.randint(1, 14), stop_token_ids=stops, **options, **random_terms(rng))


def random_picture(rng: random.Random, id: str, model: str) -> MediaRequest:
    options: dict[str, Any] = {
        "size": (rng.choice((16, 24, 32)), rng.choice((16, 32))) if model != "clip" else (rng.choice((16, 32)), 16),
        "num_inference_steps": rng.randint(1, 4),
        "guidance_scale": rng.choice((0.0, 1.0, 2.5)),
        "negative_prompt": rng.choice(("", "blue")),
        "seed": rng.randint(0, 5),
    }
    return picture(id, rng.choice(PROMPTS), model=model, **options, **random_terms(rng))


def random_terms(rng: random.Random) -> dict[str, Any]:
    return {
        "priority": rng.choice((0, 0, 0, -1, 2)),
        "service_class": rng.choice(CLASSES),
        "tenant": rng.choice(("default", "other")),
    }


def random_requests(rng: random.Random) -> list[Request]:
    chats = [random_chat(rng, f"c{i}") for i in range(rng.randint(5, 9))]
    twin = rng.choice(chats)
    pictures = [random_picture(rng, f"p{i}", rng.choice(("image", "own", "flux"))) for i in range(rng.randint(2, 5))]
    clips = [random_picture(rng, f"v{i}", "clip") for i in range(rng.randint(0, 2))]
    requests: list[Request] = [*chats, replaced(twin, id="twin"), *pictures, *clips]
    rng.shuffle(requests)
    return requests


def run_schedule(rig: Rig, rng: random.Random) -> tuple[list[Request], set[str]]:
    """Requests come, are parked and aborted at random iterations; all of them, and those that were aborted."""
    requests = random_requests(rng)
    arrivals = {request.id: rng.randint(0, 60) for request in requests}
    aborts = {request.id: arrivals[request.id] + rng.randint(0, 40) for request in rng.sample(requests, 4)}
    aborted = set()
    for iteration in range(4000):
        rig.submit(*(request for request in requests if arrivals[request.id] == iteration))
        for id, when in aborts.items():
            if when == iteration and not rig.finals(id):
                assert rig.scheduler.abort(id)
                aborted.add(id)
        if iteration < 150 and rng.random() < 0.15:
            rig.park_one()
        if not rig.step() and iteration > 100:
            break
    return requests, aborted


def judge(rig: Rig, requests: list[Request], aborted: set[str]) -> None:
    for request in requests:
        if request.id in aborted:
            final = rig.final(request.id)
            assert isinstance(final, Failed) and final.code == "request_aborted"
        else:
            rig.assert_as_alone(request)
    rig.assert_nothing_is_held()


@pytest.mark.parametrize("policy", POLICIES)
def test_survivors_of_random_schedules_equal_their_solo_runs(policy: str) -> None:
    num_parks = num_shared = 0
    for seed in range(NUM_SCHEDULES):
        rng = random.Random(f"{policy}-{seed}")
        rig = Rig(policy=policy, max_batch_tokens=rng.choice((16, 64)))
        requests, aborted = run_schedule(rig, rng)
        num_parks += rig.scheduler.num_parks
        num_shared += rig.prefixes.stats.num_hit_tokens
        judge(rig, requests, aborted)
    assert num_parks > 5 and num_shared > 100, "The schedules have become too tame to say anything."


@pytest.mark.parametrize("policy", POLICIES)
def test_so_do_those_of_an_arena_that_cannot_hold_them_all(policy: str) -> None:
    num_parks = num_evicted = 0
    for seed in range(NUM_SCHEDULES):
        rng = random.Random(f"tight-{policy}-{seed}")
        rig = Rig(policy=policy, memory_bytes=rng.choice((225, 260)) << 10, host_bytes=MIB // 2)
        rig.run(*(chat(f"before-{i}", prompt_ids(150, 200 + i), 1) for i in range(4)))  # fills it with their prefixes
        requests, aborted = run_schedule(rig, rng)
        num_parks += rig.scheduler.num_parks
        num_evicted += rig.prefixes.num_evicted_tokens
        judge(rig, requests, aborted)
    assert num_parks > 5 and num_evicted > 100, "The arena has become too large to say anything."
