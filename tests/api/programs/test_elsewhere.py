"""The same program over an engine in another process and over a server gives what it gives in this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hemiola as hm
from hemiola.api.http.settings import Settings
from hemiola.api.served import ServedEngine
from hemiola.tests.api.http.text_rig import served


@hm.program
def small_book(s: hm.State, animal: str) -> None:
    s += hm.user(f"Come up with a scene for a picture book about {animal}.")
    s += hm.assistant("Once, ", hm.gen("scene", temperature=0.0, max_tokens=24))
    for i, branch in enumerate(s.fork(2)):
        branch += hm.user("Now write an image prompt for this scene.")
        branch += hm.assistant(hm.gen("prompts", n=2, temperature=1.0, seed=i, max_tokens=16))
        branch += hm.gen_image("picture", branch["prompts"][1], steps=1, seed=3)


@pytest.fixture(scope="module", params=["process", "server"])
def elsewhere(request: Any, demo: hm.Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if request.param == "process":
        with ServedEngine("demo", threads=1) as engine:
            yield engine
        return
    folder: Path = tmp_path_factory.mktemp("data")
    with served(demo, Settings(data_dir=folder)) as address, hm.Client(address) as client:
        yield client


def test_programs_run_unchanged(demo: hm.Engine, elsewhere: Any) -> None:
    here = small_book.on(demo).run("a fox").raise_for_errors()
    there = small_book.on(elsewhere).run("a fox").raise_for_errors()
    assert there.messages() == here.messages()
    for mine, theirs in zip(here.forks, there.forks, strict=True):
        assert theirs["prompts"] == mine["prompts"]
        # Which pictures share a batch is a matter of time, and rounds differently: a level of 255 at most.
        differs_by = levels(theirs["picture"]) - levels(mine["picture"])
        assert np.abs(differs_by).max() <= 1


def levels(picture: hm.ImageResult) -> NDArray[np.int16]:
    return np.asarray(picture.image, dtype=np.int16)


@pytest.mark.parametrize("elsewhere", ["process"], indirect=True)
def test_a_process_of_its_own_keeps_nothing_of_programs_that_have_ended(elsewhere: ServedEngine) -> None:
    def used_pages() -> int:
        return sum(cache.used_pages for cache in elsewhere.fresh_stats().caches.values())

    seen: list[int] = []

    @hm.program
    def watched(s: hm.State) -> None:
        s += hm.user("Tell me of a fox.")
        s += hm.gen("story", temperature=0.0, max_tokens=24)
        str(s["story"])
        seen.append(used_pages())
        s += hm.user("And then?")
        s += hm.gen("more", temperature=0.0, max_tokens=8)

    run = watched.on(elsewhere).run().raise_for_errors()
    assert seen[0] > 0, "What the next turn begins with was kept between the two."
    assert run.nodes[1].usage is not None and run.nodes[1].usage.cached_tokens > 0
    assert used_pages() == 0
