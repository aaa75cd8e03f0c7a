"""Torch reference of the solver steps. Shape suffixes as in the operation's interface."""

from collections.abc import Iterator

from torch import Tensor

from ..registry import Target


class TorchSolverStep:
    """See `SolverStep`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    @staticmethod
    def flow_euler(sample_RS: Tensor, velocity_RS: Tensor, dt_R: Tensor) -> Tensor:
        return sample_RS + _per_row(dt_R, sample_RS) * velocity_RS

    @staticmethod
    def unipc(
        flow_RS: Tensor,
        sample_RS: Tensor,
        last_RS: Tensor,
        clean_1_RS: Tensor,
        clean_2_RS: Tensor,
        coefficients_RK: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
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
