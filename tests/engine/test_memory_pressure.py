"""One budget for all: what text and pictures take from each other in a small arena, and that it comes back unharmed."""

import re
from typing import Any

import pytest

from hemiola.core.events import Finished
from hemiola.core.request import MediaRequest

from .models import chat, picture, prompt_ids
from .rig import MIB, Rig

pytestmark = pytest.mark.usefixtures("flight")

SPAN = 13824  # bytes, as the arena cuts itself for the tiny chat model: 9 pages of 4 tokens


def large_picture(id: str, **options: Any) -> MediaRequest:
    """It needs some 60 KiB at a time, of which it holds 14 between its steps."""
    return picture(id, model="own", size=(32, 32), num_inference_steps=3, **options)


@pytest.mark.parametrize("host_bytes", [MIB, 0])
def test_prefixes_are_evicted_to_admit_a_picture_and_come_back(host_bytes: int) -> None:
    rig = Rig(memory_bytes=14 * SPAN, host_bytes=host_bytes)
    chats = [chat(f"c{i}", prompt_ids(120, i), 2) for i in range(4)]
    rig.run(*chats)
    num_cached = rig.prefixes.num_tokens
    assert num_cached >= 480 and rig.prefixes.num_evicted_tokens == 0
    asked = large_picture("p")
    rig.run(asked)
    rig.assert_as_alone(asked, tolerance=0.0)
    num_evicted = rig.prefixes.num_evicted_tokens
    assert num_evicted > 0 and rig.prefixes.num_tokens == num_cached - num_evicted
    again = [chat(f"again{i}", request.token_ids, 6) for i, request in enumerate(chats)]
    rig.run(*again)
    for request in again:
        rig.assert_as_alone(request)
    num_found = sum(rig.finished(request.id).usage.cached_tokens for request in again)
    if host_bytes:
        assert rig.prefixes.num_restored_tokens > 0 and num_found >= 4 * 116
    else:
        assert rig.prefixes.num_restored_tokens == 0 and 0 < num_found <= num_cached - num_evicted + 4 * 3
    rig.assert_nothing_is_held()


def test_latents_are_parked_to_admit_text_and_come_back() -> None:
    rig = Rig(memory_bytes=10 * SPAN)
    asked, talk = large_picture("p"), chat("c", prompt_ids(300), 8)
    rig.submit(asked)
    rig.run_until(lambda: rig.num_steps_done("p") == 1)
    rig.submit(talk)
    rig.run_until(lambda: rig.is_parked("p"))
    rig.run_until(lambda: rig.state("c") is not None)
    assert rig.arena.ledger.owners["p"].keys() == {"host"}, "Parked, it holds nothing of the device."
    rig.run_until(lambda: rig.scheduler.is_idle)
    ids = [record.request_ids for record in rig.trace]
    last_of_text = max(i for i, each in enumerate(ids) if "c" in each)
    assert "p" in ids[-1] and last_of_text < len(ids) - 1, "The picture came back when the text was done."
    rig.assert_as_alone(talk)
    rig.assert_as_alone(asked, tolerance=0.0)
    assert rig.scheduler.num_parks == 1
    rig.assert_nothing_is_held()


def test_pages_are_parked_to_admit_a_picture_that_is_due_earlier_and_come_back() -> None:
    rig = Rig(memory_bytes=10 * SPAN)
    talk = chat("c", prompt_ids(300), 30, service_class="background")
    asked = large_picture("p", deadline_s=2.0)
    rig.submit(talk)
    rig.run_until(lambda: len(rig.tokens("c")) == 5)
    rig.submit(asked)
    rig.run_until(lambda: rig.is_parked("c"))
    assert rig.bytes_of("c") > 0 and "chat" not in rig.arena.ledger.owners["c"]
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(talk)
    rig.assert_as_alone(asked, tolerance=0.0)
    assert rig.finished("c").usage.completion_tokens == 30
    rig.assert_nothing_is_held()


def test_without_a_host_tier_the_latest_ends_loudly_so_that_the_others_can_go_on() -> None:
    rig = Rig(memory_bytes=9 * SPAN, host_bytes=0)
    first, talk, last = large_picture("p"), chat("c", prompt_ids(300), 8), large_picture("q", seed=9)
    for request in (first, talk, last):
        rig.submit(request)
        rig.step()
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(first)
    rig.assert_as_alone(talk)
    failed = rig.failed("q")
    assert failed.code == "insufficient_memory" and "'memory_bytes' or 'host_bytes'" in failed.message
    assert re.match(r"Beside what is in use already, the next \w+ step of 'own' needs [\d.]+ KiB", failed.message)
    assert rig.scheduler.num_parks == 0
    rig.assert_nothing_is_held()


def test_best_effort_requests_do_not_stop_each_other_for_good() -> None:
    """All of them are due at infinity: with nobody later than another, nobody was parked, and one had to fail."""
    rig = Rig(memory_bytes=9 * SPAN)
    requests = [large_picture(f"p{i}", prompt=f"{i} boats", seed=i, service_class="background") for i in range(8)]
    rig.run(*requests)
    for request in requests:
        rig.assert_as_alone(request)
    assert rig.scheduler.num_parks > 0
    rig.assert_nothing_is_held()


def test_nobody_later_takes_what_an_earlier_one_lacks() -> None:
    """A parked picture used to come back as soon as it fitted, was parked again for the same other, and so on."""
    rig = Rig(memory_bytes=9 * SPAN)
    early = large_picture("early", deadline_s=5.0)
    late = [picture(f"late{i}", f"{i} boats", seed=i, service_class="background") for i in range(4)]
    rig.submit(*late)
    rig.run_until(lambda: all(rig.num_steps_done(request.id) >= 1 for request in late[:2]))
    rig.submit(early)
    rig.run_until(lambda: rig.scheduler.is_idle)
    for request in (early, *late):
        rig.assert_as_alone(request)
    assert rig.scheduler.num_parks <= len(late), "Each is parked for the early one at most once."
    ends = [event.request_id for events in rig.events.values() for event in events if isinstance(event, Finished)]
    assert sorted(ends) == sorted(request.id for request in (early, *late))
    rig.assert_nothing_is_held()
