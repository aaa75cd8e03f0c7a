"""What an engine is set to: what was asked (`EngineConfig`), and what that came to on this machine (`ResolvedConfig`).

The only file that reads environment variables. It knows no torch: whoever does says what the machine has (`Machine`).

    HEMIOLA_DEMO_MODELS   a folder to look for the built-in demo models in, instead of the installed one
    HEMIOLA_THREADS       CPU threads, where EngineConfig leaves them open
    HF_HUB_OFFLINE        1: never ask the Hugging Face Hub, use its cache alone
    HF_HUB_CACHE, HF_HOME where that cache is
    OMP_WAIT_POLICY       set to PASSIVE unless it is set already, see `wait_passively`
    ONEDNN_PRIMITIVE_CACHE_CAPACITY, LRU_CACHE_CAPACITY
                          set unless they are set already, see `bound_prepared_operators`
"""

import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, TypeVar, get_args

from .bounds import Bounds, check_fields, number_words, shown
from .errors import CannotFit, InvalidRequest

DTYPES = ("float32", "bfloat16", "float16")
LoadFormat = Literal["auto", "dummy"]
LOAD_FORMATS: tuple[LoadFormat, ...] = get_args(LoadFormat)
LaneName = Literal["language", "media"]

CPU_ARENA_BYTES = 512 << 20
CPU_HOST_BYTES = 256 << 20
GPU_HOST_BYTES = 4 << 30
# 72 of an H200's 132 SMs (a green context has a multiple of 8).
MEDIA_SM_SHARE = 0.5
# Kept free of what a GPU has free at start: libraries' workspaces and fragmentation outside our allocations.
GPU_MARGIN_BYTES = 2 << 30
# Scratch memory of captured graphs, per lane: of language, and of media where `LaneNeed` does not say.
GPU_GRAPH_BYTES = 1 << 30
# Activations per lane, until `activation_bytes` says better. Language: 24 MLP-sized rows a token of an 8B model, and
# logits. Media: by its `LaneNeed`; where there is none, what a 2D VAE takes of a picture.
GPU_ACTIVATION_BYTES = 1 << 30
ACTIVATION_BYTES_PER_TOKEN = 256 << 10
ACTIVATION_BYTES_PER_PIXEL = 2 << 10
# Limits of requests; those of the models hold besides.
MAX_PIXELS = 2048 * 2048
MAX_FRAME_PIXELS = 1280 * 720
MAX_FRAMES = 161  # 10 s at 16 frames a second
# By which activations are estimated.
_LIMITS: dict[LaneName, tuple[str, ...]] = {
    "language": ("max_batch_tokens",),
    "media": ("max_pixels", "max_frame_pixels", "max_frames"),
}

# What the numbers of an EngineConfig may be, so that none is absurd: what fits is found out later.
_BYTES = 1 << 60
_SIDE = 1 << 15
BOUNDS: Mapping[str, Bounds] = {
    "memory_bytes": Bounds(1, _BYTES),
    "host_bytes": Bounds(0, _BYTES),
    "threads": Bounds(1, 1024),
    "max_batch_tokens": Bounds(1, 1 << 20),
    "max_pixels": Bounds(1, _SIDE * _SIDE),
    "max_frame_pixels": Bounds(1, _SIDE * _SIDE),
    "max_frames": Bounds(1, 1 << 16),
    "activation_bytes": Bounds(1, _BYTES),
    "quantum_s": Bounds(0.001, 60),
    "media_sm_share": Bounds(0, 1, is_open=True),
}
# Of a CPU: steps of a few shapes have that many different ones.
NUM_PREPARED_OPERATORS = 64
MEMORY_FRACTION = Bounds(0, 1, is_open=True)

Number = TypeVar("Number", int, float)

