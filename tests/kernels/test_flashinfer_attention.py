"""What FlashInfer is told, without a GPU: stand-ins for its wrappers attend as its documentation says.

They read a plan as FlashInfer does: `indptr` cuts the page list into rows, the last page of a row holds `last_page_len`
keys, `window_left` counts the keys before the query's own, and buffers of a plan for graphs are written in place.
"""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hemiola.kernels.attention import PAGED_ATTENTION, RAGGED_ATTENTION, PagedRows, ScoreOptions, flashinfer_wrapper
from hemiola.kernels.attention.paged_flashinfer import FlashInferPagedAttention
from hemiola.kernels.attention.ragged_flashinfer import MAX_PLANS, FlashInferRaggedAttention
from hemiola.kernels.captured import keeping
from hemiola.kernels.registry import Target
from hemiola.tests.kernels import cases

CUDA = Target("cuda", torch.bfloat16, (9, 0), head_dim=128)


class StandIn:
    """Of all three wrappers."""

    made: "list[StandIn]" = []  # noqa: RUF012

    def __init__(self, workspace: Tensor, layout: str, **keywords: Any) -> None:
        assert layout == "NHD"
        self.keywords, self.device = keywords, workspace.device
        self._float_workspace_buffer = workspace
        self.num_plans = 0
        self.made.append(self)

    def reset_workspace_buffer(self, floats: Tensor, ints: Tensor) -> None:
        assert floats is self._float_workspace_buffer and ints.dtype == torch.uint8

    def _plan(self, heads: tuple[int, int, int], causal: bool, options: dict[str, Any]) -> None:
        self.heads, self.causal, self.options = heads, causal, options
        assert options.pop("q_data_type") == torch.float32
        assert options.keys() == {"sm_scale", "logits_soft_cap", "window_left"}
        self.num_plans += 1

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert self.heads == (q.shape[1], k.shape[1], q.shape[2])
        cap, left = self.options["logits_soft_cap"], self.options["window_left"]
        options = ScoreOptions(self.options["sm_scale"], cap or None, None if left < 0 else left + 1)
        return cases.plain_attention(q, k, v, options, None, self.causal)


class Paged(StandIn):
    def _set(self, query_start: Tensor, page_start: Tensor, pages: Tensor, last_len: Tensor) -> None:
        assert {x.dtype for x in (query_start, page_start, pages, last_len)} == {torch.int32}
        if self.keywords.get("use_cuda_graph"):
            self.page_start, self.pages, self.last_len = (
                self.keywords[f"paged_kv_{name}_buffer"] for name in ("indptr", "indices", "last_page_len")
            )
            self.page_start.copy_(page_start)
            self.pages[: len(pages)].copy_(pages)
            self.last_len.copy_(last_len)
        else:
            self.page_start, self.pages, self.last_len = page_start, pages, last_len
        self.query_start = query_start

    def run(self, q: Tensor, cache: Tensor, out: Tensor | None = None) -> Tensor:
        out = torch.empty_like(q) if out is None else out
        starts = self.page_start.tolist()
        for i, last in enumerate(self.last_len.tolist()):
            num_keys = (starts[i + 1] - starts[i] - 1) * cache.shape[2] + last
            kv = cache[self.pages[starts[i] : starts[i + 1]].long()].transpose(0, 1).flatten(1, 2)[:, :num_keys]
            rows = slice(*self.query_start[i : i + 2].tolist())
            out[rows] = self._attend(q[rows], *kv.unbind(0))
        return out


class Decode(Paged):
    def plan(self, page_start: Tensor, pages: Tensor, last_len: Tensor, *sizes: int, **options: Any) -> None:
        assert self.keywords["use_tensor_cores"] and sizes[3] == cases.PAGE_LEN
        self._set(torch.arange(len(last_len) + 1, dtype=torch.int32), page_start, pages, last_len)
        self._plan(sizes[:3], True, options)  # type: ignore[arg-type]


class Chunks(Paged):
    def plan(self, *arguments: Any, causal: bool, **options: Any) -> None:
        assert self.keywords["backend"] == "fa3" and arguments[7] == cases.PAGE_LEN
        self._set(*arguments[:4])
        self._plan(arguments[4:7], causal, options)


class Ragged(StandIn):
    def plan(self, start: Tensor, kv_start: Tensor, *sizes: int, causal: bool, **options: Any) -> None:
        assert start.dtype == torch.int32 and torch.equal(start, kv_start)
        self.lens = start.diff().tolist()
        self._plan(sizes, causal, options)  # type: ignore[arg-type]

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = zip(*(x.split(self.lens) for x in (q, k, v)), strict=True)
        return torch.cat([self._attend(*each) for each in parts])


@pytest.fixture(autouse=True)
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fake: Any = ModuleType("flashinfer")
    fake.BatchDecodeWithPagedKVCacheWrapper = Decode
    fake.BatchPrefillWithPagedKVCacheWrapper = Chunks
    fake.BatchPrefillWithRaggedKVCacheWrapper = Ragged
    monkeypatch.setitem(sys.modules, "flashinfer", fake)
    monkeypatch.setattr(flashinfer_wrapper, "FLOAT_BYTES", 1)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda: None, synchronize=lambda: None))
    StandIn.made.clear()
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


