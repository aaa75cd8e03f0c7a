"""For each operation: inputs, and a result computed in the plainest way there is."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hemiola.kernels.attention import PagedRows, ScoreOptions
from hemiola.kernels.sampling import Draw
from hemiola.kernels.solver_step import UNIPC_COLUMNS
from hemiola.tests.kernels.denoiser_cases import DENOISER_CASES

NUM_HEADS, NUM_KV, HEAD_DIM, PAGE_LEN, NUM_LAYERS = 6, 2, 16, 4, 3


def check_linear(backend: Any) -> None:
    for num_out, num_in in ((48, 32), (16, 40)):
        for weight in (torch.randn(num_out, num_in), (torch.randn(num_out, num_in) * 1e-4).bfloat16().float()):
            bias = torch.randn(num_out)
            for rows in (0, 1, 2, 7):
                x = torch.randn(rows, num_in + 3)[:, :num_in]
                close(backend(weight)(x), x @ weight.T)
                close(backend(weight, bias)(x), x @ weight.T + bias)


def check_rms_norm(backend: Any) -> None:
    weight = torch.randn(32)
    norm = backend(weight, 1e-5)
    # Small numbers too, where eps matters.
    for x in (torch.randn(5, 32), torch.randn(5, 32) * 1e-3, torch.zeros(2, 32)):
        expected = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight
        close(norm(x), expected)
        residual, more = x.clone(), torch.randn_like(x)
        summed = x + more
        close(norm.add(residual, more), summed * torch.rsqrt((summed**2).mean(-1, keepdim=True) + 1e-5) * weight)
        close(residual, summed)
    per_head, wide = torch.randn(4, 16), torch.randn(3, 6, 16)
    x = wide[:, 1:5]
    expected = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * per_head
    close(backend(per_head, 1e-6).in_place(x), expected)
    close(wide[:, 1:5], expected)


def check_rope(backend: Any) -> None:
    frequencies = 1 / 10000 ** (torch.arange(0, 16, 2) / 16)
    positions = torch.tensor([0, 3, 4000])
    rope = backend(frequencies, 1.25)
    wide = torch.randn(3, 5, 16)
    x = wide[:, :4].clone()
    rope.rotate(wide[:, :4], rope.at(positions, torch.float32))
    angles = torch.outer(positions.float(), frequencies)[:, None]
    a, b = x.chunk(2, -1)
    turned = torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1) * 1.25
    close(wide[:, :4], turned)
    weight, normed = torch.randn(4, 16), torch.randn(3, 5, 16)
    x = normed[:, :4] * torch.rsqrt((normed[:, :4] ** 2).mean(-1, keepdim=True) + 1e-5) * weight
    rope.rotate(normed[:, :4], rope.at(positions, torch.float32), rope.head_norm(weight, 1e-5))
    a, b = x.chunk(2, -1)
    turned = torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1) * 1.25
    close(normed[:, :4], turned)


def check_gated_activation(backend: Any) -> None:
    x = torch.randn(3, 20)
    gate, up = x[:, :10].clone(), x[:, 10:].clone()
    tanh = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    exact = 0.5 * gate * (1 + torch.erf(gate / math.sqrt(2)))
    for kind, acted in (("silu", gate / (1 + torch.exp(-gate))), ("gelu", exact), ("gelu_pytorch_tanh", tanh)):
        close(backend(kind)(x.clone()), acted * up)
        close(backend(kind).apart(gate.clone(), up), acted * up)


def check_kv_store(backend: Any) -> None:
    pages = torch.zeros(5, NUM_LAYERS, 2, PAGE_LEN, NUM_KV, HEAD_DIM)
    kv = torch.randn(3, 3, NUM_KV, HEAD_DIM)[:, 1:]  # a strided view, as a part of a joint projection is
    backend.store(pages[:, 1], kv, torch.tensor([4, 0, 4]), torch.tensor([0, 3, 2]))
    expected = torch.zeros_like(pages)
    for i, (page, offset) in enumerate(((4, 0), (0, 3), (4, 2))):
        expected[page, 1, :, offset] = kv[i]
    assert torch.equal(pages, expected)


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, options: ScoreOptions, sinks: Tensor | None, causal: bool
) -> Tensor:
    """One sequence: q [N, H, D] at the last positions of k, v [L, K, D]; query by query, head by head."""
    num_new, num_keys = q.shape[0], k.shape[0]
    out = torch.zeros_like(q)
    for n in range(num_new):
        position = num_keys - num_new + n
        last = position + 1 if causal else num_keys
        first = max(0, position - options.window + 1) if options.window else 0
        for h in range(q.shape[1]):
            g = h * k.shape[1] // q.shape[1]
            scores = (k[first:last, g] @ q[n, h]) * options.scale
            if options.softcap is not None:
                scores = options.softcap * torch.tanh(scores / options.softcap)
            weights = torch.exp(scores)
            total = weights.sum() + (torch.exp(sinks[h]) if sinks is not None else 0.0)
            out[n, h] = (weights[:, None] * v[first:last, g]).sum(0) / total
    return out


OPTIONS = {
    "plain": ScoreOptions(0.25),
    "window": ScoreOptions(0.25, window=6),
    "softcap": ScoreOptions(0.5, softcap=2.0),
    "softcap and window": ScoreOptions(0.5, softcap=2.0, window=9),
}


def check_paged_attention(backend: Any) -> None:
    rows = [(1, 1), (1, 4), (1, 5), (1, 22), (1, 23), (1, 120), (5, 5), (3, 14), (8, 30), (1, 13)]
    num_decodes = 6
    arena = torch.full((130, NUM_LAYERS, 2, PAGE_LEN, NUM_KV, HEAD_DIM), float("nan"))
    free = torch.randperm(130).tolist()
    table = np.zeros((len(rows), 40), dtype=np.int64)
    keys, values = [], []
    for i, (_, context) in enumerate(rows):
        kv = torch.randn(2, NUM_LAYERS, context, NUM_KV, HEAD_DIM)
        for j in range(-(-context // PAGE_LEN)):
            table[i, j] = page = free.pop()
            if backend.needs_clean_pages:
                arena[page] = 0
            part = kv[:, :, j * PAGE_LEN : (j + 1) * PAGE_LEN]
            arena[page, :, :, : part.shape[2]] = part.transpose(0, 1)
        keys.append(kv[0])
        values.append(kv[1])
    attention = backend(arena)
    plan = attention.plan(PagedRows(num_decodes, [n for n, _ in rows], np.array([c for _, c in rows]), table))
    q = torch.randn(sum(n for n, _ in rows), NUM_HEADS, HEAD_DIM)
    decodes_only = attention.plan(
        PagedRows(num_decodes, [1] * num_decodes, np.array([c for _, c in rows[:num_decodes]]), table[:num_decodes])
    )
    for options in OPTIONS.values():
        for sinks in (None, torch.randn(NUM_HEADS)):
            for layer in range(NUM_LAYERS):
                out = attention.run(layer, q, plan, options, sinks)
                start = 0
                for i, (num_new, _) in enumerate(rows):
                    row = slice(start, start + num_new)
                    close(out[row], plain_attention(q[row], keys[i][layer], values[i][layer], options, sinks, True))
                    start += num_new
            close(attention.run(2, q[:num_decodes], decodes_only, options, sinks), out[:num_decodes])
    check_fixed_plan(attention, q[:num_decodes], [context for _, context in rows[:num_decodes]], table)


def check_fixed_plan(attention: Any, q: Tensor, contexts: list[int], table: np.ndarray) -> None:
    """Set for one order of the rows, then for another: as plans made for them give."""
    num_rows = len(contexts)
    fixed = attention.fixed_plan(num_rows, sum(-(-context // PAGE_LEN) for context in contexts) + 3)
    for order in ([*range(num_rows)], [*reversed(range(num_rows))], [0] * num_rows):
        rows = PagedRows(num_rows, [1] * num_rows, np.array(contexts)[order], table[order])
        fixed.set(rows)
        plan = attention.plan(rows)
        for options in OPTIONS.values():
            for sinks in (None, torch.randn(NUM_HEADS)):
                close(attention.run(1, q, fixed, options, sinks), attention.run(1, q, plan, options, sinks))
    with pytest.raises(ValueError, match=f"exactly {num_rows} decodes"):
        fixed.set(PagedRows(1, [1], np.array(contexts)[:1], table[:1]))
    with pytest.raises(ValueError, match="pages in sum"):
        fixed.set(PagedRows(num_rows, [1] * num_rows, np.full(num_rows, 40 * PAGE_LEN), table[[0] * num_rows]))


def check_ragged_attention(backend: Any) -> None:
    lens = [3, 7, 7, 1, 12]
    q = torch.randn(sum(lens), NUM_HEADS, HEAD_DIM)
    k, v = torch.randn(2, sum(lens), NUM_KV, HEAD_DIM)
    attention = backend()
    for options in OPTIONS.values():
        for sinks in (None, torch.randn(NUM_HEADS)):
            for causal in (True, False):
                if options.window and not causal:
                    continue
                out = attention.run(q, k, v, lens, options, is_causal=causal, sinks_H=sinks)
                start = 0
                for length in lens:
                    row = slice(start, start + length)
                    close(out[row], plain_attention(q[row], k[row], v[row], options, sinks, causal))
                    start += length


def check_dense_attention(backend: Any) -> None:
    q = torch.randn(2, 5, NUM_HEADS, HEAD_DIM)
    for num_keys in (5, 9):
        k, v = torch.randn(2, 2, num_keys, NUM_HEADS, HEAD_DIM)
        for bias in (None, torch.randn(2, 1, 5, num_keys), torch.randn(1, NUM_HEADS, 5, num_keys)):
            scores = torch.einsum("blhd,bmhd->bhlm", q, k) / math.sqrt(HEAD_DIM)
            weights = torch.exp(scores if bias is None else scores + bias)
            expected = torch.einsum("bhlm,bmhd->blhd", weights / weights.sum(-1, keepdim=True), v)
            close(backend.run(q, k, v, bias), expected)


def check_sampling(backend: Any) -> None:
    num_vocab, device = 400, torch.get_default_device()
    logits = torch.randn(64, num_vocab) * 2
    logits[5, 10:20] = logits[5].max()  # equally likely tokens at the border are kept together
    assert backend.greedy(logits).tolist() == logits.argmax(-1).tolist()
    with torch.device("cpu"):
        numbers = torch.Generator().manual_seed(3)
        temperature = torch.rand(64, generator=numbers) + 0.3
        top_p = torch.where(torch.arange(64) % 3 == 0, 1.0, torch.rand(64, generator=numbers).clamp(min=1e-6))
        top_k = torch.where(torch.arange(64) % 2 == 0, 0, torch.randint(1, 390, (64,), generator=numbers))
        uniform = torch.rand(64, generator=numbers, dtype=torch.float64)
        uniform[:2] = torch.tensor([0.0, 1 - 2**-32], dtype=torch.float64)
    tokens = backend.sample(logits, Draw(*(x.to(device) for x in (temperature, top_p, top_k, uniform)))).tolist()
    logits = logits.cpu()
    for i in range(64):
        assert tokens[i] == plain_sample(logits[i], temperature[i], float(top_p[i]), int(top_k[i]), float(uniform[i]))
    check_sampling_of_no_numbers(backend)


def check_sampling_of_no_numbers(backend: Any) -> None:
    """Rows that a model broke down over get some token: of none the next step would die, and all requests with it."""
    logits = torch.randn(4, 400)
    logits[0, 7], logits[1, 7], logits[2] = float("nan"), float("inf"), float("-inf")
    uniform = torch.full((4,), 0.5, dtype=torch.float64)
    tokens = backend.sample(logits, Draw(torch.ones(4), torch.ones(4), torch.zeros(4, dtype=torch.int64), uniform))
    assert tokens.min() >= 0 and tokens.max() < 400, tokens


def plain_sample(logits: Tensor, temperature: Tensor, top_p: float, top_k: int, uniform: float) -> int:
    probs = torch.softmax(logits / temperature, -1)
    kept = set(range(len(probs)))
    if top_k:
        kept = {i for i in kept if int((probs > probs[i]).sum()) < top_k}
    total = sum(float(probs[i]) for i in kept) if top_k else 1.0
    if top_p < 1:
        order = sorted(kept, key=lambda i: -float(probs[i]))
        before: dict[int, float] = {}
        reached: dict[float, float] = {}
        mass = 0.0
        for i in order:  # mass before the first of equally likely ones
            value = float(probs[i])
            before[i] = reached.setdefault(value, mass)
            mass += value
        kept = {i for i in order if before[i] < top_p * total} | {order[0]}
    target, mass = uniform * sum(float(probs[i]) for i in sorted(kept)), 0.0
    for i in sorted(kept):
        mass += float(probs[i])
        if mass > target:
            return i
    raise AssertionError("The target lies behind all tokens.")


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)


def check_solver_step(backend: Any) -> None:
    """UniPC's update number by number, in Python's floats; rows have different coefficients."""
    flow, sample, last, clean_1, clean_2 = torch.randn(5, 3, 2, 4)
    dt = torch.tensor([-0.5, 0.1, 0.0])
    for row in range(3):
        close(backend.flow_euler(sample, flow, dt)[row], sample[row] + float(dt[row]) * flow[row])
    coefficients = torch.rand(3, len(UNIPC_COLUMNS)) + 0.2
    results = backend.unipc(flow, sample, last, clean_1, clean_2, coefficients)
    for row in range(3):
        c = dict(zip(UNIPC_COLUMNS, coefficients[row].tolist(), strict=True))
        flat = zip(*(x[row].flatten().tolist() for x in (flow, sample, last, clean_1, clean_2, *results)), strict=True)
        for v, x, x_last, m_1, m_2, following, corrected, clean in flat:
            m = x - c["sigma"] * v
            residual = c["c_rho_old"] * (m_2 - m_1) / c["c_ratio"] + c["c_rho_new"] * (m - m_1)
            y = c["keep"] * x + c["c_last"] * x_last - c["c_clean"] * m_1 - c["c_residual"] * residual
            z = c["p_sample"] * y - c["p_clean"] * m - c["p_residual"] * 0.5 * (m_1 - m) / c["p_ratio"]
            assert (following, corrected, clean) == pytest.approx((z, y, m), rel=1e-3, abs=1e-4)


CASES: dict[str, Callable[[Any], None]] = {
    "linear": check_linear,
    "rms_norm": check_rms_norm,
    "rope": check_rope,
    "gated_activation": check_gated_activation,
    "kv_store": check_kv_store,
    "paged_attention": check_paged_attention,
    "ragged_attention": check_ragged_attention,
    "dense_attention": check_dense_attention,
    "sampling": check_sampling,
    "solver_step": check_solver_step,
    **DENOISER_CASES,
}
