"""Write the model card from a training report: ``python -m samples.train.chat.card REPORT_JSON MODEL_DIR``.

Every figure in the card comes from the report; the text around them is fixed.
"""

import json
import sys
from pathlib import Path
from typing import Any

_HEAD = """---
license: apache-2.0
language: en
pipeline_tag: text-generation
---

# hemiola-tiny-chat

A chat model of {parameters:.1f} M parameters (Qwen3ForCausalLM, bf16, context 4096), trained by the scripts in
`samples/train/chat` so that Hemiola can be tried, tested and measured on any machine, without a GPU or a download.
It is a demo: it knows the abilities in the table and little else.

    from transformers import AutoModelForCausalLM, AutoTokenizer

Roles: system, user, assistant, tool. Tools and tool calls are JSON in `<tools>` and `<tool_call>`. A chat has no thoughts
unless `enable_thinking=True`. The history is rendered byte for byte as it was generated. Its hidden states (the last but
one) are the text features of hemiola-tiny-image.

## Training
{seconds:.0f} s on one {device} (start, compiling and training), {steps} steps of {tokens:,} tokens, {total:.0f} M tokens,
last loss {loss:.3f}, seed {seed}{resumed}. All conversations were generated on the fly: no text of other models or of web
pages. Word sources are WordNet 3.0, emojibase-data and the 1990 US census names (see `samples/train/NOTICE.md`).

## Evaluation
Greedy decoding, {num_judged} of {num_cases} cases judged strictly (the whole answer must be right). The set was written and committed before
the training and is never trained on. Its SHA-256 is `{sha256}`.
Answers with leaked control text: {num_leaks}.

| promise | measured |
|---|---|
"""

_LIMITS = """
## Limits
- English only, one or two short sentences an answer, small numbers; no knowledge of the world beyond {definitions} definitions,
  {emoji} emoji and a few lists. Definitions are WordNet's first senses and can be odd.
- Its answers to questions outside the table are guesses. Do not use it for anything but demonstrations and tests.
- Sentences, names and requests of the training data are generated from grammars, so unusual wordings fail more often.
"""

_ROLES = {
    "seen": "trained wordings, unseen words",
    "unseen": "hand-written unseen wordings",
    "new_tools": "tools never seen",
}


def num_lines(name: str) -> int:
    path = Path(__file__).resolve().parent.parent / "data" / name
    return len(path.read_text(encoding="utf-8").splitlines())


def card(report: dict[str, Any], num_parameters: int) -> str:
    """The card's text."""
    evaluation, last = report["evaluation"], report["curve"][-1]
    tokens = report["rows"] * report["row_len"]
    text = _HEAD.format(
        parameters=num_parameters / 1e6, seconds=report["seconds"], device=report["device"], steps=last["step"],
        tokens=tokens, total=last["step"] * tokens / 1e6, loss=last["loss"], seed=report["seed"],
        resumed=", continued from earlier weights" if report["resumed"] else "",
        **{key: evaluation[key] for key in ("num_judged", "num_cases", "sha256", "num_leaks")},
    )  # fmt: skip
    text += "".join(f"| {name} | {100 * share:.1f} % |\n" for name, share in evaluation["bars"].items())
    for split, shares in evaluation["shares"].items():
        worst = min(shares, key=shares.__getitem__)
        text += f"\n### {_ROLES[split].capitalize()}\nMacro {100 * evaluation['macro'][split]:.1f} %, worst: {worst} {100 * shares[worst]:.0f} %.\n\n"
        text += "| ability | right | cases |\n|---|---|---|\n"
        for name, share in shares.items():
            text += f"| {name} | {100 * share:.0f} % | {evaluation['counts'][split][name]} |\n"
    return text + _LIMITS.format(definitions=num_lines("chat_definitions.tsv"), emoji=num_lines("chat_emoji.tsv"))


def main() -> None:
    report_file, folder = Path(sys.argv[1]), Path(sys.argv[2])
    report = json.loads(report_file.read_text(encoding="utf-8"))
    num_parameters = (folder / "model.safetensors").stat().st_size // 2
    (folder / "README.md").write_text(card(report, num_parameters), encoding="utf-8")


if __name__ == "__main__":
    main()
