"""A program that makes and deletes clips in a data folder until it is killed: `python crashing_maker.py FOLDER`.

Says on its output what it was promised: `+ID` when a clip was accepted, `=ID` when one was complete, `?ID` before one
is deleted and `-ID` after.
"""

import asyncio
import itertools
import sys
import tempfile
from pathlib import Path

from hemiola.api.jobs import JobLimits, Media, VideoAsk, open_media
from hemiola.tests.api.http.media_rig import Painter, open_calls


def ask(seed: int, num_frames: int = 9) -> VideoAsk:
    return VideoAsk(
        model="film", prompt="fox", width=48, height=32, num_frames=num_frames, fps=8, num_inference_steps=4,
        guidance_scale=4.0, seed=seed,
    )  # fmt: skip


async def make(media: Media) -> None:
    for seed in itertools.count():
        job = await media.videos.create(ask(seed), seconds="1")
        say(f"+{job.id}")
        while seed % 2 and (await media.videos.get(job.id)).is_unfinished:
            await asyncio.sleep(0.005)
        if seed % 2:
            say(f"={job.id}")
        if seed % 4 == 3:
            say(f"?{job.id}")
            await media.videos.delete(job.id)
            say(f"-{job.id}")


def say(line: str) -> None:
    print(line, flush=True)


async def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as models:
        calls = open_calls(Path(models), Painter())
        async with open_media(calls, folder, JobLimits()) as media:
            say("ready")
            await make(media)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
