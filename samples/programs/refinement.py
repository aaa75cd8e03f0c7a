"""A refinement loop: write a prompt, draw it, score the picture, tell the model, and try again until it is good enough.

python samples/programs/refinement.py "apple" --colour red --output apple.png
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import hemiola as hm

CHANNELS = {"red": 0, "green": 1, "blue": 2}


@hm.program
async def refine(
    s: hm.State, thing: str, colour: str, enough: float = 0.3, rounds: int = 3, steps: int | None = None
) -> None:
    """The conversation keeps all attempts, so that every round computes only what is new; the best one is kept."""
    ask = f"Write an image prompt for a {colour} {thing}."
    best = -1.0
    for i in range(rounds):
        s += hm.user(ask)
        s += hm.assistant(hm.gen("prompt", max_tokens=40, temperature=0.0 if i == 0 else 1.0, seed=i))
        s += hm.gen_image("picture", s["prompt"], steps=steps, seed=i)
        share = share_of(colour, (await s["picture"]).image)
        if share > best:
            best = share
            s["best_prompt"], s["best_picture"] = s["prompt"], s["picture"]
        if share >= enough:
            return
        ask = f"Only {share:.0%} of the picture was {colour}. Write another image prompt for a {colour} {thing}."


def share_of(colour: str, image: Any) -> float:
    """How much of a picture is clearly of that colour: its channel leads both others by a fifth of the range."""
    pixels = np.asarray(image.convert("RGB"), dtype=np.int16)
    mine = pixels[..., CHANNELS[colour]]
    others = np.delete(pixels, CHANNELS[colour], axis=-1).max(-1)
    return float((mine - others > 51).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("thing", nargs="?", default="apple")
    parser.add_argument("--colour", choices=CHANNELS, default="red")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("refined.png"))
    args = parser.parse_args()
    with hm.Engine("demo") as engine:
        run = refine.on(engine).run(args.thing, args.colour, rounds=args.rounds)
    print(run.text())
    run["best_picture"].save(args.output)
    print(f"{args.output}: {run['best_prompt']}")


if __name__ == "__main__":
    main()
