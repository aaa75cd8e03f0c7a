"""The composition root: from model names to a scheduler over runners. The only place where all parts meet.

`plan` looks at files only and says what will be loaded and whether it fits; `build` then allocates and loads, on the
thread that will run the loop.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from hemiola.core.caches import Caches
from hemiola.core.config import (
    EngineConfig,
    LaneName,
    LaneNeed,
    Machine,
    ResolvedConfig,
    bound_prepared_operators,
    lighter_weights,
    resolve,
)
from hemiola.core.device import describe_device
from hemiola.core.errors import CannotFit, InvalidRequest
from hemiola.core.events import Event
from hemiola.core.hub import (
    Kind,
    ModelSource,
    WeightSummary,
    check_weights,
    declared_weights,
    encoder_source,
    resolve_all,
)
from hemiola.core.memory import Arena
from hemiola.core.step import Runner
from hemiola.core.text_encoder import TextEncoder
from hemiola.core.tracing import StepTrace
from hemiola.core.warm_up import HasWarmUps, WarmUp
from hemiola.diffusion import DiffusionRunner
from hemiola.diffusion.batching import Batching
from hemiola.diffusion.edge import open_edge
from hemiola.llm import LanguageRunner
from hemiola.scheduler.cost_model import CostModel
from hemiola.scheduler.policy import POLICIES, Limits
from hemiola.scheduler.scheduler import Scheduler

from .front.terms import engine_clock
from .made_up import count_params
from .placing import Placement, place

log = logging.getLogger(__name__)

Sources = tuple[ModelSource, ...]

# What is granted of tokens, in quanta of media: larger chunks of prompts cost less in all.
_TOKEN_QUANTA, _IDLE_TOKEN_QUANTA = 2, 8
_LANES: dict[Kind, LaneName] = {"language": "language", "diffusion": "media"}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What will be loaded, decided from files alone.

    Fields:
        served: the models that requests may name.
        encoders: language models that only encode for a pipeline, not served by themselves.
        shared: per pipeline name, the language model that is its text encoder.
        weights: of each model, by name.
        config: settings with nothing left open.
    """

    served: tuple[ModelSource, ...]
    encoders: tuple[ModelSource, ...]
    shared: dict[str, ModelSource]
    weights: dict[str, WeightSummary]
    config: ResolvedConfig

    @property
    def languages(self) -> list[ModelSource]:
        return [source for source in (*self.served, *self.encoders) if source.kind == "language"]

    @property
    def pipelines(self) -> list[ModelSource]:
        return [source for source in self.served if source.kind == "diffusion"]


def plan(specs: Sequence[str | Path], config: EngineConfig) -> LoadPlan:
    """Finds the models, checks their weight files and whether all fits.

    Raises:
        ModelNotFound, UnsupportedModel, CorruptWeights, CannotFit, InvalidRequest: before anything is loaded.
    """
    if config.policy not in POLICIES:
        raise InvalidRequest("policy", f"Invalid 'policy': '{config.policy}'. Allowed: {', '.join(POLICIES)}.")
    served, encoders, shared = find_models(specs, config)
    weights = weights_of((*served, *encoders))
    resolved = resolve(config, this_machine(), lanes=())  # what lanes need is not known yet
    needed = sum(summary.bytes_as(resolved.dtype) for summary in weights.values())
    if resolved.is_gpu:
        lanes = sorted({_LANES[source.kind] for source in (*served, *encoders)})
        media = media_need((*served, *encoders), resolved)
        machine = this_machine(resolved.device)
        resolved = resolve(config, machine, weight_bytes=needed, lanes=lanes, media=media)
    else:
        _check_host(f"Serving {', '.join(s.name for s in served)}", needed, resolved)
    return LoadPlan(served, encoders, shared, weights, resolved)


