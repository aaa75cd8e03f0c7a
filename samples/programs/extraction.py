"""Structured extraction: every line of a file becomes a checked record, many lines at a time.

A file of results is kept beside the output: run it again, and only what is new, changed or failed is asked for.

python samples/programs/extraction.py samples/programs/people.txt
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import hemiola as hm

PEOPLE = Path(__file__).with_name("people.txt")


@dataclass
class Person:
    name: str
    age: int
    city: str


@hm.program
def extract(s: hm.State, text: str) -> None:
    """What does not fit a Person fails this line alone, and says why."""
    s += hm.user(f"Extract name, age, city from this text as JSON: {text}")
    s += hm.assistant(hm.gen_json("person", into=Person, max_tokens=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=PEOPLE)
    parser.add_argument("--output", type=Path, default=Path("out/people.jsonl"))
    args = parser.parse_args()
    lines = args.file.read_text(encoding="utf-8").splitlines()
    with hm.Engine("demo") as engine:
        batch = extract.on(engine).run_batch(
            [{"text": line} for line in lines],
            max_concurrency=32,
            progress=True,
            results=args.output.with_suffix(".results.jsonl"),
        )
    for item in batch:
        print(item.error if item.error is not None else item["person"])
    print(f"{len(batch) - len(batch.errors)} of {len(batch)} lines, in {batch.to_jsonl(args.output)}")


if __name__ == "__main__":
    main()
