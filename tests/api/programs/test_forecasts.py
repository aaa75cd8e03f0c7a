"""What waits for each node of a program, by how long others of its kind took, and what is kept for whom."""

from typing import Any

import pytest

import hemiola as hm
from hemiola.api.programs.forecasts import Forecasts
from hemiola.api.programs.replay import run_graph
from hemiola.tests.api.programs.scripted import ScriptedCalls


class Noting(ScriptedCalls):
    """Answers at once, and hears when programs end."""

    def __init__(self) -> None:
        super().__init__(lambda kind, prompt, options: "fine")
        self.forecasts = Forecasts()
        self.ended: list[str] = []

    def end_program(self, program: str) -> None:
        self.ended.append(program)

    @property
    def shares(self) -> dict[str, Any]:
        """By request id without the program's."""
        return {a.options["terms"].id.rpartition("-")[2]: a.options["terms"].program for a in self.asked}


@hm.program
def story(s: hm.State) -> None:
    s += hm.user("?")
    s += hm.gen("root", max_tokens=10)
    s += hm.gen_image("cover", s["root"], steps=10)
    for fork in s.fork(2):
        fork += hm.gen("scene", max_tokens=10)
    s += hm.gen_video("film", s.forks[0]["scene"], steps=20)


async def test_the_longest_chain_behind_a_node_counts() -> None:
    calls = Noting()
    run = await run_graph(story.graph(), calls, terms=hm.CallTerms())
    root, cover, scene, other, film = (calls.shares[str(i)] for i in range(5))
    assert {share.id for share in (root, cover, scene, other, film)} == {run.id} == set(calls.ended)
    assert root.behind_s > scene.behind_s > 0.0 == cover.behind_s == other.behind_s == film.behind_s
    assert root.behind_s > scene.behind_s + 0.1, "A scene is between the root and the film."


async def test_only_what_others_begin_with_is_kept_once_all_is_known() -> None:
    calls = Noting()
    await run_graph(story.graph(), calls, terms=hm.CallTerms())
    assert [calls.shares[str(i)].keeps_prefix for i in range(5)] == [True, False, True, False, False]


def test_while_a_function_may_still_add_nodes_all_texts_are_kept() -> None:
    @hm.program
    def sequential(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen("first")
        str(s["first"])
        s += hm.gen_image("picture", "x")
        s += hm.gen("second")
        str(s["second"])

    calls = Noting()
    run = sequential.on(calls).run()
    assert [calls.shares[str(i)].keeps_prefix for i in range(3)] == [True, False, True]
    assert calls.ended == [run.id]


def test_programs_end_whatever_becomes_of_them() -> None:
    @hm.program
    def broken(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen("first")
        raise KeyError("mine")

    calls = Noting()
    with pytest.raises(KeyError):
        broken.on(calls).run()
    assert len(calls.ended) == 1


def test_forecasts_are_in_proportion_to_what_was_seen() -> None:
    @hm.program
    def one(s: hm.State, steps: int) -> None:
        s += hm.gen_image("picture", "x", steps=steps)

    (small,), (large,) = one.on(Noting()).run(2).nodes, one.on(Noting()).run(20).nodes
    forecasts = Forecasts()
    assert forecasts.seconds(large) == pytest.approx(10 * forecasts.seconds(small))
    small.submitted_s, small.ended_s = 5.0, 5.5
    forecasts.learn(small)
    assert forecasts.seconds(small) == pytest.approx(0.5) and forecasts.seconds(large) == pytest.approx(5.0)
    small.ended_s = 6.5
    forecasts.learn(small)
    assert 0.5 < forecasts.seconds(small) < 1.0, "What is new counts, but not alone."