def _check_host(what: str, weight_bytes: int, config: ResolvedConfig) -> None:
    """
    Raises:
        CannotFit: weights, arena and host tier do not fit a CPU's memory together.
    """
    total, available = weight_bytes + config.memory_bytes + config.host_bytes, available_host_bytes()
    if total <= available:
        return
    hint = f"Lower the engine's 'memory_bytes' or 'host_bytes', by {-(-(total - available) // 2**20):,} MiB in all."
    if weight_bytes >= available:
        hint = lighter_weights(weight_bytes, config.dtype)
    raise CannotFit(what, total, available, hint)


def find_models(specs: Sequence[str | Path], config: EngineConfig) -> tuple[Sources, Sources, dict[str, ModelSource]]:
    """The models that are named, those that only encode for them, and per pipeline which model that is.

    Raises:
        ModelNotFound, UnsupportedModel, CorruptWeights, InvalidRequest: see `core.hub`.
    """
    is_dummy = config.load_format == "dummy"
    served = tuple(_as_dummy(source) if is_dummy else source for source in resolve_all(specs))
    if not served:
        raise InvalidRequest("model", "No model was named. Allowed: one or more; 'demo' is the built-in ones.")
    shared = {source.name: encoder_source(source, served) for source in served if source.shared_encoder}
    if is_dummy:
        shared = {name: _as_dummy(source) for name, source in shared.items()}
    encoders = tuple({s.path: s for s in shared.values() if s not in served}.values())
    return served, encoders, shared


def media_need(served: Sequence[ModelSource], config: ResolvedConfig) -> LaneNeed | None:
    """What the pipelines take at most within the limits, on each share of the SMs that their steps may get."""
    footprints = []
    for source in served:
        if source.kind == "diffusion":
            edge = open_edge(source.path)
            edge.restrict(config.max_pixels, config.max_frames, config.max_frame_pixels)
            footprints.append(edge.footprint(getattr(torch, config.dtype).itemsize))
    if not footprints:
        return None
    num_shares = len(sm_shares(config, has_language=any(s.kind == "language" for s in served)))
    activations, graphs = (max(sizes) for sizes in zip(*footprints, strict=True))
    return LaneNeed(num_shares * activations, num_shares * graphs)


def sm_shares(config: ResolvedConfig, *, has_language: bool) -> Sequence[float]:
    """Those that steps of media may get, the largest first."""
    return sorted({1.0, config.media_sm_share if has_language else 1.0}, reverse=True)


def weights_of(sources: Iterable[ModelSource]) -> dict[str, WeightSummary]:
    """By name: what lies in files, or what would be made up."""
    return {source.name: _weights(source) for source in sources}


def _as_dummy(source: ModelSource) -> ModelSource:
    return replace(source, load_format="dummy")


def _weights(source: ModelSource) -> WeightSummary:
    if source.load_format == "auto":
        return check_weights(source)
    return declared_weights(source) or count_params(source)


@dataclass(frozen=True, slots=True)
class Composition:
    """A scheduler with what it runs on; made and used on the loop's thread alone."""

    scheduler: Scheduler
    arena: Arena
    languages: dict[str, LanguageRunner]
    pipelines: dict[str, DiffusionRunner]

    def check(self) -> None:
        """When idle: asserts that every byte has an owner and none has two."""
        self.arena.ledger.check()

    def warm(self, progress: Callable[[WarmUp], None]) -> int:
        """Builds what the runners need built before the first request, telling of each before it; how many."""
        num_built = 0
        for runner in self.scheduler.runners.values():
            if isinstance(runner, HasWarmUps):
                for warm_up in runner.warm_ups():
                    progress(warm_up)
                    warm_up.run()
                    num_built += 1
        if num_built:  # serving begins with all that is kept free for it
            Caches(self.arena.device).give_back()
        return num_built


