"""Free ranges against a list of bytes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hemiola.core.memory.extents import Extents, aligned


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(1, 12)), max_size=60))
def test_free_ranges_equal_a_list_of_bytes(operations: list[tuple[int, int]]) -> None:
    """Each operation toggles a range: taken if it is wholly free, given back if wholly taken, refused otherwise."""
    extents = Extents(40, span_bytes=8)
    free = [True] * 40
    for start, length in operations:
        wanted = free[start : start + length]
        is_inside = start + length <= 40
        assert extents.is_free(start, length) == (is_inside and all(wanted))
        if is_inside and all(wanted):
            extents.take(start, length)
            free[start : start + length] = [False] * length
        elif is_inside and not any(wanted):
            extents.give(start, length)
            free[start : start + length] = [True] * length
        else:
            with pytest.raises(ValueError, match="not free"):
                extents.take(start, length)
        ranges = list(extents)
        assert sorted(b for start, end in ranges for b in range(start, end)) == [b for b in range(40) if free[b]]
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges)), "not merged"
        assert extents.num_free_bytes == sum(free)
        assert [i for spans in extents.whole_spans() for i in spans] == [
            i for i in range(5) if all(free[i * 8 : i * 8 + 8])
        ]


@given(st.lists(st.booleans(), min_size=40, max_size=40), st.integers(1, 20))
def test_a_run_is_placed_where_it_breaks_fewest_free_spans(free: list[bool], nbytes: int) -> None:
    extents = Extents(40, span_bytes=8)
    for i, is_free in enumerate(free):
        if not is_free:
            extents.take(i, 1)

    def broken(start: int) -> int:
        return sum(start < i * 8 + 8 and i * 8 < start + nbytes and all(free[i * 8 : i * 8 + 8]) for i in range(5))

    possible = [s for s in range(41 - nbytes) if all(free[s : s + nbytes])]
    start = extents.place(nbytes)
    if start is None:
        assert not possible
    else:
        at_ends = [s for s in possible if s == 0 or not free[s - 1] or s + nbytes == 40 or not free[s + nbytes]]
        assert start in at_ends
        assert broken(start) == min(map(broken, at_ends))


def test_giving_back_what_is_free_is_refused() -> None:
    extents = Extents(1024, span_bytes=256)
    extents.take(256, 512)
    with pytest.raises(ValueError, match="free already"):
        extents.give(512, 512)


def test_leases_occupy_multiples_of_256_bytes() -> None:
    assert [aligned(n) for n in (0, 1, 256, 257)] == [256, 256, 256, 512]
