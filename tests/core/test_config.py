"""What is asked of an engine becomes one record with nothing left open, or an error that names the field."""

import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hemiola.core.bounds import number_fields, shown
from hemiola.core.config import (
    BOUNDS,
    CPU_ARENA_BYTES,
    GPU_GRAPH_BYTES,
    EngineConfig,
    Environment,
    LaneName,
    LaneNeed,
    Machine,
    read_environment,
    resolve,
    wait_passively,
)
from hemiola.core.errors import CannotFit, InvalidRequest

GIB = 1 << 30
CPU = Machine(num_cores=8)
GPU = Machine(num_cores=16, gpu_names=("Some GPU", "Some GPU"), gpu_bytes=(80 * GIB, 80 * GIB))
CALM = Environment()


def test_on_a_cpu_all_is_filled_in_and_says_why() -> None:
    resolved = resolve(EngineConfig(), CPU, environment=CALM)
    assert (resolved.device, resolved.dtype, resolved.is_gpu) == ("cpu", "float32", False)
    assert (resolved.threads, resolved.memory_bytes, resolved.quantum_s) == (7, CPU_ARENA_BYTES, 0.030)
    lines = resolved.lines()
    assert "threads: 7 (auto: all of 8 cores but one)" in lines
    assert "memory_bytes: 512 MiB (default on a CPU)" in lines
    assert "device: cpu (auto: no CUDA device is visible)" in lines
    assert "policy: deadline" in lines


def test_one_core_still_gives_one_thread() -> None:
    assert resolve(EngineConfig(), Machine(num_cores=1), environment=CALM).threads == 1


def test_on_a_gpu_the_arena_gets_what_weights_and_activations_leave() -> None:
    without = resolve(EngineConfig(), GPU, environment=CALM)
    with_weights = resolve(EngineConfig(), GPU, weight_bytes=16 * GIB, environment=CALM)
    assert (without.device, without.dtype, without.quantum_s) == ("cuda:0", "bfloat16", 0.005)
    assert without.memory_bytes - with_weights.memory_bytes == 16 * GIB
    assert with_weights.memory_bytes + 16 * GIB + sum(with_weights.activations.values()) < 80 * GIB
    assert "16,384 MiB for weights" in with_weights.notes["memory_bytes"]


def test_what_others_have_of_a_gpu_is_not_counted_on() -> None:
    shared = Machine(16, GPU.gpu_names, GPU.gpu_bytes, gpu_free_bytes=(50 * GIB, 80 * GIB))
    whole, half = (resolve(EngineConfig(), machine, environment=CALM) for machine in (GPU, shared))
    assert whole.memory_bytes - half.memory_bytes == 30 * GIB
    assert resolve(EngineConfig(device="cuda:1"), shared, environment=CALM).memory_bytes == whole.memory_bytes


def test_activations_are_kept_per_lane_and_grow_with_the_limits() -> None:
    usual = resolve(EngineConfig(), GPU, environment=CALM)
    assert set(usual.activations) == {"language", "media"}
    longer = resolve(EngineConfig(max_batch_tokens=16384), GPU, environment=CALM)
    assert longer.activations["language"] > usual.activations["language"]
    assert longer.activations["media"] == usual.activations["media"]
    smaller = resolve(EngineConfig(max_pixels=1 << 20), GPU, environment=CALM)
    assert smaller.activations["media"] < usual.activations["media"]
    assert smaller.memory_bytes > usual.memory_bytes
    text_only = resolve(EngineConfig(), GPU, lanes=["language"], environment=CALM)
    assert set(text_only.activations) == {"language"} and text_only.graph_bytes < usual.graph_bytes
    assert resolve(EngineConfig(), CPU, environment=CALM).activations == {}


def test_the_media_lane_keeps_what_its_models_need() -> None:
    need = LaneNeed(activation_bytes=7 * GIB, graph_bytes=3 * GIB)
    resolved = resolve(EngineConfig(), GPU, media=need, environment=CALM)
    assert resolved.activations["media"] == 7 * GIB
    assert resolved.graph_bytes == GPU_GRAPH_BYTES + 3 * GIB
    text_only = resolve(EngineConfig(), GPU, lanes=["language"], media=None, environment=CALM)
    assert text_only.graph_bytes == GPU_GRAPH_BYTES
    asked = resolve(EngineConfig(activation_bytes=GIB), GPU, media=need, environment=CALM)
    assert asked.activations["media"] == GIB and asked.graph_bytes == resolved.graph_bytes


def test_activations_can_be_set() -> None:
    resolved = resolve(EngineConfig(activation_bytes=3 * GIB), GPU, environment=CALM)
    assert dict(resolved.activations) == {"language": 3 * GIB, "media": 3 * GIB}
    assert "activations: 3,072 MiB for language, 3,072 MiB for media (as asked)" in resolved.lines()