def build(
    loads: LoadPlan,
    emit: Callable[[Event], None],
    trace: StepTrace,
    is_called: Callable[[], bool] = lambda: False,
) -> Composition:
    """Allocates the arena, loads the models, and puts a scheduler over them.

    Args:
        is_called: whether somebody wants something of the loop, so that it must not wait for the device.
    """
    config = loads.config
    for line in config.lines():
        log.info("%s", line)
    if config.is_gpu:
        torch.cuda.set_device(config.device)  # of this thread: kernels are compiled and launched on the current device
    else:
        bound_prepared_operators()
    costs = CostModel()
    placement = place(config)
    arena = Arena(config.memory_bytes, device=config.device, host_bytes=config.host_bytes, clock=placement.in_flight)
    arena.seconds = costs.seconds
    dtype = getattr(torch, config.dtype)
    languages = {
        source.name: LanguageRunner(
            source.name,
            source.path,
            arena,
            dtype=dtype,
            device=config.device,
            max_batch_tokens=config.max_batch_tokens,
            load_format=source.load_format,
            prefix_cache=config.prefix_cache,
            encode_only=True if source in loads.encoders else None,
            graph_pool=placement.pools.get(LanguageRunner.lane),
        )
        for source in loads.languages
    }
    pipelines = {
        source.name: _pipeline(source, loads, arena, placement, _text_encoders(source, loads, languages))
        for source in loads.pipelines
    }
    for pipeline in pipelines.values():
        pipeline.edge.restrict(config.max_pixels, config.max_frames, config.max_frame_pixels)
    if config.is_gpu:
        torch.cuda.synchronize()  # weights are there, whatever stream reads them
        torch.cuda.empty_cache()  # what loading took besides is nobody's, and no part of what running takes
        torch.cuda.reset_peak_memory_stats(config.device)
    runners: list[Runner[Any]] = [*languages.values(), *pipelines.values()]
    limits = Limits(
        quantum_s=config.quantum_s,
        tokens_s=_TOKEN_QUANTA * config.quantum_s,
        idle_tokens_s=_IDLE_TOKEN_QUANTA * config.quantum_s,
        max_batch_tokens=config.max_batch_tokens,
    )
    scheduler = Scheduler(
        map(placement.wrap, runners),
        lanes=placement.lanes,
        policy=POLICIES[config.policy](costs, limits),
        costs=costs,
        emit=emit,
        clock=engine_clock,
        memory_version=lambda: arena.version,
        trace=trace,
        is_called=is_called,
    )
    return Composition(scheduler, arena, languages, pipelines)


def _pipeline(
    source: ModelSource,
    loads: LoadPlan,
    arena: Arena,
    placement: Placement,
    text_encoders: dict[str, TextEncoder],
) -> DiffusionRunner:
    config = loads.config
    return DiffusionRunner(
        source.name,
        source.path,
        arena,
        dtype=getattr(torch, config.dtype),
        device=config.device,
        text_encoders=text_encoders,
        batching=Batching(),
        load_format=source.load_format,
        graph_pool=placement.pools.get(DiffusionRunner.lane),
        sm_shares=sm_shares(config, has_language=bool(loads.languages)),
    )


def _text_encoders(
    source: ModelSource, loads: LoadPlan, languages: dict[str, LanguageRunner]
) -> dict[str, TextEncoder]:
    encoder = loads.shared.get(source.name)
    return {} if encoder is None else {"text_encoder": languages[encoder.name]}


def this_machine(device: str | None = None) -> Machine:
    """Cores and GPUs as torch sees them.

    Args:
        device: the GPU of which is said what is free of its memory; to ask one takes some of it.
    """
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    cores = describe_device("cpu").num_units
    sizes = tuple(gpu.total_memory for gpu in gpus)
    free = tuple(_free_bytes(i) if device == f"cuda:{i}" else size for i, size in enumerate(sizes))
    return Machine(cores, tuple(gpu.name for gpu in gpus), sizes, free)


def _free_bytes(index: int) -> int:
    """Of a GPU: what nobody has, and what this process has and does not use."""
    free, _ = torch.cuda.mem_get_info(index)
    return int(free) + torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)


def available_host_bytes() -> int:
    """What can be had without swapping, or all there is where the system does not say."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return describe_device("cpu").total_bytes
    lines = (line.partition(":") for line in meminfo.read_text(encoding="ascii").splitlines())
    sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in lines}
    return sizes["MemAvailable"]
