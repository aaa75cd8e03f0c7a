"""Warming up: the default request runs through all stages on a share, leaves graphs and nothing else."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from hemiola.core.graphs import GraphPool
from hemiola.core.warm_up import HasWarmUps
from hemiola.diffusion.families import load_family
from hemiola.diffusion.warming import run_request, usual_request
from hemiola.tests.diffusion.driver import Driver, media_request, solo, tiny_family
from hemiola.tests.tiny_diffusion import FAMILIES, tiny_pipeline_dir


def driver_of(name: str, **options: Any) -> Driver:
    return Driver(tiny_family(name), graph_pool=GraphPool(torch.device("cpu"), lambda: nullcontext([])), **options)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_usual_request_is_allowed_and_has_the_defaults(name: str) -> None:
    edge = tiny_family(name).edge
    request = usual_request(edge, "m")
    assert edge.validate(request) is None
    assert request.width == min(edge.defaults.width, edge.limits.max_width)
    assert request.height == min(edge.defaults.height, edge.limits.max_height)
    assert request.guidance_scale == edge.defaults.guidance_scale


def test_the_usual_request_keeps_within_what_memory_was_laid_out_for() -> None:
    edge = load_family(tiny_pipeline_dir("wan")).edge
    edge.restrict(max_pixels=20_000, max_frames=9)
    request = usual_request(edge, "m")
    assert edge.validate(request) is None and request.num_frames == 9


def small(name: str) -> Any:
    """The usual request, small enough for a test."""
    family = tiny_family(name)
    of_test = media_request(family)
    usual = usual_request(family.edge, "m")
    fields = {field: getattr(usual, field) for field in usual.__struct_fields__}
    return type(usual)(**{**fields, "width": 32, "height": 32, "num_frames": of_test.num_frames})


@pytest.mark.parametrize("name", FAMILIES)
def test_every_share_gets_graphs_of_all_blocks_and_nothing_is_left_of_the_request(name: str) -> None:
    driver = driver_of(name)
    graphs = driver.runner.graphs
    assert graphs is not None
    for num, share in enumerate((1.0, 0.5), 1):
        run_request(driver.runner, small(name), share)
        [layout] = graphs._layouts.values()
        num_blocks = len({index for _, index in layout.graphs})
        assert len(layout.graphs) == num * num_blocks > 0
        assert {at for at, _ in layout.graphs} == set((1.0, 0.5)[:num])
    assert graphs.captured_on_run == 3
    assert all(owner.startswith("graph:m") for owner in driver.arena.ledger.owners)
    driver.assert_nothing_is_held()


def test_what_was_captured_serves_users_of_that_layout() -> None:
    driver = driver_of("zimage")
    request = small("zimage")
    run_request(driver.runner, request, 1.0)
    graphs = driver.runner.graphs
    assert graphs is not None
    captured = graphs._pool.num_graphs
    asked = type(request)(**{f: getattr(request, f) for f in request.__struct_fields__} | {"id": "a", "seed": 5})
    driver.run([driver.admit(asked)])
    assert graphs._pool.num_graphs == captured
    assert np.array_equal(driver.frames("a"), solo(tiny_family("zimage"), asked))


def test_on_a_cpu_there_is_nothing_to_build() -> None:
    runner = driver_of("zimage").runner
    assert isinstance(runner, HasWarmUps) and list(runner.warm_ups()) == []


def test_a_request_that_has_no_room_is_named_and_nothing_is_built(caplog: pytest.LogCaptureFixture) -> None:
    driver = driver_of("zimage", arena_bytes=1 << 14)
    run_request(driver.runner, small("zimage"), 1.0)
    assert "not warmed up" in caplog.text
    driver.assert_nothing_is_held()
