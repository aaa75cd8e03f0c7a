"""Steps by decode graphs give what the same steps give as they come. On a CPU a graph is the function itself."""

from collections.abc import Callable

import pytest
import torch

from hemiola.core.errors import CannotFit
from hemiola.core.graphs import Graph, GraphPool
from hemiola.core.request import TextRequest
from hemiola.kernels.attention.paged_torch import TorchPagedAttention
from hemiola.kernels.captured import keeping
from hemiola.llm import LanguageRunner
from hemiola.llm.warming import warm_ups
from hemiola.tests.llm.driver import Driver, MakeRunner, ask


def pool() -> GraphPool:
    return GraphPool(torch.device("cpu"), keeping)


def requests() -> list[TextRequest]:
    plain = [ask(f"plain{i}", range(3 + i, 9 + 5 * i), max_tokens=6 + i) for i in range(5)]
    sampled = [ask(f"sampled{i}", range(40, 50 + i), temperature=0.9, top_p=0.9, seed=i, logprobs=2) for i in range(2)]
    return [*plain, *sampled, ask("forced", (5, 6, 7), forced_token_ids=(9, 9, 4))]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_graphs_give_the_same_tokens(make_runner: MakeRunner, name: str, depth: int) -> None:
    expected = Driver(make_runner(name)).run(*requests())
    runner = make_runner(name, graph_pool=pool())
    assert Driver(runner, depth=depth, quantum=20).run(*requests()) == expected
    assert runner.steps.graphs is not None and runner.steps.graphs.num_graphs >= 3


def test_only_steps_without_chunks_use_a_graph(make_runner: MakeRunner) -> None:
    runner = make_runner(graph_pool=pool())
    driver = Driver(runner)
    driver.admit(ask("a", range(1, 20)))
    driver.step()
    assert runner.steps.graphs is not None
    assert runner.steps.graphs.num_graphs == 0
    driver.step()
    assert runner.steps.graphs.num_graphs == 1


def test_warming_up_builds_every_size_and_leaves_one_page_held(make_runner: MakeRunner) -> None:
    runner: LanguageRunner = make_runner(graph_pool=pool())
    for warm_up in warm_ups(runner):
        warm_up.run()
    assert runner.steps.graphs is not None
    assert runner.steps.graphs.num_graphs == len(runner.steps.graphs.sizes)
    assert [owners for owners in runner.kv_cache.page_class.held.values()] == [["graphs:tiny"]]
    assert not runner._states and not runner._encodings._jobs
    before = Driver(make_runner()).run(ask("a", range(1, 20)))
    assert Driver(runner).run(ask("a", range(1, 20))) == before


def test_the_padding_page_may_move(make_runner: MakeRunner) -> None:
    runner = make_runner(graph_pool=pool())
    Driver(runner).run(ask("a", range(1, 20)))
    page_class = runner.kv_cache.page_class
    (page,) = (page for page, owners in page_class.held.items() if "graphs:tiny" in owners)
    span = next(
        i for i in range(runner.kv_cache.arena.nbytes // page_class._free.span_bytes) if page in page_class.ids_in(i)
    )
    filler = page_class.take(len(page_class.ids_in(span)), "filler")
    assert isinstance(filler, list)
    page_class.free(filler, "filler")
    assert page_class.vacate([span], lambda: False)
    expected = Driver(make_runner()).run(ask("b", range(2, 30)))
    assert Driver(runner).run(ask("b", range(2, 30))) == expected


def test_no_page_for_padding_says_that_others_have_them_all(make_runner: MakeRunner) -> None:
    """It compared one page with the whole arena: it needs 3.0 KiB, but 24576.0 KiB can be had."""
    runner = make_runner(graph_pool=pool())
    page_class = runner.kv_cache.page_class
    while isinstance(page_class.take(1, "others"), list):
        pass
    words = r"^Beside what is in use already, .* of 'tiny' needs ([\d.]+) KiB, but 0\.0 KiB .*'memory_bytes'\.$"
    assert runner.steps.graphs is not None
    with pytest.raises(CannotFit, match=words) as refused:
        runner.steps.graphs.build(1)
    assert refused.value.bytes_needed == page_class.page_bytes
    page_class.free([next(iter(page_class.held))], "others")
    runner.steps.graphs.build(1)


def test_attention_without_fixed_plans_has_no_graphs(make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Driver(make_runner()).run(*requests())
    monkeypatch.setattr(TorchPagedAttention, "fixed_plan", lambda *_: None)
    runner = make_runner(graph_pool=pool())
    for warm_up in warm_ups(runner):
        warm_up.run()
    assert runner.steps.graphs is None
    assert Driver(runner).run(*requests()) == expected


class FailingPool(GraphPool):
    """Captures so many graphs and then fails."""

    def __init__(self, num_good: int) -> None:
        super().__init__(torch.device("cpu"), keeping)
        self.num_tries = 0
        self._num_good = num_good

    def capture(self, function: Callable[[], None]) -> Graph:
        self.num_tries += 1
        if self.num_tries > self._num_good:
            raise RuntimeError("operation not permitted when stream is capturing")
        return super().capture(function)


@pytest.mark.parametrize("num_good", [0, 2])
def test_where_a_capture_fails_decodes_run_as_they_come(
    make_runner: MakeRunner, caplog: pytest.LogCaptureFixture, num_good: int
) -> None:
    expected = Driver(make_runner()).run(*requests())
    failing = FailingPool(num_good)
    runner = make_runner(graph_pool=failing)
    assert Driver(runner, depth=2, quantum=20).run(*requests()) == expected
    assert failing.num_tries == num_good + 1, "it is not tried again"
    (record,) = caplog.records
    assert "operation not permitted when stream is capturing" in record.getMessage()


def test_warming_up_goes_on_where_a_capture_fails(make_runner: MakeRunner) -> None:
    runner: LanguageRunner = make_runner(graph_pool=FailingPool(1))
    for warm_up in warm_ups(runner):
        warm_up.run()
    graphs = runner.steps.graphs
    assert graphs is not None and graphs.num_graphs == 1 and graphs.why_not is not None
    before = Driver(make_runner()).run(ask("a", range(1, 20)))
    assert Driver(runner).run(ask("a", range(1, 20))) == before


def test_rows_that_share_more_pages_than_the_arena_has_run_without_a_graph(make_runner: MakeRunner) -> None:
    prompt = tuple(range(1, 60))
    asked = [ask("first", prompt, max_tokens=1), *(ask(f"more{i}", (*prompt, i), max_tokens=6) for i in range(12))]
    page_bytes = make_runner().kv_cache.page_bytes
    runners = [make_runner(arena_bytes=100 * page_bytes, graph_pool=each) for each in (None, pool())]
    found = []
    for runner in runners:
        driver = Driver(runner)
        found.append((driver.run(asked[0]), driver.run(*asked[1:])))
    assert found[0] == found[1]
    graphs = runners[1].steps.graphs
    assert graphs is not None and any(c.plan.max_pages < 12 * 16 for c in graphs._captured.values())
