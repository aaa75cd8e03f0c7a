"""What a device's memory is laid out for, line by line: for `hemiola info` before anything is loaded, and at start."""

import torch

from .compose import LoadPlan
from .wire import MemoryLine

_ASKED = {"language": "text", "media": "pictures and clips"}
"""What is asked of each lane."""


def memory_lines(loads: LoadPlan) -> tuple[MemoryLine, ...]:
    """All that is planned: weights of each model, activations of each lane, graphs, arena, host tier."""
    config = loads.config
    made_up = {source.name for source in (*loads.served, *loads.encoders) if source.load_format == "dummy"}
    lines = [
        MemoryLine(
            f"weights of {name}",
            summary.bytes_as(config.dtype),
            f"{summary.num_params / 1e6:,.1f} M parameters" + (", random" if name in made_up else ""),
        )
        for name, summary in loads.weights.items()
    ]
    why = _why(loads, "activations")
    limits = {
        "language": f"max_batch_tokens {config.max_batch_tokens:,}",
        "media": f"max_pixels {config.max_pixels:,}, max_frame_pixels {config.max_frame_pixels:,}, "
        f"max_frames {config.max_frames}",
    }
    lines += [
        MemoryLine(f"activations of {_ASKED[lane]}", nbytes, f"{why}: {limits[lane]}")
        for lane, nbytes in config.activations.items()
    ]
    if config.is_gpu:
        lines.append(MemoryLine("graphs", config.graph_bytes, "scratch memory of captured steps"))
    kept, aside = (f"{field}: {_why(loads, field)}" for field in ("memory_bytes", "host_bytes"))
    lines.append(MemoryLine("arena", config.memory_bytes, f"KV caches and latents; {kept}"))
    lines.append(MemoryLine("host tier", config.host_bytes, f"requests and KV caches set aside; {aside}"))
    return tuple(lines)


def measured_line(loads: LoadPlan) -> MemoryLine | None:
    """What activations and graphs have taken at most so far on a GPU; None on a CPU, where nobody counts."""
    config = loads.config
    if not config.is_gpu:
        return None
    weights = sum(summary.bytes_as(config.dtype) for summary in loads.weights.values())
    used = torch.cuda.max_memory_reserved(config.device) - weights - config.memory_bytes
    planned = sum(config.activations.values()) + config.graph_bytes
    return MemoryLine(
        "activations and graphs so far", max(used, 0), f"measured, at most; planned: {planned / 2**20:,.0f} MiB"
    )


def _why(loads: LoadPlan, field: str) -> str:
    return loads.config.notes.get(field, "as asked")
