"""Torch reference of the solver steps.

The order of operations is part of the contract: results are bit-equal to the schedulers of the diffusers library.

Shape suffixes: R rows, S the latents' shape (any number of dimensions), K coefficients.
"""

from collections.abc import Iterator

from torch import Tensor

# Columns of UniPC's coefficients, in the order in which `unipc_step` uses them.
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


def flow_euler_step(sample_RS: Tensor, velocity_RS: Tensor, dt_R: Tensor) -> Tensor:
    """`sample + dt * velocity`, with one `dt` a row."""
    return sample_RS + _per_row(dt_R, sample_RS) * velocity_RS


def unipc_step(
    flow_RS: Tensor, sample_RS: Tensor, last_RS: Tensor, clean_1_RS: Tensor, clean_2_RS: Tensor, coefficients_RK: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One corrector and one predictor of UniPC (B(h) = e^h - 1, order <= 2), after https://arxiv.org/abs/2302.04867.

    Args:
        flow_RS: what the model predicted at `sample`.
        sample_RS: the last predictor's result.
        last_RS: the corrected sample of the step before.
        clean_1_RS, clean_2_RS: clean predictions of the step before, and of the one before that.
        coefficients_RK: `UNIPC_COLUMNS`; a term that a row does not have is weighted 0 (and its ratio is 1).

    Returns:
        the next sample; this step's corrected sample; this step's clean prediction.
    """
    take = _columns(coefficients_RK, sample_RS)
    clean = sample_RS - next(take) * flow_RS

    keep = next(take)
    base = next(take) * last_RS - next(take) * clean_1_RS
    residual_weight = next(take)
    older = (clean_2_RS - clean_1_RS) / next(take)
    residual = next(take) * older + next(take) * (clean - clean_1_RS)
    corrected = keep * sample_RS + (base - residual_weight * residual)

    base = next(take) * corrected - next(take) * clean
    residual_weight = next(take)
    older = (clean_1_RS - clean) / next(take)
    return base - residual_weight * (0.5 * older), corrected, clean


def _per_row(values_R: Tensor, like_RS: Tensor) -> Tensor:
    return values_R.view(-1, *[1] * (like_RS.dim() - 1))


def _columns(coefficients_RK: Tensor, like_RS: Tensor) -> Iterator[Tensor]:
    return (_per_row(column_R, like_RS) for column_R in coefficients_RK.unbind(1))
