"""A storyboard: shots that are written, sketched and filmed at once, then cut into one clip.

python samples/programs/storyboard.py "a fox" --shots 3 --output out/storyboard
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import hemiola as hm


@hm.program
def storyboard(s: hm.State, hero: str, num_shots: int = 3, frames: int | None = None, steps: int | None = None) -> None:
    """The sketch of a shot says early what it will be; sketches and clips of all shots share the device."""
    s += hm.system("You write very short picture books.")
    shots = s.fork(num_shots)
    for i, shot in enumerate(shots):
        shot += hm.user(f"Come up with a scene for a picture book about {hero}.")
        shot += hm.assistant(hm.gen("scene", max_tokens=60, temperature=0.8, seed=i))
        shot += hm.user("Now write a video prompt for this scene.")
        shot += hm.assistant(hm.gen("prompt", max_tokens=30, stop="\n"))
        shot += hm.gen_image("sketch", shot["prompt"], steps=steps, seed=i)
        shot += hm.gen_video("clip", shot["prompt"], frames=frames, steps=steps, seed=i)
    shots.join()


def cut_together(clips: Sequence[hm.VideoResult]) -> hm.VideoResult:
    """One after the other; they are of one size, and so many frames per second."""
    first = clips[0]
    data = b"".join(clip.pixels.data for clip in clips)
    num_frames = sum(clip.pixels.num_frames for clip in clips)
    pixels = type(first.pixels)(data, num_frames, first.pixels.height, first.pixels.width)
    return hm.VideoResult(first.model, pixels, first.fps, first.seed, first.finished)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hero", nargs="?", default="a fox")
    parser.add_argument("--shots", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("out/storyboard"))
    args = parser.parse_args()
    with hm.Engine("demo") as engine:
        run = storyboard.on(engine).run(args.hero, args.shots).raise_for_errors()
    run.export(args.output, title=f"A storyboard about {args.hero}")
    film = cut_together(run["clip"]).save(args.output / "film.mp4")
    print(f"{film}, and {args.output / 'index.html'} to look at ({run.seconds:.1f} s)")


if __name__ == "__main__":
    main()
