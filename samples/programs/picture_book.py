"""A picture book: a story, three scenes that are written and drawn at once, a mood, and a clip at the end.

The folder gets pictures, the clip, JSON, a drawing of what ran when, and a page with all of it.

python samples/programs/picture_book.py "a fox" --output out/book
"""

import argparse
from pathlib import Path

import hemiola as hm


@hm.program
def picture_book(s: hm.State, animal: str, num_scenes: int = 3, steps: int | None = None) -> None:
    """The pictures of early scenes are drawn while later ones are written; nothing here waits."""
    s += hm.user(f"Come up with a scene for a picture book about {animal}.")
    s += hm.assistant(hm.gen("story", max_tokens=120))
    scenes = s.fork(num_scenes)
    for i, scene in enumerate(scenes):
        scene += hm.user(f"Tell me a short story about {animal}.")
        scene += hm.assistant(hm.gen("scene", max_tokens=60, temperature=0.8, seed=i))
        scene += hm.user("Now write an image prompt for this scene.")
        scene += hm.assistant(hm.gen("prompt", max_tokens=30, stop="\n"))
        scene += hm.gen_image("picture", prompt=scene["prompt"], steps=steps, seed=i)
    scenes.join()
    s += hm.user("Now write a video prompt for this scene.")
    s += hm.assistant(hm.gen("motion", max_tokens=30, stop="\n"))
    s += hm.gen_video("clip", prompt=s["motion"], frames=17, steps=steps, seed=1)
    s += hm.user("What is the mood of this story?")
    s.select("mood", ["calm", "funny", "sad"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("animal", nargs="?", default="a fox")
    parser.add_argument("--output", type=Path, default=Path("out/book"))
    args = parser.parse_args()
    with hm.Engine("demo") as engine:
        book = picture_book.on(engine).run(args.animal)
    book.export(args.output, title=f"A picture book about {args.animal}")
    print(f"{book['story']}\nMood: {book['mood']}\n{args.output / 'index.html'} ({book.seconds:.1f} s)")


if __name__ == "__main__":
    main()
