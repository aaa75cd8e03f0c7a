"""The tensor part of a diffusion solver's step, batched over rows that stand at different steps.

Coefficients arrive ready-made, one row of scalars a request; nothing here knows of schedules or step numbers.
The torch reference serves every device; a fused backend would take the same arguments.
"""

from .torch_reference import flow_euler_step, unipc_step

__all__ = ["flow_euler_step", "unipc_step"]