_TRUE_WORDS = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment variables that matter, read once."""

    demo_models: Path | None = None
    threads: int | None = None
    is_offline: bool = False
    hub_cache: Path = Path("~/.cache/huggingface/hub")


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """The environment as it is now (or as `variables` say).

    Raises:
        InvalidRequest: HEMIOLA_THREADS is not a number of threads.
    """
    env = os.environ if variables is None else variables
    hub_cache = Path(env.get("HF_HUB_CACHE") or Path(env.get("HF_HOME") or "~/.cache/huggingface") / "hub")
    return Environment(
        demo_models=Path(env["HEMIOLA_DEMO_MODELS"]).expanduser() if env.get("HEMIOLA_DEMO_MODELS") else None,
        threads=_parse_threads(env["HEMIOLA_THREADS"]) if env.get("HEMIOLA_THREADS") else None,
        is_offline=env.get("HF_HUB_OFFLINE", "").lower() in _TRUE_WORDS,
        hub_cache=hub_cache.expanduser(),
    )


def wait_passively(variables: MutableMapping[str, str] | None = None) -> None:
    """Makes OpenMP's threads sleep while they wait, instead of spinning. Works only before torch is first imported.

    Spinning threads starve each other on a shared machine: with two of them beside one busy process a picture took
    32 s instead of 0.8 s. Called by whatever is about to import torch for the user: the package's lazy exports, the
    command line and the engine process.
    """
    (os.environ if variables is None else variables).setdefault("OMP_WAIT_POLICY", "PASSIVE")


def bound_prepared_operators() -> None:
    """Keeps torch's CPU libraries from holding an operator for every number of rows that ever came.

    oneDNN and torch's layer above it each keep the last 1024 operators that they prepared, one per layer shape and
    number of rows, 0.4 MiB for both: with requests of ever other lengths a process grows by some 400 MiB before that
    ends. Preparing is cheap enough: text, pictures and clips took as long with 16 as with 1024. Works only before
    the first of them is prepared; what the user has set stays.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(NUM_PREPARED_OPERATORS))


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to run on, as the code that knows torch sees it.

    Fields:
        num_cores: CPU cores that this process may use.
        gpu_names, gpu_bytes: per visible CUDA device its name and total memory; empty without one.
        gpu_free_bytes: what of it is free at the moment; taken for all of it where it is empty.
    """

    num_cores: int
    gpu_names: tuple[str, ...] = ()
    gpu_bytes: tuple[int, ...] = ()
    gpu_free_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LaneNeed:
    """What the models of a lane take of a GPU at most besides weights and the arena.

    Fields:
        activation_bytes: of a step; with several SM shares, each of which has a cache of its own, of one on each.
        graph_bytes: scratch memory of what is captured.
    """

    activation_bytes: int
    graph_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What was asked for; `None` and "auto" leave it to `resolve`.

    Fields:
        device: "auto" (a GPU when there is one), "cpu", "cuda" or "cuda:N".
        dtype: of weights and activations: "auto" (float32 on a CPU, bfloat16 on a GPU) or one of `DTYPES`.
        memory_bytes: the arena: KV pages, latents, conditions, caches; not weights, not activations.
        host_bytes: the host tier, to which parked requests and evicted pages go.
        threads: CPU threads of torch; default is all cores but one, so that the loop's own thread has one.
        policy: orders steps, by its name in `scheduler.policy`.
        max_batch_tokens: tokens in one forward of a language model, and so the longest prefill chunk.
        max_pixels: of a picture; requests for more are refused. Activations are sized by it where pictures are made.
        max_frame_pixels: of a frame of a clip; likewise where clips are made.
        max_frames: of a clip; likewise.
        activation_bytes: kept for activations on a GPU, for each lane; the arena gets what is left. On a CPU they come
            from the system as they are needed.
        quantum_s: how long a step of media may run, since text may come meanwhile. A chunk of a prompt may make a
            step of decodes twice as much longer.
        media_sm_share: of a GPU's SMs, what steps of media have while text is computed; 1.0 leaves it to priorities.
        prefix_cache: keep prompts' KV pages for later requests that begin alike.
        load_format: "auto" loads weights, "dummy" makes random ones of the right shapes.

    Raises:
        InvalidRequest: a field is of another type or out of its `BOUNDS`.
    """

    device: str = "auto"
    dtype: str = "auto"
    memory_bytes: int | None = None
    host_bytes: int | None = None
    threads: int | None = None
    policy: str = "deadline"
    max_batch_tokens: int | None = None
    max_pixels: int = MAX_PIXELS
    max_frame_pixels: int = MAX_FRAME_PIXELS
    max_frames: int = MAX_FRAMES
    activation_bytes: int | None = None
    quantum_s: float | None = None
    media_sm_share: float = MEDIA_SM_SHARE
    prefix_cache: bool = True
    load_format: LoadFormat = "auto"

    def __post_init__(self) -> None:
        _one_of("dtype", self.dtype, ("auto", *DTYPES))
        check_fields(self, BOUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """An EngineConfig with nothing left open.

    Fields:
        activations: bytes kept for activations, by lane; empty on a CPU.
        graph_bytes: kept for the scratch memory of captured graphs.
        notes: says per field why it is what it is; log it once.
    """

    device: str
    dtype: str
    memory_bytes: int
    host_bytes: int
    threads: int
    policy: str
    max_batch_tokens: int
    max_pixels: int
    max_frame_pixels: int
    max_frames: int
    activations: Mapping[str, int]
    graph_bytes: int
    quantum_s: float
    media_sm_share: float
    prefix_cache: bool
    load_format: LoadFormat
    notes: Mapping[str, str]

    @property
    def is_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def lines(self) -> list[str]:
        """One line a field, for the log: `threads: 1 (auto: all of 2 cores but one)`."""
        return [
            f"{field.name}: {_shown(field.name, getattr(self, field.name))}"
            + (f" ({self.notes[field.name]})" if field.name in self.notes else "")
            for field in fields(self)
            if field.name != "notes"
        ]


def resolve(
    config: EngineConfig,
    machine: Machine,
    *,
    weight_bytes: int = 0,
    lanes: Sequence[LaneName] = ("language", "media"),
    media: LaneNeed | None = None,
    environment: Environment | None = None,
) -> ResolvedConfig:
    """Fills in what the config leaves open.

    Args:
        weight_bytes: of all models to be served, in the dtype that they will be held in; on a GPU the arena gets what
            they leave.
        lanes: that the models run on.
        media: what those of the media lane need within the limits, if that is known.

    Raises:
        InvalidRequest: the device is not here, or HEMIOLA_THREADS is no number of threads.
        CannotFit: weights, activations and an arena do not fit the GPU together.
    """
    env = environment or read_environment()
    notes: dict[str, str] = {}
    device = _resolve_device(config.device, machine, notes)
    is_gpu = device != "cpu"

    def value(field: str, default: tuple[Number, str]) -> Number:
        asked: Number | None = getattr(config, field)
        if asked is None:
            notes[field] = default[1]
            return default[0]
        return asked

    usual = f"default on a {'GPU' if is_gpu else 'CPU'}"
    max_batch_tokens = value("max_batch_tokens", (8192 if is_gpu else 512, usual))
    activations: dict[str, int] = {}
    if is_gpu:
        activations = {lane: _activation_bytes(lane, config, max_batch_tokens, media) for lane in lanes}
        notes["activations"] = "as asked" if config.activation_bytes is not None else "estimated from the limits"
    graph_bytes = sum(
        GPU_GRAPH_BYTES if lane != "media" or media is None else media.graph_bytes for lane in activations
    )
    taken = {"weights": weight_bytes, "activations": sum(activations.values()), "graphs": graph_bytes}
    arena = _gpu_arena(device, machine, taken, config, lanes) if is_gpu else (CPU_ARENA_BYTES, usual)
    resolved = ResolvedConfig(
        device=device,
        dtype=_resolve_dtype(config.dtype, is_gpu, notes),
        memory_bytes=value("memory_bytes", arena),
        host_bytes=value("host_bytes", (GPU_HOST_BYTES if is_gpu else CPU_HOST_BYTES, usual)),
        threads=value("threads", _default_threads(machine, env)),
        policy=config.policy,
        max_batch_tokens=max_batch_tokens,
        max_pixels=config.max_pixels,
        max_frame_pixels=config.max_frame_pixels,
        max_frames=config.max_frames,
        activations=activations,
        graph_bytes=graph_bytes,
        quantum_s=value("quantum_s", (0.005 if is_gpu else 0.030, usual)),
        media_sm_share=config.media_sm_share,
        prefix_cache=config.prefix_cache,
        load_format=config.load_format,
        notes=notes,
    )
    if is_gpu and resolved.memory_bytes > arena[0]:
        hint = "Lower the engine's 'memory_bytes', or leave it out for all that is left."
        raise CannotFit("The arena that was asked for", resolved.memory_bytes, arena[0], hint)
    return resolved


def lighter_weights(weight_bytes: int, dtype: str) -> str:
    """What helps where the weights alone do not fit, for people."""
    narrower = ", or say 'bfloat16' as the engine's 'dtype'" if dtype == "float32" else ""
    return f"The weights alone take {_mib(weight_bytes)}: name fewer or smaller models{narrower}."


def _resolve_device(asked: str, machine: Machine, notes: dict[str, str]) -> str:
    if asked == "auto":
        notes["device"] = f"auto: {machine.gpu_names[0]}" if machine.gpu_names else "auto: no CUDA device is visible"
        return "cuda:0" if machine.gpu_names else "cpu"
    gpu_devices = [f"cuda:{i}" for i in range(len(machine.gpu_names))]
    known = ["auto", "cpu", *(["cuda"] if machine.gpu_names else []), *gpu_devices]
    _one_of("device", asked, known)
    return "cuda:0" if asked == "cuda" else asked


def _resolve_dtype(asked: str, is_gpu: bool, notes: dict[str, str]) -> str:
    if asked != "auto":
        return asked
    notes["dtype"] = "auto: a CPU computes float32 fastest" if not is_gpu else "auto"
    return "bfloat16" if is_gpu else "float32"


def _activation_bytes(lane: LaneName, config: EngineConfig, max_batch_tokens: int, media: LaneNeed | None) -> int:
    if config.activation_bytes is not None:
        return config.activation_bytes
    if lane == "language":
        return GPU_ACTIVATION_BYTES + ACTIVATION_BYTES_PER_TOKEN * max_batch_tokens
    if media is not None:
        return media.activation_bytes
    return GPU_ACTIVATION_BYTES + ACTIVATION_BYTES_PER_PIXEL * config.max_pixels


def _gpu_arena(
    device: str, machine: Machine, taken: Mapping[str, int], config: EngineConfig, lanes: Sequence[LaneName]
) -> tuple[int, str]:
    """What all the rest leaves of the GPU, and how that came about."""
    free = (machine.gpu_free_bytes or machine.gpu_bytes)[int(device.removeprefix("cuda:"))]
    usable = free - GPU_MARGIN_BYTES
    arena = usable - sum(taken.values())
    if arena <= 0:
        if usable <= 0:
            hint = f"{_mib(GPU_MARGIN_BYTES)} stay free of what is free: free more of it, or name another 'device'."
        elif taken["weights"] >= usable:
            hint = lighter_weights(taken["weights"], config.dtype)
        else:
            hint = _smaller_steps(config, lanes)
        raise CannotFit("Room for weights, activations and graphs", sum(taken.values()), max(usable, 0), hint)
    parts = ", ".join(f"{_mib(nbytes)} for {what}" for what, nbytes in taken.items())
    return arena, f"{_mib(free)} that are free less {parts}, {_mib(GPU_MARGIN_BYTES)} kept free"


def _smaller_steps(config: EngineConfig, lanes: Sequence[LaneName]) -> str:
    """What of the config takes less for activations if it is lowered, for people."""
    limits = "', '".join(limit for lane in lanes for limit in _LIMITS[lane])
    lower = limits if config.activation_bytes is None else "activation_bytes"
    return f"Lower the engine's '{lower}', or name fewer or smaller models."


def _default_threads(machine: Machine, env: Environment) -> tuple[int, str]:
    if env.threads is not None:
        return env.threads, "from HEMIOLA_THREADS"
    return max(1, machine.num_cores - 1), f"auto: all of {machine.num_cores} cores but one"


def _parse_threads(text: str) -> int:
    within = BOUNDS["threads"]
    if not (text.isdecimal() and len(text) < 10 and within.has(int(text))):
        allowed = number_words(int, within)
        raise InvalidRequest("HEMIOLA_THREADS", f"Invalid 'HEMIOLA_THREADS': {shown(text)}. Allowed: {allowed}.")
    return int(text)


def _one_of(field: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidRequest(field, f"Invalid '{field}': {shown(value)}. Allowed: {', '.join(allowed)}.")


def _shown(field: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_mib(nbytes)} for {name}" for name, nbytes in value.items()) or "none kept"
    return _mib(value) if field.endswith("_bytes") and isinstance(value, int) else str(value)


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"
