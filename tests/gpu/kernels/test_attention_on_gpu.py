"""Every backend of attention that can run on this GPU against softmax attention in float32.

Tolerances: outputs are about 1 in size, because the scores are spread widely enough that a few keys take most of the
weight. bfloat16 has 8 significant bits; weights are rounded to it too, and scores by some backends: 4e-2. float16 has
11 bits: 4e-3. Leaving out one key, or letting one more in, is an error of ten times that, which is checked as well.
"""

import gc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hemiola.kernels.attention import (
    DENSE_ATTENTION,
    PAGED_ATTENTION,
    RAGGED_ATTENTION,
    PagedRows,
    ScoreOptions,
    needs_of,
)
from hemiola.kernels.captured import keeping
from hemiola.kernels.registry import Operation, Target

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(600),  # a backend may have to compile its kernels first
]

TOLERANCE = {torch.bfloat16: 4e-2, torch.float16: 4e-3, torch.float32: 2e-4}
PAGE_LEN = 16


@dataclass(frozen=True)
class Shape:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    options: tuple[ScoreOptions, ...]


PLAIN = ScoreOptions(0.4)
BOTH = ScoreOptions(0.4, softcap=12.0, window=300)
SHAPES = {
    "grouped": Shape(32, 8, 128, torch.bfloat16, (PLAIN,)),
    "window and cap": Shape(32, 8, 128, torch.bfloat16, (BOTH, PLAIN)),
    "small heads": Shape(12, 12, 64, torch.bfloat16, (PLAIN,)),
    "float16": Shape(16, 8, 128, torch.float16, (PLAIN,)),
}


def backend_for(operation: Operation[Any], name: str, shape: Shape, needs: Any = None) -> Any:
    needs = needs_of(shape.options) if needs is None else needs
    why_not = operation.why_not(name, Target.of("cuda", shape.dtype, head_dim=shape.head_dim, needs=needs))
    if why_not is not None:
        pytest.skip(f"{name}: {why_not}")
    return operation.load(name)


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, options: ScoreOptions, is_causal: bool = True) -> Tensor:
    """float32. One sequence: q [N, H, D] at the last positions of k, v [L, K, D]."""
    q, k, v = q.float(), k.float(), v.float()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("nhd,lhd->hnl", q, k) * options.scale
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    if is_causal:
        num_new, num_keys = scores.shape[1:]
        position = torch.arange(num_keys - num_new, num_keys, device=q.device)[:, None]
        key = torch.arange(num_keys, device=q.device)
        hidden = key > position
        if options.window is not None:
            hidden |= key <= position - options.window
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("hnl,lhd->nhd", scores.softmax(-1), v)


