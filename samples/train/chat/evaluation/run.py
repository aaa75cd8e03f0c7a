"""Run a model folder over the evaluation set with greedy decoding, and sum up.

The figures are shares of cases judged right; a macro is the mean over abilities. The set's SHA-256 goes with them.
"""

import hashlib
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from samples.train.chat.evaluation.build import FILE
from samples.train.chat.evaluation.judge import LEAK, Case, is_right

TOKENS_PER_BATCH, CASES_PER_BATCH, ROOM = 200_000, 256, 40
Report = dict[str, Any]


def load_cases(limit: int = 0) -> list[Case]:
    """All cases, or every n-th so that about `limit` are left."""
    found = [Case(**json.loads(line)) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return found[:: max(1, len(found) // limit)] if limit else found


def batches(prompts: list[list[int]], answers: list[int]) -> list[list[int]]:
    """Case indices in batches of similar answer and prompt lengths."""
    order = sorted(range(len(prompts)), key=lambda i: (answers[i] // 24, len(prompts[i])))
    found: list[list[int]] = []
    longest = 0
    for i in order:
        longest = max(longest, len(prompts[i]))
        if not found or len(found[-1]) == CASES_PER_BATCH or longest * (len(found[-1]) + 1) > TOKENS_PER_BATCH:
            found.append([])
            longest = len(prompts[i])
        found[-1].append(i)
    return found


def answers_of(folder: Path, cases: list[Case], device: torch.device, limit_s: float) -> list[str | None]:
    """The model's continuation of every case; None where the time was over."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to(device).eval()
    end, pad = model.generation_config.eos_token_id[0], model.generation_config.pad_token_id
    texts = [
        tokenizer.apply_chat_template(
            case.messages,
            tools=case.tools or None,
            add_generation_prompt=True,
            tokenize=False,
            enable_thinking=case.is_thinking,
        )
        for case in cases
    ]
    prompts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    lengths = [len(tokenizer(case.answer)["input_ids"]) + (50 if case.is_thinking else 0) for case in cases]
    found: list[str | None] = [None] * len(cases)
    began = time.monotonic()
    for batch in batches(prompts, lengths):
        if time.monotonic() - began > limit_s:
            print("evaluation: time is over, the rest is not judged", flush=True)
            break
        width = max(len(prompts[i]) for i in batch)
        ids = torch.full((len(batch), width), pad)
        mask = torch.zeros_like(ids)
        for row, i in enumerate(batch):
            ids[row, width - len(prompts[i]) :] = torch.tensor(prompts[i])
            mask[row, width - len(prompts[i]) :] = 1
        room = max(lengths[i] for i in batch) + ROOM
        with torch.inference_mode():
            out = model.generate(ids.to(device), attention_mask=mask.to(device), max_new_tokens=room, do_sample=False)
        for row, i in enumerate(batch):
            new = out[row, width:].tolist()
            new = new[: new.index(end)] if end in new else new
            found[i] = tokenizer.decode(new, skip_special_tokens=False)
    return found


def summarise(cases: list[Case], answers: list[str | None]) -> Report:
    """Shares per split and ability, the bars, leaks, and every wrong answer."""
    results: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    thinking: dict[str, list[bool]] = defaultdict(list)
    wrong, num_leaks, num_judged = [], 0, 0
    for case, answer in zip(cases, answers, strict=True):
        if answer is None:
            continue
        right = is_right(case, answer)
        num_judged += 1
        results[case.split][case.ability].append(right)
        thinking[f"{case.split}{', thinking' if case.is_thinking else ''}"].append(right)
        if case.check[0] != "tool":
            tail = answer.partition("</think>\n\n")[2] if case.is_thinking else answer
            num_leaks += LEAK.search(tail) is not None
        if not right:
            last = str(case.messages[-1]["content"])
            wrong.append([case.split, case.ability, last[-200:], case.answer[:200], answer[:300]])
    shares = {split: {name: sum(r) / len(r) for name, r in sorted(found.items())} for split, found in results.items()}
    return {
        "sha256": hashlib.sha256(FILE.read_bytes()).hexdigest(),
        "num_cases": len(cases), "num_judged": num_judged, "num_leaks": num_leaks,
        "macro": {split: sum(found.values()) / len(found) for split, found in shares.items()},
        "bars": bars(shares, results), "mode": {mode: sum(r) / len(r) for mode, r in sorted(thinking.items())},
        "shares": shares, "counts": {s: {n: len(r) for n, r in f.items()} for s, f in results.items()}, "wrong": wrong,
    }  # fmt: skip


def bars(shares: dict[str, dict[str, float]], results: dict[str, dict[str, list[bool]]]) -> dict[str, float]:
    """The figures that the project promises."""

    def pooled(found: list[bool]) -> float:
        return sum(found) / len(found) if found else 0.0

    memory = [
        r for split in results.values() for name, found in split.items() if name.startswith("memory") for r in found
    ]
    return {
        "trained wordings, unseen words (macro)": _mean(shares.get("seen", {})),
        "unseen wordings (macro)": _mean(shares.get("unseen", {})),
        "tool calls, names never seen": pooled([r for found in results["new_tools"].values() for r in found]),
        "multi-turn memory": pooled(memory),
        "JSON extraction, unseen wordings": pooled(results["unseen"]["extract"]),
    }


def _mean(found: dict[str, float]) -> float:
    return sum(found.values()) / len(found) if found else 0.0


def print_table(report: Report) -> None:
    """The figures, worst abilities first."""
    print(f"evaluation set {report['sha256'][:16]}…, {report['num_judged']} of {report['num_cases']} cases")
    for split, found in report["shares"].items():
        print(f"-- {split}: macro {100 * report['macro'][split]:.1f}")
        print("  ".join(f"{name} {100 * share:.0f}" for name, share in sorted(found.items(), key=lambda item: item[1])))
    for name, share in report["bars"].items():
        print(f"== {name}: {100 * share:.1f} %")
    print(f"== answers with leaked control text: {report['num_leaks']}", flush=True)


def evaluate_folder(folder: Path, device: torch.device, limit: int = 0, limit_s: float = 85) -> Report:
    cases = load_cases(limit)
    began = time.monotonic()
    report = summarise(cases, answers_of(folder, cases, device, limit_s))
    report["seconds"] = round(time.monotonic() - began, 1)
    return report


def main() -> None:
    folder, *rest = sys.argv[1:]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    report = evaluate_folder(Path(folder), device, int(rest[0]) if rest else 0, limit_s=36_000)
    print_table(report)
    print(json.dumps(report, ensure_ascii=False) if "--json" in rest else "")


if __name__ == "__main__":
    main()
