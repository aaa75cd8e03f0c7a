"""Triton kernel of sampling: one program per row finds the least probability that is kept, then the token.

Probabilities are kept unnormalised, e^(x - max x), and never stored: the row is read again for each question, from the
L2 cache. As numbers of [0, 1] are ordered like their bit patterns, the threshold is found bit by bit, two at a time:
it is the largest t for which what is at least t still comes to what is asked for (top_k tokens, or top_p of the mass).
Every sum is taken in one fixed order, so a row gives the same token in any batch.
"""

import triton.language as tl

from ..triton_jit import kernel


@kernel()
def _probabilities(
    row: tl.tensor,
    start: tl.tensor,
    temperature: tl.tensor,
    top: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    column = start + tl.arange(0, BLOCK)
    return tl.exp(tl.load(row + column, column < SIZE, other=float("-inf")) / temperature - top)


@kernel()
def _threshold(
    row: tl.tensor,
    temperature: tl.tensor,
    top: tl.tensor,
    low: tl.tensor,
    asked: tl.tensor,
    BY_MASS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """The bits of the largest number t >= low for which tokens of at least t, counted or weighed, come to `asked`."""
    digit = 1 << 28
    for _ in range(0, 15):
        sum_1 = tl.zeros([BLOCK], tl.float32)
        sum_2 = tl.zeros([BLOCK], tl.float32)
        sum_3 = tl.zeros([BLOCK], tl.float32)
        for start in range(0, SIZE, BLOCK):
            p = _probabilities(row, start, temperature, top, SIZE, BLOCK)
            bits = p.to(tl.int32, bitcast=True)
            weight = p if BY_MASS else tl.full([BLOCK], 1.0, tl.float32)
            sum_1 += tl.where(bits >= low + digit, weight, 0.0)
            sum_2 += tl.where(bits >= low + 2 * digit, weight, 0.0)
            sum_3 += tl.where(bits >= low + 3 * digit, weight, 0.0)
        enough_1 = (tl.sum(sum_1, 0) >= asked).to(tl.int32)
        enough_2 = (tl.sum(sum_2, 0) >= asked).to(tl.int32)
        enough_3 = (tl.sum(sum_3, 0) >= asked).to(tl.int32)
        low += digit * (enough_1 + enough_2 + enough_3)
        digit = digit >> 2
    return low


@kernel()
def sample(
    logits: tl.tensor,
    temperatures: tl.tensor,
    top_ps: tl.tensor,
    top_ks: tl.tensor,
    uniforms: tl.tensor,
    tokens: tl.tensor,
    stride: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Logits are float32 [R, SIZE] with rows `stride` apart, numbers of rows as in `Draw`, tokens int64 [R]."""
    r = tl.program_id(0)
    row = logits + r.to(tl.int64) * stride
    temperature, top_p, top_k = tl.load(temperatures + r), tl.load(top_ps + r), tl.load(top_ks + r)

    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, SIZE, BLOCK):
        column = start + tl.arange(0, BLOCK)
        highest = tl.maximum(highest, tl.load(row + column, column < SIZE, other=float("-inf")))
    top = tl.max(highest, 0) / temperature

    low = 0
    if (top_k > 0) & (top_k < SIZE):
        low = _threshold(row, temperature, top, low, top_k.to(tl.float32), False, SIZE, BLOCK)
    if top_p < 1:
        mass = tl.zeros([BLOCK], tl.float32)
        for start in range(0, SIZE, BLOCK):
            p = _probabilities(row, start, temperature, top, SIZE, BLOCK)
            mass += tl.where(p.to(tl.int32, bitcast=True) >= low, p, 0.0)
        low = _threshold(row, temperature, top, low, top_p * tl.sum(mass, 0), True, SIZE, BLOCK)

    total = tl.sum(tl.zeros([1], tl.float64), 0)
    for start in range(0, SIZE, BLOCK):
        p = _probabilities(row, start, temperature, top, SIZE, BLOCK)
        total += tl.sum(tl.where(p.to(tl.int32, bitcast=True) >= low, p, 0.0).to(tl.float64), 0)
    target = tl.load(uniforms + r) * total

    # The first token whose sum exceeds the target. Sums of blocks are those of above, so one block exceeds it; if its
    # own running sums were rounded below the target, its last kept token is the one.
    before = tl.sum(tl.zeros([1], tl.float64), 0)
    token = -1
    for start in range(0, SIZE, BLOCK):
        if token < 0:
            p = _probabilities(row, start, temperature, top, SIZE, BLOCK)
            kept = tl.where(p.to(tl.int32, bitcast=True) >= low, p, 0.0).to(tl.float64)
            after = before + tl.sum(kept, 0)
            if after > target:
                column = tl.arange(0, BLOCK)
                is_hit = (before + tl.cumsum(kept, 0) > target) & (kept > 0)
                last = tl.max(tl.where(kept > 0, column, -1), 0)
                token = start + tl.minimum(tl.min(tl.where(is_hit, column, BLOCK), 0), last)
            before = after
    tl.store(tokens + r, tl.where(token < 0, SIZE - 1, token))  # no sum exceeds the target where one is not a number
