"""Choosing runs and spans to clear, against brute force."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hemiola.core.memory.layout import Layout, Segment

SPAN = 8
PAGES = 3
costs = st.one_of(st.just(0.0), st.just(math.inf), st.integers(1, 50).map(float))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Six spans: each is a class's span, or part of a free or leased range of any length."""
    segments: list[Segment] = []
    at = 0
    while at < 6 * SPAN:
        if at % SPAN == 0 and draw(st.booleans()):
            name = draw(st.sampled_from("ab"))
            segments.append(Segment(at, at + SPAN, draw(costs), name, name, PAGES))
            at += SPAN
            continue
        next_span = at + SPAN - at % SPAN
        end = min(at + draw(st.integers(1, 14)), 6 * SPAN) if draw(st.booleans()) else next_span
        cost = draw(costs)
        segments.append(Segment(at, end, cost, None if cost == 0.0 else f"lease at {at}"))
        at = end
    return Layout(segments, {name: draw(st.integers(0, 9)) for name in "ab"}, SPAN)


def total_cost(layout: Layout, segments: list[Segment]) -> float:
    """Infinite when the segments cannot be cleared together."""
    for name, spare in layout.spare.items():
        if sum(s.num_pages for s in segments if s.page_class == name) > spare:
            return math.inf
    return sum(s.cost for s in segments)


@given(layouts(), st.integers(1, 30))
def test_a_run_is_the_cheapest_of_all_runs(layout: Layout, nbytes: int) -> None:
    segments = layout.segments
    runs = [segments[i:j] for i in range(len(segments)) for j in range(i + 1, len(segments) + 1)]
    wide = [run for run in runs if run[-1].end - run[0].start >= nbytes]
    cheapest = min((total_cost(layout, run) for run in wide), default=math.inf)
    spare = dict(layout.spare)
    placed = layout.place_run(nbytes)
    if placed is None:
        assert cheapest == math.inf
        return
    start, chosen = placed
    before = Layout(segments, spare, SPAN)
    assert math.isclose(total_cost(before, chosen), cheapest)
    assert chosen in wide
    assert start in (chosen[0].start, chosen[-1].end - nbytes)
    expected = {b for s in chosen for b in range(s.start, s.end)} - set(range(start, start + nbytes))
    free_now = {b for s in layout.segments if s.holder is None and s.cost == 0.0 for b in range(s.start, s.end)}
    free_before = {b for s in segments if s.holder is None and s.cost == 0.0 for b in range(s.start, s.end)}
    assert free_now == (free_before | expected) - set(range(start, start + nbytes))
    assert_tiles(layout)


@given(layouts(), st.integers(1, 12))
def test_spans_are_chosen_from_the_cheapest_up_and_never_a_blocked_one(layout: Layout, num_pages: int) -> None:
    before = Layout(layout.segments, layout.spare, SPAN)

    def inside(index: int) -> list[Segment]:
        return [s for s in before.segments if s.start < (index + 1) * SPAN and s.end > index * SPAN]

    clearable = [
        i for i in range(6) if total_cost(before, inside(i)) < math.inf and all(s.page_class != "a" for s in inside(i))
    ]
    chosen = layout.place_spans("a", num_pages, [PAGES] * 6)
    possible = min(len([i for i in clearable if inside(i)[0].page_class == "b"]), before.spare["b"] // PAGES) + len(
        [i for i in clearable if inside(i)[0].page_class != "b"]
    )
    if chosen is None:
        assert possible * PAGES < num_pages
        return
    indices = [index for index, _ in chosen]
    assert len(indices) == len(set(indices)) == -(-num_pages // PAGES)
    assert set(indices) <= set(clearable)
    assert all(segments == inside(index) for index, segments in chosen)
    chosen_costs = [total_cost(before, inside(i)) for i in indices]
    assert chosen_costs == sorted(chosen_costs)
    left_out = [total_cost(before, inside(i)) for i in set(clearable) - set(indices) if inside(i)[0].page_class != "b"]
    assert all(cost >= chosen_costs[-1] for cost in left_out)
    assert_tiles(layout)


def test_spans_at_the_price_limit_are_left_alone() -> None:
    segments = [Segment(0, 8, 6.0, "dear"), Segment(8, 16, 5.9, "cheap")]
    assert Layout(segments, {}, SPAN).place_spans("a", 3, [3, 3], max_cost_per_page=2.0) == [(1, [segments[1]])]
    assert Layout(segments, {}, SPAN).place_spans("a", 4, [3, 3], max_cost_per_page=2.0) is None


def assert_tiles(layout: Layout) -> None:
    end = 0
    for segment in layout.segments:
        assert segment.start == end
        end = segment.end
    assert end == 6 * SPAN
