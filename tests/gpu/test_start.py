"""On a GPU: what is built before the first request, what memory is laid out for, and the benchmarks on tiny shapes."""

import pytest
import torch

from hemiola import Engine
from hemiola.api.bench import image_gpu, mixed_gpu, soak_gpu, text_gpu
from hemiola.api.compose import plan
from hemiola.api.memory_plan import measured_line, memory_lines
from hemiola.core.config import EngineConfig
from hemiola.core.errors import CannotFit, InvalidRequest

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TEXT, IMAGE, CLIP, FLUX = "dummy:llama-tiny", "dummy:z-image-tiny", "dummy:wan-tiny", "dummy:flux-tiny"
LIBRARIES = 1 << 30
"""What code and workspaces of libraries may keep in a process."""


def test_all_is_built_with_progress_before_the_first_request() -> None:
    told: list[str] = []
    with Engine(TEXT, IMAGE, memory_bytes=2 << 30, on_line=told.append) as engine:
        assert engine.num_built > 0
        assert [line for line in told if line.startswith(f"Building {TEXT}")]
        assert told[-1] == "Warming up"
        assert len(engine.trace) == 0
        assert len(engine.complete("Hi", max_tokens=8, ignore_eos=True).answers[0].token_ids) == 8
        assert engine.image("a fox").pictures[0].image.size == (64, 64)


def test_the_plan_leaves_room_for_all_it_lists_and_running_keeps_to_it() -> None:
    free, _ = torch.cuda.mem_get_info()
    loads = plan([TEXT, IMAGE], EngineConfig())
    assert sum(line.nbytes for line in memory_lines(loads) if line.what != "host tier") < free
    assert set(loads.config.activations) == {"language", "media"}
    with Engine(TEXT, IMAGE, memory_bytes=2 << 30) as engine:
        engine.complete("Hi", max_tokens=8, ignore_eos=True)
        engine.image("a fox")
        measured = measured_line(engine.loads)
        config = engine.loads.config
        assert measured is not None
        assert measured.nbytes <= sum(config.activations.values()) + config.graph_bytes


def test_a_closed_engine_has_given_its_memory_back() -> None:
    """Where nothing was said of memory, the arena is nearly all there is."""
    before, total = torch.cuda.mem_get_info()
    engine = Engine(TEXT, IMAGE)
    engine.complete("Hi", max_tokens=8, ignore_eos=True)
    engine.image("a fox")
    assert torch.cuda.mem_get_info()[0] < total // 2
    engine.close()
    assert torch.cuda.mem_get_info()[0] > before - LIBRARIES


def test_weights_that_do_not_fit_are_refused_before_they_are_made() -> None:
    models = [f"m{i}=dummy:wan-14b" for i in range(8)]
    with pytest.raises(CannotFit):
        plan(models, EngineConfig())


def test_an_arena_larger_than_what_is_left_is_refused() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    with pytest.raises((CannotFit, InvalidRequest)):
        plan([TEXT], EngineConfig(memory_bytes=total))


@pytest.mark.parametrize("model", [IMAGE, CLIP, FLUX])
def test_denoise_steps_are_measured(model: str) -> None:
    report = image_gpu.run(repeats=1, threads=1, models=(model,), steps=3, against="diffusers")
    assert report.scenarios[0].figure > 0 and report.scenarios[-1].baseline > 0


def test_decode_steps_are_measured() -> None:
    report = text_gpu.run(
        repeats=1, threads=1, models=(TEXT,), rows=(8,), context=128, tokens=64, against="transformers"
    )
    assert report.scenarios[0].figure > 0


def test_both_at_once_are_measured() -> None:
    report = mixed_gpu.run(repeats=1, threads=1, models=(TEXT, FLUX), rows=(4,), context=64, tokens=64)
    assert all(scenario.figure > 0 for scenario in report.scenarios)


def test_a_mixed_load_leaves_nothing_behind() -> None:
    assert soak_gpu.run(repeats=1, threads=1, models=(TEXT, IMAGE, CLIP, FLUX), seconds=5, context=256).ratio == 1
