"""What an engine is set to: what was asked (`EngineConfig`), and what that came to on this machine (`ResolvedConfig`).

The only file that reads environment variables. It knows no torch: whoever does says what the machine has (`Machine`).

    HEMIOLA_DEMO_MODELS   a folder to look for the built-in demo models in, instead of the installed one
    HEMIOLA_THREADS       CPU threads, where EngineConfig leaves them open
    HF_HUB_OFFLINE        1: never ask the Hugging Face Hub, use its cache alone
    HF_HUB_CACHE, HF_HOME where that cache is
    OMP_WAIT_POLICY       set to PASSIVE unless it is set already, see `wait_passively`
"""

import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, TypeVar, get_args

from .errors import CannotFit, InvalidRequest

DTYPES = ("float32", "bfloat16", "float16")
LoadFormat = Literal["auto", "dummy"]
LOAD_FORMATS: tuple[LoadFormat, ...] = get_args(LoadFormat)

CPU_ARENA_BYTES = 512 << 20
CPU_HOST_BYTES = 256 << 20
GPU_HOST_BYTES = 4 << 30
# Of a GPU's memory: the driver, libraries and fragmentation outside our allocations get the rest.
GPU_USABLE_SHARE = 0.92
# For activations, per GPU; the larger of the two.
GPU_ACTIVATION_BYTES = 2 << 30
GPU_ACTIVATION_SHARE = 0.08

Number = TypeVar("Number", int, float)
Word = TypeVar("Word", bound=str)

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


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to run on, as the code that knows torch sees it.

    Fields:
        num_cores: CPU cores that this process may use.
        gpu_names, gpu_bytes: per visible CUDA device its name and total memory; empty without one.
    """

    num_cores: int
    gpu_names: tuple[str, ...] = ()
    gpu_bytes: tuple[int, ...] = ()


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
        quantum_s: how long a step of media may run while text is ready to decode.
        prefix_cache: keep prompts' KV pages for later requests that begin alike.
        load_format: "auto" loads weights, "dummy" makes random ones of the right shapes.
    """

    device: str = "auto"
    dtype: str = "auto"
    memory_bytes: int | None = None
    host_bytes: int | None = None
    threads: int | None = None
    policy: str = "deadline"
    max_batch_tokens: int | None = None
    quantum_s: float | None = None
    prefix_cache: bool = True
    load_format: LoadFormat = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """An EngineConfig with nothing left open. `notes` says per field why it is what it is; log it once."""

    device: str
    dtype: str
    memory_bytes: int
    host_bytes: int
    threads: int
    policy: str
    max_batch_tokens: int
    quantum_s: float
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
    config: EngineConfig, machine: Machine, *, weight_bytes: int = 0, environment: Environment | None = None
) -> ResolvedConfig:
    """Fills in what the config leaves open.

    Args:
        weight_bytes: of all models to be served, in the dtype that they will be held in; on a GPU the arena gets what
            they leave.

    Raises:
        InvalidRequest: a field has a value that cannot be.
        CannotFit: weights, activations and an arena do not fit the GPU together.
    """
    env = environment or read_environment()
    notes: dict[str, str] = {}
    device = _resolve_device(config.device, machine, notes)
    is_gpu = device != "cpu"

    def value(field: str, default: tuple[Number, str], least: Number) -> Number:
        asked: Number | None = getattr(config, field)
        if asked is None:
            notes[field] = default[1]
            return default[0]
        if asked < least:
            raise InvalidRequest(field, f"Invalid '{field}': {asked}. The least is {least}.")
        return asked

    usual = f"default on a {'GPU' if is_gpu else 'CPU'}"
    arena = _gpu_arena(device, machine, weight_bytes) if is_gpu else (CPU_ARENA_BYTES, usual)
    resolved = ResolvedConfig(
        device=device,
        dtype=_resolve_dtype(config.dtype, is_gpu, notes),
        memory_bytes=value("memory_bytes", arena, 1),
        host_bytes=value("host_bytes", (GPU_HOST_BYTES if is_gpu else CPU_HOST_BYTES, usual), 0),
        threads=value("threads", _default_threads(machine, env), 1),
        policy=config.policy,
        max_batch_tokens=value("max_batch_tokens", (8192 if is_gpu else 512, usual), 1),
        quantum_s=value("quantum_s", (0.010 if is_gpu else 0.050, usual), 0.001),
        prefix_cache=config.prefix_cache,
        load_format=_one_of("load_format", config.load_format, LOAD_FORMATS),
        notes=notes,
    )
    if is_gpu and resolved.memory_bytes > arena[0]:
        raise CannotFit("The arena that was asked for", resolved.memory_bytes, arena[0])
    return resolved


def _resolve_device(asked: str, machine: Machine, notes: dict[str, str]) -> str:
    if asked == "auto":
        notes["device"] = f"auto: {machine.gpu_names[0]}" if machine.gpu_names else "auto: no CUDA device is visible"
        return "cuda:0" if machine.gpu_names else "cpu"
    device = "cuda:0" if asked == "cuda" else asked
    known = ["cpu", *(f"cuda:{i}" for i in range(len(machine.gpu_names)))]
    if device not in known:
        raise InvalidRequest("device", f"Invalid 'device': '{asked}'. This machine has: {', '.join(known)}.")
    return device


def _resolve_dtype(asked: str, is_gpu: bool, notes: dict[str, str]) -> str:
    if asked != "auto":
        return _one_of("dtype", asked, DTYPES)
    notes["dtype"] = "auto: a CPU computes float32 fastest" if not is_gpu else "auto"
    return "bfloat16" if is_gpu else "float32"


def _gpu_arena(device: str, machine: Machine, weight_bytes: int) -> tuple[int, str]:
    """What weights and activations leave of the GPU, and how that came about."""
    total = machine.gpu_bytes[int(device.removeprefix("cuda:"))]
    usable = int(total * GPU_USABLE_SHARE)
    activations = max(GPU_ACTIVATION_BYTES, int(total * GPU_ACTIVATION_SHARE))
    arena = usable - weight_bytes - activations
    if arena <= 0:
        raise CannotFit("The models with room for their activations", weight_bytes + activations, usable)
    parts = (total, weight_bytes, activations, total - usable)
    return arena, "{} less {} of weights, {} for activations, {} kept free".format(*map(_mib, parts))


def _default_threads(machine: Machine, env: Environment) -> tuple[int, str]:
    if env.threads is not None:
        return env.threads, "from HEMIOLA_THREADS"
    return max(1, machine.num_cores - 1), f"auto: all of {machine.num_cores} cores but one"


def _parse_threads(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise InvalidRequest("HEMIOLA_THREADS", f"Invalid 'HEMIOLA_THREADS': '{text}'. It has to be a positive number.")
    return int(text)


def _one_of(field: str, value: Word, allowed: Sequence[Word]) -> Word:
    if value not in allowed:
        raise InvalidRequest(field, f"Invalid '{field}': '{value}'. Allowed: {', '.join(allowed)}.")
    return value


def _shown(field: str, value: object) -> str:
    return _mib(value) if field.endswith("_bytes") and isinstance(value, int) else str(value)


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"
