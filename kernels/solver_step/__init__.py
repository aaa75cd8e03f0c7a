"""The tensor part of a diffusion solver's step, batched over rows that stand at different steps.

Coefficients arrive ready-made, a row of scalars for each request; nothing here knows of schedules or step numbers. The
order of operations is part of the contract: in float32, results are bit-equal to the schedulers of diffusers.

Shape suffixes: R rows, S the latents' shape (any number of dimensions), K coefficients.
"""

from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target

# Columns of UniPC's coefficients, in the order in which they are used.
UNIPC_COLUMNS = (
    "sigma",  # of this step: turns a flow prediction into a prediction of the clean sample
    "keep",  # 1 where the corrector is off, else 0
    "c_last",  # corrector: weight of the sample before the last predictor
    "c_clean",  # ... of the last clean prediction
    "c_residual",  # ... of the residuals together
    "c_ratio",  # ... log-SNR ratio that divides the older difference
    "c_rho_old",  # ... weight of the older difference
    "c_rho_new",  # ... weight of the newest difference
    "p_sample",  # predictor: weight of the corrected sample
    "p_clean",  # ... of this step's clean prediction
    "p_residual",  # ... of the older difference
    "p_ratio",  # ... log-SNR ratio that divides it
)


class SolverStep(Protocol):
    """Both solvers, since a family may be asked for either."""

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    @staticmethod
    def flow_euler(sample_RS: Tensor, velocity_RS: Tensor, dt_R: Tensor) -> Tensor:
        """`sample + dt * velocity`, with one `dt` a row."""
        ...

    @staticmethod
    def unipc(
        flow_RS: Tensor,
        sample_RS: Tensor,
        last_RS: Tensor,
        clean_1_RS: Tensor,
        clean_2_RS: Tensor,
        coefficients_RK: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One corrector and one predictor of UniPC (B(h) = e^h - 1, order <= 2), https://arxiv.org/abs/2302.04867.

        Args:
            flow_RS: what the model predicted at `sample`.
            sample_RS: the last predictor's result.
            last_RS: the corrected sample of the step before.
            clean_1_RS, clean_2_RS: clean predictions of the step before, and of the one before that.
            coefficients_RK: `UNIPC_COLUMNS`; a term that a row does not have is weighted 0 (and its ratio is 1).

        Returns:
            the next sample; this step's corrected sample; this step's clean prediction.
        """
        ...


SOLVER_STEP: Operation[SolverStep] = Operation(
    "solver_step", {"torch": "hemiola.kernels.solver_step.torch_reference:TorchSolverStep"}
)