class Cache:
    """Rows of random keys and values, on random pages of an arena whose other bytes are not numbers."""

    def __init__(self, backend: Any, shape: Shape, contexts: list[int], *, num_layers: int, num_pages: int) -> None:
        self.shape, self.contexts = shape, contexts
        size = (num_layers, 2, PAGE_LEN, shape.num_kv_heads, shape.head_dim)
        # A page of the arena is longer than the layers in it, as where page sizes do not divide a span.
        page_size = int(np.prod(size))
        rest = PAGE_LEN * shape.num_kv_heads * shape.head_dim
        whole = torch.full((num_pages, page_size + rest), float("nan"), device="cuda", dtype=shape.dtype)
        self.arena = arena = whole[:, :page_size].unflatten(1, size)
        free = torch.randperm(num_pages).tolist()
        self.table = np.zeros((len(contexts), -(-max(contexts) // PAGE_LEN)), dtype=np.int64)
        self.kv = []
        for i, context in enumerate(contexts):
            num = -(-context // PAGE_LEN)
            pages = [free.pop() for _ in range(num)]
            self.table[i, :num] = pages
            kv = torch.randn(num * PAGE_LEN, num_layers, 2, *size[3:], device="cuda", dtype=shape.dtype)
            kv[context:] = 0 if backend.needs_clean_pages else float("nan")
            arena[pages] = kv.unflatten(0, (num, PAGE_LEN)).movedim(1, 3)
            self.kv.append(kv[:context])
        self.attention = backend(arena)

    def rows(self, chosen: list[int], num_decodes: int, new_lens: list[int]) -> PagedRows:
        contexts = np.array([self.contexts[i] for i in chosen])
        return PagedRows(num_decodes, new_lens, contexts, self.table[chosen])

    def query(self, num_tokens: int) -> Tensor:
        """A part of a joint projection, as models pass it."""
        heads, dim = self.shape.num_heads, self.shape.head_dim
        return torch.randn(num_tokens, heads + 4, dim, device="cuda", dtype=self.shape.dtype)[:, :heads]

    def expected(
        self, layer: int, q: Tensor, chosen: list[int], new_lens: list[int], options: ScoreOptions
    ) -> list[Tensor]:
        parts = q.split(new_lens)
        kv = (self.kv[i][:, layer].unbind(1) for i in chosen)
        return [softmax_attention(part, k, v, options) for part, (k, v) in zip(parts, kv, strict=True)]


def close(got: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(got.float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


CONTEXTS = [1, 15, 16, 17, 333, 2048, 5000, 40, 5, 56, 1000, 2100, 301]
NEW_LENS = [1, 1, 1, 1, 1, 1, 1, 1, 5, 16, 100, 1024, 1]
NUM_DECODES = 8
PAGED = ("flashinfer", "torch")


@pytest.mark.parametrize("name", PAGED)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_decodes_and_chunks_over_scattered_pages(name: str, shape: Shape) -> None:
    torch.manual_seed(0)
    backend = backend_for(PAGED_ATTENTION, name, shape)
    cache = Cache(backend, shape, CONTEXTS, num_layers=2, num_pages=900)
    everything = [*range(len(CONTEXTS))]
    mixes = (
        (everything, NUM_DECODES, NEW_LENS),
        (everything[:NUM_DECODES], NUM_DECODES, NEW_LENS[:NUM_DECODES]),
        (everything[NUM_DECODES:], 0, NEW_LENS[NUM_DECODES:]),
    )
    with torch.inference_mode():
        for chosen, num_decodes, new_lens in mixes:
            plan = cache.attention.plan(cache.rows(chosen, num_decodes, new_lens))
            for layer in range(2):
                for options in shape.options:
                    q = cache.query(sum(new_lens))
                    got = cache.attention.run(layer, q, plan, options).split(new_lens)
                    for part, expected in zip(got, cache.expected(layer, q, chosen, new_lens, options), strict=True):
                        close(part, expected, shape.dtype)


def test_one_key_more_or_less_would_be_seen() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(400, heads, 128, device="cuda") for heads in (32, 8, 8))
    options = ScoreOptions(0.4, softcap=12.0, window=300)
    right = softmax_attention(q, k, v, options)
    for other in (ScoreOptions(0.4, 12.0, 299), ScoreOptions(0.4, 12.0, 301), ScoreOptions(0.4, None, 300)):
        assert (softmax_attention(q, k, v, other) - right).abs().max() > 10 * TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("name", PAGED)
def test_pages_beyond_two_to_the_31_numbers(name: str) -> None:
    torch.manual_seed(0)
    shape = SHAPES["grouped"]
    backend = backend_for(PAGED_ATTENTION, name, shape)
    num_layers, num_pages = 32, 2300
    size = (num_pages, num_layers, 2, PAGE_LEN, shape.num_kv_heads, shape.head_dim)
    arena = torch.empty(size, device="cuda", dtype=shape.dtype)
    attention, context = backend(arena), 900
    pages = np.arange(num_pages - 57, num_pages)[None]
    kv = torch.randn(57 * PAGE_LEN, 2, shape.num_kv_heads, shape.head_dim, device="cuda", dtype=shape.dtype)
    arena[pages[0].tolist(), 31] = kv.unflatten(0, (57, PAGE_LEN)).transpose(1, 2)
    k, v = kv[:context].unbind(1)
    for num_new, num_decodes in ((1, 1), (300, 0)):
        q = torch.randn(num_new, shape.num_heads, shape.head_dim, device="cuda", dtype=shape.dtype)
        plan = attention.plan(PagedRows(num_decodes, [num_new], np.array([context]), pages))
        close(attention.run(31, q, plan, PLAIN), softmax_attention(q, k, v, PLAIN), shape.dtype)


@pytest.mark.parametrize("name", PAGED)
def test_plans_may_be_run_in_turn(name: str) -> None:
    """Each wrapper of a backend serves several plans; a plan that lost its wrapper gets one again."""
    torch.manual_seed(0)
    shape = SHAPES["grouped"]
    cache = Cache(backend_for(PAGED_ATTENTION, name, shape), shape, CONTEXTS, num_layers=2, num_pages=900)
    picks = [[0, 5, 9, 10], [6, 4, 11], [1, 2, 3, 10, 8], [7, 12]]
    lens = [[1, 1, 16, 100], [1, 1, 64], [1, 1, 1, 9, 5], [1, 1]]
    decodes = [2, 2, 3, 2]
    plans = [cache.attention.plan(cache.rows(*each)) for each in zip(picks, decodes, lens, strict=True)]
    for layer in (0, 1, 0):
        for plan, chosen, new_lens in zip(plans, picks, lens, strict=True):
            q = cache.query(sum(new_lens))
            got = cache.attention.run(layer, q, plan, PLAIN)
            close(got, torch.cat(cache.expected(layer, q, chosen, new_lens, PLAIN)), shape.dtype)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_graph_with_a_fixed_plan_is_replayed_for_other_rows(shape: Shape) -> None:
    torch.manual_seed(0)
    backend = backend_for(PAGED_ATTENTION, "flashinfer", shape)
    cache = Cache(backend, shape, CONTEXTS, num_layers=2, num_pages=900)
    num_rows = 6
    plans = [cache.attention.fixed_plan(num_rows, 900)]
    q = cache.query(num_rows)
    calls = [(layer, options) for layer in range(2) for options in shape.options]

    def forward() -> list[Tensor]:
        return [cache.attention.run(layer, q, plans[0], options) for layer, options in calls]

    def check(outs: list[Tensor], chosen: list[int]) -> None:
        for out, (layer, options) in zip(outs, calls, strict=True):
            close(out, torch.cat(cache.expected(layer, q, chosen, [1] * num_rows, options)), shape.dtype)

    picks = ([0, 1, 2, 3, 7, 8], [6, 5, 11, 10, 4, 12], [0, 6, 0, 0, 9, 0], [5, 5, 5, 5, 5, 5])
    plans[0].set(cache.rows(picks[0], num_rows, [1] * num_rows))
    with torch.inference_mode():
        check(forward(), picks[0])
        graph = torch.cuda.CUDAGraph()
        with keeping() as kept, torch.cuda.graph(graph):
            outs = forward()
    assert kept
    for chosen in picks:
        plans[0].set(cache.rows(chosen, num_rows, [1] * num_rows))
        q.copy_(cache.query(num_rows))
        graph.replay()
        check(outs, chosen)
    # What the graph reads belongs to it now, whoever else lets go of the plan and takes the memory that is free.
    plans.clear()
    cache.attention = None
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    garbage = [torch.full((1 << 20,), 2**30, dtype=torch.int32, device="cuda") for _ in range(64)]
    q.copy_(cache.query(num_rows))
    graph.replay()
    check(outs, picks[-1])
    del garbage


def test_a_fixed_plan_is_not_made_in_a_capture() -> None:
    shape = SHAPES["grouped"]
    backend = backend_for(PAGED_ATTENTION, "flashinfer", shape)
    cache = Cache(backend, shape, [40, 50], num_layers=1, num_pages=20)
    fixed = cache.attention.fixed_plan(2, 20)
    q = cache.query(2)
    with pytest.raises(RuntimeError, match="before its rows were set"):
        cache.attention.run(0, q, fixed, PLAIN)
    fixed.set(cache.rows([0, 1], 2, [1, 1]))
    with pytest.raises(RuntimeError, match="while a graph is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        cache.attention.run(0, q, fixed, PLAIN)
    close(cache.attention.run(0, q, fixed, PLAIN), torch.cat(cache.expected(0, q, [0, 1], [1, 1], PLAIN)), shape.dtype)


RAGGED = ("flashinfer", "cudnn", "xformers", "torch")
LENS = [100, 257, 64, 64, 1, 700]


def ragged_inputs(shape: Shape, num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    heads = shape.num_heads + 2 * shape.num_kv_heads
    joint = torch.randn(num_tokens, heads, shape.head_dim, device="cuda", dtype=shape.dtype)
    q, k, v = joint.split((shape.num_heads, shape.num_kv_heads, shape.num_kv_heads), 1)
    return q, k, v


def check_ragged(out: Tensor, qkv: tuple[Tensor, ...], lens: list[int], options: ScoreOptions, is_causal: bool) -> None:
    parts = (x.split(lens) for x in qkv)
    expected = [softmax_attention(q, k, v, options, is_causal) for q, k, v in zip(*parts, strict=True)]
    close(out, torch.cat(expected), out.dtype)


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "all"])
@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_segments_attend_to_themselves(name: str, shape: Shape, is_causal: bool) -> None:
    torch.manual_seed(0)
    used = [options for options in shape.options if is_causal or options.window is None]
    attention = backend_for(RAGGED_ATTENTION, name, shape, needs_of(used))()
    with torch.inference_mode():
        for options in used:
            for lens in (LENS, [128, 128], [33]):
                qkv = ragged_inputs(shape, sum(lens))
                check_ragged(attention.run(*qkv, lens, options, is_causal=is_causal), qkv, lens, options, is_causal)


@pytest.mark.parametrize("name", RAGGED)
def test_segments_in_a_graph(name: str) -> None:
    torch.manual_seed(0)
    shape = SHAPES["small heads"]
    attention = backend_for(RAGGED_ATTENTION, name, shape)()
    qkv = ragged_inputs(shape, sum(LENS))
    if name in ("flashinfer", "xformers"):
        with pytest.raises(RuntimeError, match="while a graph is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            attention.run(*qkv, LENS, PLAIN, is_causal=False)
    attention.run(*qkv, LENS, PLAIN, is_causal=False)
    graph = torch.cuda.CUDAGraph()
    with keeping() as kept, torch.cuda.graph(graph):
        out = attention.run(*qkv, LENS, PLAIN, is_causal=False)
    for i in range(40):  # more plans than are remembered
        lens = [i + 1, 50]
        others = ragged_inputs(shape, sum(lens))
        check_ragged(attention.run(*others, lens, PLAIN), others, lens, PLAIN, True)
    for x in qkv:
        x.copy_(torch.randn_like(x))
    graph.replay()
    check_ragged(out, qkv, LENS, PLAIN, False)
    assert bool(kept) == (name in ("flashinfer", "xformers"))


DENSE = ("cudnn", "flash", "xformers", "torch")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("name", DENSE)
def test_equal_lengths(name: str, head_dim: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    backend = backend_for(DENSE_ATTENTION, name, Shape(8, 8, head_dim, dtype, ()))
    options = ScoreOptions(head_dim**-0.5)
    with torch.inference_mode():
        for batch, num_queries, num_keys in ((1, 512, 512), (3, 300, 300), (2, 260, 77), (1, 64, 1)):
            q = torch.randn(batch, num_queries, 8, head_dim, device="cuda", dtype=dtype) * 4
            k, v = torch.randn(2, batch, num_keys, 8, head_dim, device="cuda", dtype=dtype)
            out = backend.run(q, k, v)
            for i in range(batch):
                close(out[i], softmax_attention(q[i], k[i], v[i], options, False), dtype)


def test_cudnn_is_what_runs_where_it_is_named() -> None:
    backend = backend_for(DENSE_ATTENTION, "cudnn", Shape(8, 8, 128, torch.bfloat16, ()))
    q, k, v = torch.randn(3, 1, 512, 8, 128, device="cuda", dtype=torch.bfloat16)
    backend.run(q, k, v)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        backend.run(q, k, v)
    assert any("cudnn" in event.name.lower() for event in profile.events()), [e.name for e in profile.events()]


def test_a_bias_is_added_to_the_scores() -> None:
    torch.manual_seed(0)
    resolved = DENSE_ATTENTION.resolve(Target.of("cuda", torch.bfloat16, head_dim=64, needs=("bias",)))
    q, k, v = torch.randn(3, 2, 128, 8, 64, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(2, 1, 128, 128, device="cuda", dtype=torch.bfloat16) * 3
    scores = torch.einsum("blhd,bmhd->bhlm", q.float(), k.float()) / 8 + bias.float()
    expected = torch.einsum("bhlm,bmhd->blhd", scores.softmax(-1), v.float())
    close(resolved.backend.run(q, k, v, bias), expected, torch.bfloat16)


def test_a_bias_over_keys_serves_texts_of_any_length_wherever_their_tokens_lie() -> None:
    torch.manual_seed(0)
    resolved = DENSE_ATTENTION.resolve(Target.of("cuda", torch.bfloat16, head_dim=128, needs=("bias",)))
    q = torch.randn(1, 300, 4, 128, device="cuda", dtype=torch.bfloat16)
    k, v = torch.randn(2, 1, 64, 4, 128, device="cuda", dtype=torch.bfloat16)
    biases = torch.randn(64, device="cuda", dtype=torch.bfloat16) * 3
    biases[25] = -torch.inf
    for start, stop in ((0, 26), (26, 42), (42, 64)):
        bias = biases[start:stop].clone()
        scores = torch.einsum("blhd,bmhd->bhlm", q.float(), k[:, start:stop].float()) / 128**0.5 + bias.float()
        expected = torch.einsum("bhlm,bmhd->blhd", scores.softmax(-1), v[:, start:stop].float())
        run = resolved.backend.run(q, k[:, start:stop], v[:, start:stop], bias.expand(1, 1, 300, -1))
        close(run, expected, torch.bfloat16)
