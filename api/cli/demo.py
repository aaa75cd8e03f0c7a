"""`hemiola demo`: one mixed pipeline. Text streams while the pictures and the clip that it asked for are being made.

The language model writes prompts; each picture starts as soon as its prompt is there, and the model goes on writing.
Everything runs on one engine, and at the end the steps are drawn as they interleaved.
"""

import argparse
import asyncio
import itertools
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hemiola.core.events import Progress, Token
from hemiola.core.timeline import draw
from hemiola.core.tracing import StepRecord, num_switches, totals

from ..front.terms import CallTerms
from ..rehearsal import Rehearsal
from .numbers import whole
from .options import add_engine_options, check_makes, engine_config, open_engine
from .progress import new_bars

SCENE = "Come up with a scene for a picture book about a {}."
IMAGE_PROMPT = "Now write an image prompt for this scene."
VIDEO_PROMPT = "Write a video prompt for it."
STORY = "Tell me a short story about a {}."
SCENES = ("fox", "rocket", "duck")
STORIES = ("cat", "robot", "dragon", "frog", "horse", "owl", "bear", "rabbit", "ghost", "snail")


EXAMPLES = {"text": "hemiola-tiny-chat", "image": "hemiola-tiny-image", "video": "hemiola-tiny-video"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", "-o", type=Path, default=Path("out"), metavar="FOLDER")
    parser.add_argument("--seed", type=whole(), default=1)
    add_engine_options(parser, model_help="models instead of the built-in ones: one of each kind")


@dataclass
class Screen:
    """What is shown while it runs: the text so far, and a bar per picture and clip. `lines` go to plain outputs."""

    console: Console
    text: Text = field(default_factory=Text)
    bars: Any = field(default_factory=new_bars)

    def render(self) -> Group:
        """The last lines of the text, so that all of it stays on the screen."""
        room = max(self.console.height - len(self.bars.tasks) - 4, 4)
        lines = self.text.wrap(self.console, self.console.width - 4)[-room:]
        return Group(Panel(Text("\n").join(lines), title="the language model writes", title_align="left"), self.bars)

    def write(self, piece: str, style: str = "") -> None:
        self.text.append(piece, style)
        if not self.console.is_terminal:
            sys.stdout.write(piece)
            sys.stdout.flush()


def run(options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    with Rehearsal(options.model or ["demo"], engine_config(options)) as rehearsal:
        for kind, example in EXAMPLES.items():
            check_makes(rehearsal, kind, example)
    options.output.mkdir(parents=True, exist_ok=True)
    console.print("Loading the models ...", style="dim")
    with open_engine(options, "demo") as engine:
        screen = Screen(console)
        if console.is_terminal:
            with Live(screen.render(), console=console, refresh_per_second=12, get_renderable=screen.render):
                files = asyncio.run(_pipeline(engine, screen, options))
        else:
            files = asyncio.run(_pipeline(engine, screen, options))
        records = engine.trace.records
        labels = dict(files.labels)
    timeline = options.output / "timeline.png"
    draw(records, timeline, title="Token steps and denoising steps on one device", labels=labels)
    _summarise(console, records, [*files.paths, timeline])
    return 0


@dataclass
class Files:
    """What was written, and a name for each request in the drawing."""

    paths: list[Path] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)


async def _pipeline(engine: Any, screen: Screen, options: argparse.Namespace) -> Files:
    """Three scenes are written, each drawn as soon as its prompt is there; stories go on until all is made."""
    files = Files()
    media: list[asyncio.Future[None]] = []

    def make(stream: Any, name: str, file: str) -> None:
        media.append(asyncio.ensure_future(_make(stream, screen, files, name, options.output / file)))

    for number, subject in enumerate(SCENES, start=1):
        messages: list[dict[str, str]] = []
        await _write(engine, screen, files, messages, SCENE.format(subject))
        prompt = await _write(engine, screen, files, messages, IMAGE_PROMPT)
        make(engine.stream_image(prompt, seed=options.seed + number), f"picture {number}", f"picture-{number}.png")
        if number == 1:
            prompt = await _write(engine, screen, files, messages, VIDEO_PROMPT)
            make(engine.stream_video(prompt, seed=options.seed), "clip", "clip.mp4")
    for subject in itertools.cycle(STORIES):
        if all(each.done() for each in media):
            break
        await _write(engine, screen, files, [], STORY.format(subject))
    await asyncio.gather(*media)
    return files


async def _write(engine: Any, screen: Screen, files: Files, messages: list[dict[str, str]], ask: str) -> str:
    """Asks the language model, shows its answer as it comes, and adds both to the conversation; the answer's text."""
    screen.write(f"{ask}\n", "dim")
    messages.append({"role": "user", "content": ask})
    terms = CallTerms(service_class="standard")  # as much of the device as a picture gets
    stream = engine.stream_chat(messages, max_tokens=160, temperature=0.8, terms=terms)
    files.labels[stream.request_ids[0]] = "chat"
    async for event in stream:
        if isinstance(event, Token):
            screen.write(event.text, "bold")
    screen.write("\n\n")
    answer: str = (await stream.aresult()).text
    messages.append({"role": "assistant", "content": answer})
    return answer.strip()


async def _make(stream: Any, screen: Screen, files: Files, name: str, path: Path) -> None:
    """Shows the progress of a picture or clip and saves it."""
    files.labels[stream.request_ids[0]] = name
    bar = screen.bars.add_task(f"{name}: waiting", total=None)
    async for event in stream:
        if isinstance(event, Progress):
            screen.bars.update(bar, description=f"{name}: {event.phase}", completed=event.done, total=event.total)
    files.paths.append((await stream.aresult()).save(path))
    screen.bars.update(bar, description=f"{name}: done")


def _summarise(console: Console, records: tuple[StepRecord, ...], paths: list[Path]) -> None:
    table = Table("model", "phase", "steps", "seconds", title="steps on one device")
    for total in totals(records):
        table.add_row(total.model, total.phase, str(total.num_steps), f"{total.seconds:.2f}")
    console.print(table)
    console.print(f"The device changed between models {num_switches(records)} times in {len(records)} steps.")
    for path in sorted(paths):
        console.print(f"  {path}")