def test_weights_that_fill_the_gpu_are_refused_with_both_figures() -> None:
    with pytest.raises(CannotFit) as caught:
        resolve(EngineConfig(), GPU, weight_bytes=90 * GIB, environment=CALM)
    assert caught.value.bytes_needed > 90 * GIB
    assert caught.value.bytes_available < 80 * GIB
    assert caught.value.message.endswith("The weights alone take 92,160 MiB: name fewer or smaller models.")


def test_a_gpu_that_others_fill_is_not_blamed_on_the_models() -> None:
    """Less than nothing could be had."""
    full = replace(GPU, gpu_free_bytes=(GIB, 80 * GIB))
    with pytest.raises(CannotFit, match=r"2,048 MiB stay free of what is free: .* another 'device'") as caught:
        resolve(EngineConfig(), full, weight_bytes=GIB, environment=CALM)
    assert caught.value.bytes_available == 0
    assert resolve(EngineConfig(device="cuda:1"), full, weight_bytes=GIB, environment=CALM).memory_bytes > 0


def test_wide_weights_that_fill_the_gpu_may_be_narrower() -> None:
    with pytest.raises(CannotFit, match="or say 'bfloat16' as the engine's 'dtype'"):
        resolve(EngineConfig(dtype="float32"), GPU, weight_bytes=90 * GIB, environment=CALM)
    assert resolve(EngineConfig(dtype="bfloat16"), GPU, weight_bytes=45 * GIB, environment=CALM).memory_bytes > 0


@pytest.mark.parametrize(
    ("lanes", "asked", "lower", "named"),
    [
        (("language",), {"max_batch_tokens": 32 << 10}, {"max_batch_tokens": 1 << 10}, ["max_batch_tokens"]),
        (
            ("media",),
            {"max_pixels": 1 << 23},
            {"max_pixels": 1 << 20},
            ["max_pixels", "max_frame_pixels", "max_frames"],
        ),
        (("language", "media"), {"activation_bytes": 10 * GIB}, {"activation_bytes": GIB}, ["activation_bytes"]),
    ],
)
def test_activations_that_leave_no_arena_name_what_makes_them_smaller(
    lanes: tuple[LaneName, ...], asked: dict[str, int], lower: dict[str, int], named: list[str]
) -> None:
    """The message named nothing that helps. What it names does."""
    machine = Machine(num_cores=2, gpu_names=("a GPU",), gpu_bytes=(24 * GIB,))

    def arena(options: dict[str, Any]) -> int:
        config = EngineConfig(**options)
        return resolve(config, machine, weight_bytes=14 * GIB, lanes=lanes, environment=CALM).memory_bytes

    with pytest.raises(
        CannotFit, match=r"^Room for weights, activations and graphs needs .* Lower the engine's"
    ) as raised:
        arena(asked)
    assert re.findall(r"'(\w+)'", raised.value.message) == named
    assert arena(lower) > 0


def test_an_arena_larger_than_the_gpu_has_left_is_refused() -> None:
    with pytest.raises(CannotFit, match=r"Lower the engine's 'memory_bytes', or leave it out"):
        resolve(EngineConfig(memory_bytes=79 * GIB), GPU, weight_bytes=16 * GIB, environment=CALM)
    assert resolve(EngineConfig(), GPU, weight_bytes=16 * GIB, environment=CALM).memory_bytes > 40 * GIB


def test_what_was_asked_is_kept_without_a_note() -> None:
    asked = EngineConfig(device="cuda:1", dtype="float16", memory_bytes=GIB, host_bytes=0, threads=3, quantum_s=0.02)
    resolved = resolve(asked, GPU, environment=CALM)
    assert (resolved.device, resolved.dtype, resolved.memory_bytes) == ("cuda:1", "float16", GIB)
    assert (resolved.host_bytes, resolved.threads, resolved.quantum_s) == (0, 3, 0.02)
    assert set(resolved.notes) == {"max_batch_tokens", "activations"}


WRONG_VALUES: dict[str, tuple[Any, ...]] = {
    "device": (None, 5, ["cpu"], b"cpu"),
    "dtype": ("float8", None, 16, ["float32"]),
    "memory_bytes": (0, -1, "5", 1.5, True, 10**30, [1], math.nan),
    "host_bytes": (-1, "0", 0.5, False, 10**30),
    "threads": (0, -3, 1025, "2", 1.5, True, 10**30, 10**5000, math.inf),
    "policy": (None, 1, ["deadline"]),
    "max_batch_tokens": (0, "512", 1.0, 10**30),
    "max_pixels": (0, None, "4096", 1.5, 10**30),
    "max_frame_pixels": (0, None, [1], 10**30),
    "max_frames": (0, None, True, 10**30),
    "activation_bytes": (0, "1", 10**30),
    "quantum_s": (0, 0.0009, 61, -1.0, math.nan, math.inf, "0.1", True, 10**30),
    "media_sm_share": (0, 1.01, -0.5, math.nan, math.inf, None, "half", True),
    "prefix_cache": ("no", 0, 1, None),
    "load_format": ("pickle", None, 1),
}
ALLOWED = {
    "dtype": "auto, float32, bfloat16, float16",
    "memory_bytes": "a whole number from 1 to 1,152,921,504,606,846,976 or None",
    "threads": "a whole number from 1 to 1,024 or None",
    "quantum_s": "a number from 0.001 to 60 or None",
    "media_sm_share": "a number above 0 and at most 1",
    "prefix_cache": "True or False",
    "load_format": "'auto', 'dummy'",
}


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field, values in WRONG_VALUES.items() for value in values],
    ids=lambda value: shown(value)[:12],
)
def test_an_impossible_value_names_the_field_the_value_and_what_is_allowed(field: str, value: object) -> None:
    """Most went through: `threads="2"` ended in a TypeError, `prefix_cache="no"` was taken for yes."""
    with pytest.raises(InvalidRequest) as caught:
        EngineConfig(**{field: value})  # type: ignore[arg-type]  # what types are for, users may not have
    assert caught.value.param == field
    assert caught.value.message.startswith(f"Invalid '{field}': {shown(value)}. Allowed: ")
    assert ALLOWED.get(field, "") in caught.value.message


