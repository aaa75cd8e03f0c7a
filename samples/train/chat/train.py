"""Train the chat model in a given wall-clock time, save it, and evaluate it.

    python -m samples.train.chat.train --out DIR --seconds 480 --workers 14 [--resume DIR]

The learning rate follows the clock: warm-up, constant, then linear to zero exactly when the time is over. DIR gets
weights.NN.part (see checkpoint) and report.json with the loss curve and the evaluation. One CUDA device, or a CPU for a
smoke test (--tiny). With --dev-wordings a share of the wordings is kept from the training and asked for afterwards, in
place of the evaluation set (see dev): for comparing runs, not for weights that ship.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samples.train.chat import dev
from samples.train.chat.checkpoint import load_parts, resume, save_parts, write_folder
from samples.train.chat.evaluation.run import Report, evaluate_folder, print_table
from samples.train.chat.feed import Feed, Rows
from samples.train.chat.model import ChatModel, Config, block_lists
from samples.train.chat.optimiser import Optimisers

WARM_UP_STEPS = 100
CONSTANT_UNTIL = 0.45
LOSS_CAPACITY = 0.36
# A healthy run is far below this by then; going on would waste the device.
DIVERGED_AFTER, DIVERGED_LOSS = 500, 4.0
Loss = Callable[..., Tensor]
Batch = tuple[Any, ...]
TINY = Config(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32, intermediate_size=96
)


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    out: Path
    seconds: float
    workers: int
    rows: int
    row_len: int
    seed: int
    resume: Path | None
    tiny: bool
    steps: int
    eval_limit: int
    dev_wordings: bool
    rewording: bool


def to_device(rows: Rows, device: torch.device, rng: np.random.Generator) -> Batch:
    """A batch as the model takes it: positions with loss, their targets and weights are filled up to a fixed count."""
    tokens = rows.ids.size
    capacity = int(tokens * LOSS_CAPACITY)
    flat = rows.loss.copy()
    flat[:, 0] = False
    is_chosen = np.roll(flat.reshape(-1), -1)  # a position predicts the id after it
    chosen = np.flatnonzero(is_chosen)
    if len(chosen) > capacity:
        chosen = rng.choice(chosen, capacity, replace=False)
    fillers = np.flatnonzero(~is_chosen)[: capacity - len(chosen)]  # distinct: equal indices would collide backwards
    positions = np.concatenate((chosen, fillers))
    targets = np.roll(rows.ids.reshape(-1).astype(np.int64), -1)[positions]
    weights = np.zeros(capacity, np.float32)
    weights[: len(chosen)] = 1
    arrays = (rows.ids.astype(np.int64), rows.document, positions, targets, weights)
    tensors = (torch.from_numpy(array) for array in arrays)
    if device.type == "cuda":
        tensors = (tensor.pin_memory().to(device, non_blocking=True) for tensor in tensors)
    ids, document, *rest = tensors
    return ids, document, block_lists(document), *rest


def gradients(model: ChatModel, loss_of: Loss, batch: Batch) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of one batch; the model's own are left empty."""
    loss = loss_of(*batch)
    loss.backward()
    found = {name: p.grad.float().flatten() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return float(loss.detach()), found


def compiled_loss(model: ChatModel, batch: Batch) -> Loss:
    """The model's loss, compiled if this device can; held against the plain dense computation before it is trusted."""
    if not batch[0].is_cuda:
        return model
    model.use_flex = False
    expected, expected_gradients = gradients(model, model, batch)
    for use_flex in (True, False):
        model.use_flex = use_flex
        try:
            torch._dynamo.reset()
            loss: Loss = torch.compile(model, dynamic=False)
            got, got_gradients = gradients(model, loss, batch)
        except Exception as error:
            # an untested compiler must not cost the whole run: say so and take the next simpler way
            print(f"compiling failed (flex {use_flex}): {str(error)[:2000]}", flush=True)
            model.zero_grad(set_to_none=True)
            continue
        pairs = [(name, got_gradients[name], grad) for name, grad in expected_gradients.items()]
        cosine, worst = min((float(torch.cosine_similarity(a, b, dim=0)), name) for name, a, b in pairs)
        print(f"flex {use_flex}: loss {got:.4f} ({expected:.4f} dense), cosine {cosine:.4f} ({worst})", flush=True)
        if abs(got - expected) < 0.02 * expected and cosine > 0.97:
            return loss
    print("running eagerly", flush=True)
    model.use_flex = False
    return model


def schedule(step: int, progress: float) -> float:
    """Factor on the learning rates."""
    decay = max(0.0, (1 - progress) / (1 - CONSTANT_UNTIL))
    return min(1.0, (step + 1) / WARM_UP_STEPS, decay)


def run_steps(
    options: Options, model: ChatModel, feed: Feed, device: torch.device, until: float
) -> list[dict[str, float]]:
    """Train until the clock says `until`; the curve of (step, seconds, loss)."""
    rng = np.random.default_rng(options.seed)
    began = time.monotonic()
    batch = to_device(feed.next(), device, rng)
    print(f"first batch after {time.monotonic() - began:.1f} s", flush=True)
    loss_of = compiled_loss(model, batch)
    optimisers = Optimisers(model)
    start = time.monotonic()
    print(f"ready to train after {start - began:.1f} s, {until - start:.0f} s left", flush=True)
    curve: list[dict[str, float]] = []
    recent: list[Tensor] = []
    events: list[torch.cuda.Event] = []
    step = 0
    while time.monotonic() < until and (not options.steps or step < options.steps):
        progress = (time.monotonic() - start) / (until - start)
        loss = loss_of(*batch)
        loss.backward()
        optimisers.step(schedule(step, step / options.steps if options.steps else progress))
        recent.append(loss.detach())
        step += 1
        if device.type == "cuda":
            events.append(torch.cuda.Event())
            events[-1].record()
            if len(events) > 2:
                events.pop(0).synchronize()  # the clock must not run ahead of the device
        if step % 100 == 0 or step in (10, 50):
            curve.append(point(step, time.monotonic() - start, recent, options))
            if step >= DIVERGED_AFTER and not curve[-1]["loss"] < DIVERGED_LOSS:
                raise SystemExit(f"The loss is {curve[-1]['loss']} after {step} steps: the run has diverged.")
        batch = to_device(feed.next(), device, rng)
    if recent:
        curve.append(point(step, time.monotonic() - start, recent, options))
    return curve


def point(step: int, seconds: float, recent: list[Tensor], options: Options) -> dict[str, float]:
    """A point of the loss curve, also printed; empties `recent`."""
    mean = float(torch.stack(recent).mean())
    recent.clear()
    rate = step * options.rows * options.row_len / seconds / 1e6
    print(f"step {step}  {seconds:6.1f} s  loss {mean:.4f}  {rate:.2f} M tokens/s", flush=True)
    return {"step": step, "seconds": round(seconds, 1), "loss": round(mean, 4)}


def train(options: Options) -> None:
    began = time.monotonic()
    part = "train" if options.dev_wordings else "all"
    feed = Feed(
        options.seed, options.workers, options.row_len, options.rows, part, options.rewording
    )  # forks, so before CUDA starts
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    is_cuda = device.type == "cuda"
    config = TINY if options.tiny else Config()
    model = ChatModel(config, torch.bfloat16 if is_cuda else torch.float32, use_flex=is_cuda).to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}", flush=True)
    if options.resume:
        resume(model, options.resume)
    try:
        curve = run_steps(options, model, feed, device, began + options.seconds)
    finally:
        feed.close()
    save_parts(model, options.out, torch.bfloat16)
    trained_s = time.monotonic() - began
    report: Report = {
        "seconds": round(trained_s, 1),
        "seed": options.seed,
        "rows": options.rows,
        "row_len": options.row_len,
        "resumed": bool(options.resume),
        "device": torch.cuda.get_device_name() if is_cuda else "cpu",
        "curve": curve,
    }
    path = options.out / "report.json"
    path.write_text(json.dumps(report) + "\n", encoding="utf-8")
    if options.dev_wordings:
        report["dev"] = dev.evaluate(options.out, device, options.eval_limit)
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_folder(*load_parts(options.out), Path(folder))
            report["evaluation"] = evaluate_folder(Path(folder), device, options.eval_limit)
        print_table(report["evaluation"])
    path.write_text(json.dumps(report, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"trained {trained_s:.0f} s, all done after {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=480, help="wall clock for start, compiling and training")
    parser.add_argument("--workers", type=int, default=14, help="data processes")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--row-len", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a small model, for a smoke test")
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps (0: by the clock alone)")
    parser.add_argument("--eval-limit", type=int, default=0, help="evaluate only so many cases (0: all)")
    parser.add_argument("--dev-wordings", action="store_true", help="keep wordings from the training and evaluate them")
    parser.add_argument("--rewording", action="store_true", help="other words in the wordings (see rewording)")
    train(Options(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
