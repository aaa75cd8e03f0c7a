"""What the engine does for requests that are parts of one program: prefixes stay until it ends, and block nobody."""

from typing import Any

import pytest

from hemiola.core.events import Finished
from hemiola.core.request import ProgramShare, TextRequest

from .models import chat, picture, prompt_ids
from .rig import Rig
from .test_memory_pressure import SPAN

PAGE_LEN = 4
NUM_SPANS = 14
"""Of 36 tokens each."""


def part(id: str, token_ids: Any, max_tokens: int = 4, *, keeps_prefix: bool = False, **terms: Any) -> TextRequest:
    share = ProgramShare(id="book", behind_s=1.0 if keeps_prefix else 0.0, keeps_prefix=keeps_prefix)
    return chat(id, token_ids, max_tokens, program=share, **terms)


def under_pressure(keeps_prefix: bool) -> tuple[Rig, list[TextRequest], int]:
    """A parent runs, then others use all memory that they can get, then the forks run. Parent's tokens that last."""
    rig = Rig(("chat",), memory_bytes=NUM_SPANS * SPAN, host_bytes=0)
    parent = part("parent", prompt_ids(150), keeps_prefix=keeps_prefix)
    rig.run(parent)
    whole = (*parent.token_ids, *rig.tokens("parent"))
    for i in range(6):
        rig.run(chat(f"other{i}", prompt_ids(200, 10 + i), 2))
    assert rig.prefixes.num_evicted_tokens > 0, "There was no pressure."
    forks = [part(f"fork{i}", (*whole, *prompt_ids(12, 30 + i))) for i in range(3)]
    rig.run(*forks)
    return rig, forks, len(whole) - 1  # nothing was computed of the last token


def test_what_forks_begin_with_is_there_whatever_others_need() -> None:
    rig, forks, num_kept = under_pressure(keeps_prefix=True)
    for fork in forks:
        assert rig.finished(fork.id).usage.cached_tokens >= num_kept // PAGE_LEN * PAGE_LEN
        rig.assert_as_alone(fork)
    rig.scheduler.end_program("book")
    rig.assert_nothing_is_held()


def test_the_same_forks_find_less_where_nothing_is_kept() -> None:
    rig, forks, num_kept = under_pressure(keeps_prefix=False)
    assert rig.finished(forks[0].id).usage.cached_tokens < num_kept // PAGE_LEN * PAGE_LEN
    rig.assert_nothing_is_held()


def test_once_a_program_has_ended_its_prefix_is_evicted_like_others() -> None:
    rig = Rig(("chat",), memory_bytes=NUM_SPANS * SPAN, host_bytes=0)
    parent = part("parent", prompt_ids(150), keeps_prefix=True)
    rig.run(parent)
    assert rig.prefixes.num_unused_tokens == 0 < rig.prefixes.num_tokens
    rig.scheduler.end_program("book")
    assert rig.prefixes.num_unused_tokens == rig.prefixes.num_tokens
    rig.run(chat("large", prompt_ids(460, 5), 2))
    assert rig.prefixes.match("", parent.token_ids).num_tokens < 60
    rig.assert_nothing_is_held()


def test_an_aborted_part_keeps_nothing() -> None:
    rig = Rig(("chat",), memory_bytes=NUM_SPANS * SPAN)
    rig.submit(part("parent", prompt_ids(150), 40, keeps_prefix=True))
    rig.run_until(lambda: len(rig.tokens("parent")) == 3)
    rig.scheduler.abort("parent")
    rig.run_until(lambda: rig.scheduler.is_idle)
    assert rig.failed("parent").code == "request_aborted"
    rig.assert_nothing_is_held()


@pytest.mark.parametrize("name", ["queued", "running"])
def test_what_is_kept_gives_way_where_nobody_could_go_on(name: str) -> None:
    """A program that waits for somebody outside must not make requests fail that would fit without it."""
    rig = Rig(("chat",), memory_bytes=NUM_SPANS * SPAN, host_bytes=0)
    rig.run(part("parent", prompt_ids(200), keeps_prefix=True))
    request = chat("large", prompt_ids(400, 5), 4) if name == "queued" else chat("large", prompt_ids(40, 5), 420)
    rig.run(request)
    assert isinstance(rig.final("large"), Finished)
    rig.assert_as_alone(request)
    rig.assert_nothing_is_held()


def test_pictures_are_admitted_beside_what_is_kept() -> None:
    rig = Rig(memory_bytes=NUM_SPANS * SPAN, host_bytes=0)
    parent = part("parent", prompt_ids(150), keeps_prefix=True)
    rig.run(parent)
    rig.run(picture("p", model="own", size=(32, 32), num_inference_steps=3))
    assert isinstance(rig.final("p"), Finished)
    assert rig.prefixes.match("", (*parent.token_ids, 3)).num_tokens >= 148
    rig.scheduler.end_program("book")
    rig.assert_nothing_is_held()