def test_numbers_of_numpy_are_numbers_and_become_ours() -> None:
    """They were refused, or went on as 32 bits that overflow."""
    given: dict[str, Any] = {
        "memory_bytes": np.int64(1 << 40),
        "threads": np.uint8(3),
        "quantum_s": np.float32(0.5),
        "media_sm_share": np.float64(0.25),
    }
    config = EngineConfig(**given)
    for field, value in given.items():
        assert getattr(config, field) == value
        assert type(getattr(config, field)) is (int if isinstance(value, np.integer) else float)


@pytest.mark.parametrize("value", [np.int64(0), np.float64(2), np.bool_(True), np.array([1, 2])])
def test_numbers_of_numpy_have_the_same_bounds(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"Invalid 'threads': .* from 1 to 1,024"):
        EngineConfig(threads=value)


def test_values_are_shown_as_they_were_given_unless_they_are_huge() -> None:
    assert [shown(value) for value in (10**30, "2", math.nan)] == [str(10**30), "'2'", "nan"]
    assert shown(10**5000) == "an integer of 16610 bits"
    assert shown("x" * 1000) == "'" + "x" * 59 + "..."


def test_all_fields_are_checked_and_all_numbers_have_bounds() -> None:
    assert set(WRONG_VALUES) == {field.name for field in fields(EngineConfig)}
    assert set(BOUNDS) == number_fields(EngineConfig)


def test_the_ends_of_the_bounds_are_allowed() -> None:
    for field, within in BOUNDS.items():
        EngineConfig(**{field: within.most})  # type: ignore[arg-type]  # each a number, as its field is
        if not within.is_open:
            EngineConfig(**{field: within.least})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "allowed"), [(CPU, "auto, cpu."), (GPU, "auto, cpu, cuda, cuda:0, cuda:1.")], ids=["CPU", "GPU"]
)
def test_a_device_that_is_not_here_is_told_with_those_that_are(machine: Machine, allowed: str) -> None:
    with pytest.raises(InvalidRequest, match=f"Invalid 'device': 'cuda:7'. Allowed: {allowed}"):
        resolve(EngineConfig(device="cuda:7"), machine, environment=CALM)


def test_the_environment_is_read_from_the_variables_given() -> None:
    variables = {"HEMIOLA_DEMO_MODELS": "/models", "HEMIOLA_THREADS": "3", "HF_HUB_OFFLINE": "1", "HF_HOME": "/hf"}
    assert read_environment(variables) == Environment(
        demo_models=Path("/models"), threads=3, is_offline=True, hub_cache=Path("/hf/hub")
    )
    assert read_environment({}).is_offline is False
    assert read_environment({"HF_HUB_OFFLINE": "0"}).is_offline is False


def test_a_thread_count_from_the_environment_is_used_unless_one_was_asked_for() -> None:
    env = Environment(threads=2)
    assert resolve(EngineConfig(), CPU, environment=env).threads == 2
    assert resolve(EngineConfig(threads=5), CPU, environment=env).threads == 5


@pytest.mark.parametrize("count", ["many", "0", "-1", "1.5", "1025", "9" * 5000])
def test_a_nonsensical_thread_count_in_the_environment_is_refused(count: str) -> None:
    with pytest.raises(InvalidRequest, match=r"HEMIOLA_THREADS.*Allowed: a whole number from 1 to 1,024"):
        read_environment({"HEMIOLA_THREADS": count})


def test_waiting_is_passive_unless_the_user_said_otherwise() -> None:
    fresh: dict[str, str] = {}
    wait_passively(fresh)
    assert fresh == {"OMP_WAIT_POLICY": "PASSIVE"}
    chosen = {"OMP_WAIT_POLICY": "ACTIVE"}
    wait_passively(chosen)
    assert chosen == {"OMP_WAIT_POLICY": "ACTIVE"}
