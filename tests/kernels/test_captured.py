"""What backends keep for a graph is collected where somebody captures, and nowhere else."""

from hemiola.kernels.captured import keep, keeping


def test_things_are_kept_once_and_only_inside() -> None:
    before, inside, nested = [0], [1], [1]
    keep(before)
    with keeping() as kept:
        keep(inside, inside)
        with keeping() as inner:
            keep(nested)
        keep(inside)
    keep(before)
    assert len(kept) == 1 and kept[0] is inside
    assert len(inner) == 1 and inner[0] is nested
