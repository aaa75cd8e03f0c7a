"""Sampling backends on a GPU with a real vocabulary: the definition in float64, graphs, and rows alone."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

from hemiola.kernels.registry import Target
from hemiola.kernels.sampling import SAMPLER, Draw

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

NUM_VOCAB = 128_256
# Sums of 128 k float32 probabilities, whatever their order.
SLACK = 1e-5


def sampler(name: str) -> Any:
    why_not = SAMPLER.why_not(name, Target.of("cuda", torch.bfloat16))
    if why_not is not None:
        pytest.skip(f"{name}: {why_not}")
    return SAMPLER.load(name)


def draws(num_rows: int) -> tuple[Tensor, Draw]:
    """Rows of every kind: with neither, one or both filters, flat and peaked, and with much of it masked."""
    torch.manual_seed(0)
    logits = torch.randn(num_rows, NUM_VOCAB, device="cuda") * (1 + 5 * torch.rand(num_rows, 1, device="cuda"))
    logits[::7, 100:] = float("-inf")
    row = torch.arange(num_rows, device="cuda")
    top_p = torch.where(row % 3 == 0, 1.0, torch.rand(num_rows, device="cuda").clamp(min=1e-6))
    top_k = torch.where(row % 2 == 0, 0, torch.randint(1, 2000, (num_rows,), device="cuda"))
    uniform = torch.randint(0, 2**32, (num_rows,), device="cuda").double() / 2**32
    uniform[:2] = torch.tensor([0.0, 1 - 2**-32], device="cuda", dtype=torch.float64)
    return logits, Draw(torch.rand(num_rows, device="cuda") + 0.3, top_p, top_k, uniform)


def is_right(logits: Tensor, draw: Draw, row: int, token: int) -> bool:
    """Whether the row's number falls on the token, for some threshold within what float32 sums can tell."""
    x = logits[row].double() / draw.temperature_R[row].double()
    p = torch.softmax(x, 0)
    top_k, top_p = int(draw.top_k_R[row]), float(draw.top_p_R[row])
    sorted_p = p.sort(descending=True).values
    least = sorted_p[min(top_k, NUM_VOCAB) - 1] if top_k else p.new_tensor(0.0)
    total = sorted_p[sorted_p >= least].sum()
    for share in (top_p - SLACK, top_p, top_p + SLACK):
        threshold = least
        if top_p < 1:
            before = sorted_p.cumsum(0) - sorted_p
            threshold = torch.maximum(least, sorted_p[(before < share * total) | (before == 0)].min())
        # Probabilities that are the same number in float32 are equally likely.
        kept = torch.where(p >= threshold * (1 - 1e-6), p, 0.0)
        sums = kept.cumsum(0)
        target = float(draw.uniform_R[row] * sums[-1])
        low, high = float(sums[token] - kept[token]), float(sums[token])
        if kept[token] > 0 and low - SLACK <= target <= high + SLACK:
            return True
    return False


@pytest.mark.parametrize("name", ["triton", "torch"])
def test_every_row_gets_the_token_that_its_number_falls_on(name: str) -> None:
    backend = sampler(name)
    logits, draw = draws(96)
    tokens = backend.sample(logits, draw).tolist()
    wrong = [row for row, token in enumerate(tokens) if not is_right(logits, draw, row, token)]
    assert wrong == []


def test_another_token_would_be_noticed() -> None:
    logits, draw = draws(8)
    tokens = sampler("torch").sample(logits, draw).tolist()
    likeliest = logits.argmax(-1).tolist()
    for row in range(8):
        others = {(tokens[row] + 50) % NUM_VOCAB, (likeliest[row] + 1) % NUM_VOCAB} - {tokens[row]}
        assert not any(is_right(logits, draw, row, other) for other in others if logits[row, other] < logits[row].max())


def test_a_row_is_the_same_in_any_batch_and_in_a_graph() -> None:
    backend = sampler("triton")
    logits, draw = draws(64)
    tokens = backend.sample(logits, draw)
    for row in range(0, 64, 9):
        alone = Draw(*(getattr(draw, field.name)[row : row + 1].clone() for field in fields(draw)))
        assert backend.sample(logits[row : row + 1], alone).tolist() == tokens[row : row + 1].tolist()
    greedy = backend.greedy(logits)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured, captured_greedy = backend.sample(logits, draw), backend.greedy(logits)
    order = torch.randperm(64, device="cuda")
    logits.copy_(logits[order])
    for field in fields(draw):
        values = getattr(draw, field.name)
        values.copy_(values[order])
    graph.replay()
    assert torch.equal(captured, tokens[order])
    assert torch.equal(captured_greedy, greedy[order])


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.zeros(3, NUM_VOCAB, device="cuda")
    logits[1, [70_000, 9]] = 1.0
    assert sampler("triton").greedy(logits).tolist() == [0, 9, 0]
