"""Best of n: several drafts of a prompt, a judge for each, and the picture of the one that is liked best.

python samples/programs/best_of_n.py "a lighthouse" --drafts 4 --output best.png
"""

import argparse
from pathlib import Path

import hemiola as hm


@hm.program
def best_of_n(s: hm.State, thing: str, n: int = 4, steps: int | None = None) -> None:
    """The judges share everything up to the drafts and are asked at once."""
    s += hm.user(f"Write an image prompt for {thing}.")
    s += hm.assistant(hm.gen("drafts", n=n, max_tokens=40, temperature=1.0, seed=1))
    judges = s.fork(n)
    for i, judge in enumerate(judges):
        judge.keep("drafts", i)
        judge += hm.user("Is this a good image prompt? Answer yes or no.")
        judge.select("verdict", ["Yes.", "No."])
    best = max(range(n), key=lambda i: approval(judges[i].scores("verdict").value))
    s.keep("drafts", best)
    s += hm.gen_image("picture", s["drafts"][best], steps=steps, seed=1)
    s["prompt"] = s["drafts"][best]


def approval(verdict: hm.Scores) -> float:
    """How much likelier yes is than no, as a log ratio."""
    return verdict["Yes."].mean - verdict["No."].mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("thing", nargs="?", default="a lighthouse")
    parser.add_argument("--drafts", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("best.png"))
    args = parser.parse_args()
    with hm.Engine("demo") as engine:
        run = best_of_n.on(engine).run(args.thing, n=args.drafts)
    for draft, judge in zip(run["drafts"], run.forks, strict=True):
        print(f"{approval(judge.scores('verdict')):+.2f}  {draft}")
    run["picture"].save(args.output)
    print(f"{args.output}: {run['prompt']}")


if __name__ == "__main__":
    main()