class WithoutSinks(FlashInferPagedAttention):
    """The cases ask for sinks too, which FlashInfer has to refuse."""

    def run(self, layer: int, q_THD: Tensor, plan: Any, options: ScoreOptions, sinks_H: Tensor | None = None) -> Tensor:
        if sinks_H is not None:
            with pytest.raises(ValueError, match="no attention sinks"):
                super().run(layer, q_THD, plan, options, sinks_H)
            return Refused(q_THD)
        return super().run(layer, q_THD, plan, options)


class Refused(Tensor):
    """Close to everything."""


def test_paged_attention_is_planned_as_the_formula_says(monkeypatch: pytest.MonkeyPatch) -> None:
    real = cases.close
    monkeypatch.setattr(cases, "close", lambda got, want: None if isinstance(got, Refused) else real(got, want))
    cases.check_paged_attention(WithoutSinks)
    # Two wrappers of each kind and options, and one of each options for the fixed plan: layers share them.
    assert len(StandIn.made) == len(cases.OPTIONS) * (2 + 2 + 1)


def test_a_step_is_planned_once_for_all_layers_with_the_same_options() -> None:
    attention = FlashInferPagedAttention(torch.zeros(9, 3, 2, cases.PAGE_LEN, 2, 16))
    plans = [attention.plan(PagedRows(1, [1, 3], np.array([5, 9]), np.arange(6).reshape(2, 3)))] * 2
    plans.append(attention.plan(PagedRows(1, [1], np.array([5]), np.arange(2)[None])))
    for layer in range(3):
        for plan, num_tokens in zip(plans, (4, 4, 1), strict=True):
            attention.run(layer, torch.randn(num_tokens, 6, 16), plan, ScoreOptions(0.25))
    assert [wrapper.num_plans for wrapper in StandIn.made] == [1, 1, 0, 1]


def test_ragged_attention_is_planned_as_the_formula_says() -> None:
    attention = FlashInferRaggedAttention()
    q, k, v = torch.randn(3, 23, 4, 16)
    for options in cases.OPTIONS.values():
        for causal in (True, False):
            if options.window and not causal:
                with pytest.raises(ValueError, match="needs causal"):
                    attention.run(q, k, v, [20, 3], options, is_causal=False)
                continue
            out = attention.run(q, k, v, [20, 3], options, is_causal=causal)
            for rows in (slice(0, 20), slice(20, 23)):
                cases.close(out[rows], cases.plain_attention(q[rows], k[rows], v[rows], options, None, causal))


def test_plans_of_lengths_are_kept_until_others_take_their_place() -> None:
    attention, options = FlashInferRaggedAttention(), ScoreOptions(0.25)

    def run(length: int) -> None:
        x = torch.randn(length, 2, 16)
        attention.run(x, x, x, [length], options)

    with keeping() as kept:
        run(1)
        run(1)
    assert len(StandIn.made) == 1 and len(kept) == 1
    for length in range(2, MAX_PLANS + 1):
        run(length)
        run(1)
    assert len(StandIn.made) == MAX_PLANS
    run(MAX_PLANS + 1)
    run(1)
    assert len(StandIn.made) == MAX_PLANS + 1
    run(2)
    assert len(StandIn.made) == MAX_PLANS + 2


def test_nothing_is_planned_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = torch.zeros(9, 3, 2, cases.PAGE_LEN, 2, 16)
    paged, ragged, options = FlashInferPagedAttention(pages), FlashInferRaggedAttention(), ScoreOptions(0.25)
    fixed = paged.fixed_plan(1, 4)
    rows = PagedRows(1, [1], np.array([5]), np.arange(2)[None])
    fixed.set(rows)
    x = torch.randn(1, 2, 16)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    calls: list[Callable[[], Tensor]] = [
        lambda: paged.run(0, x, paged.plan(rows), options),
        lambda: paged.run(0, x, fixed, options),
        lambda: ragged.run(x, x, x, [1], options),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="while a graph is captured"):
            call()
    assert StandIn.made == []


def test_a_workspace_has_room_for_all_partial_results() -> None:
    """Of PrefillPlan: heads x blocks x tile x (head_dim + 1) floats; a fixed plan has a tile per row and more."""
    device = torch.device("cpu")
    sizes = [flashinfer_wrapper.float_bytes(32, 8, 128, device, num_rows) for num_rows in (0, 1, 256, 512)]
    assert [
        size >= 32 * blocks * 129 * 4
        for size, blocks in zip(sizes, (33 * 128, 33 * 16, 319 * 16, 639 * 16), strict=True)
    ]
    workspace = flashinfer_wrapper.Workspace(device)
    first = workspace.of(100)
    assert workspace.of(50) is first and workspace.of(200).numel() == 200 and first.numel() == 100


@pytest.mark.parametrize("operation", [PAGED_ATTENTION, RAGGED_ATTENTION], ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    ("target", "objection"),
    [
        (Target("cpu", torch.bfloat16), "it is for CUDA devices"),
        (Target("cuda", torch.bfloat16, (7, 5)), "it needs sm80 or newer"),
        (Target("cuda", torch.float32, (9, 0)), "it computes in float16 and bfloat16 only"),
        (Target("cuda", torch.bfloat16, (9, 0), head_dim=96), "its heads are of 64, 128, 256"),
        (Target("cuda", torch.bfloat16, (9, 0), needs=frozenset({"sinks"})), "it has no attention sinks"),
    ],
)
def test_what_flashinfer_is_not_for(operation: Any, target: Target, objection: str) -> None:
    assert operation.why_not("flashinfer", target) == objection
