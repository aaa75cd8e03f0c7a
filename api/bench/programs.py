"""Picture books as programs, against the same calls made one after the other.

The text of 16 books is compared with calls that reuse no prefix; whole books, with pictures and clips, with calls on an
engine that does, so that what is left is doing things at once. The same books are also sent to a server, each whole.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from ..client import Client
from ..engine import Engine
from ..programs.batch import BatchItem
from ..programs.expressions import assistant, gen, gen_image, gen_video, system, user
from ..programs.program import program
from ..programs.state import State
from ..results import Completion, Scores
from .http import running_server
from .report import Report, Scenario, cost, in_turn, machine_name, seconds

ANIMALS = "heron fox owl cat dog bear whale duck frog horse lion mouse penguin rabbit snail tiger".split()
MOODS = ["calm", "funny", "sad"]
RULES = "You write very short picture books. " * 6
STORY, SCENE = "Come up with a scene for a picture book about {}.", "Tell me a short story about {}."
PROMPT, MOOD = "Now write an image prompt for this scene.", "What is the mood of this story?"
LONG: dict[str, Any] = {"max_tokens": 60}
SHORT: dict[str, Any] = {"max_tokens": 30, "stop": "\n"}
STEPS, NUM_SCENES, NUM_WHOLE_BOOKS = 4, 3, 2
SERVED_TARGET = 1 / 1.1
"""A server may take a tenth longer."""


@program
def book(s: State, animal: str, has_media: bool) -> None:
    """A story, three scenes and their prompts, a mood; pictures and a clip if wanted."""
    s += system(RULES)
    s += user(STORY.format(animal))
    s += assistant(gen("story", **LONG))
    for i, scene in enumerate(s.fork(NUM_SCENES)):
        scene += user(SCENE.format(animal))
        scene += assistant(gen("scene", temperature=0.8, seed=i, **LONG))
        scene += user(PROMPT)
        scene += assistant(gen("prompt", **SHORT))
        if has_media:
            scene += gen_image("picture", scene["prompt"], steps=STEPS, seed=i)
            if i == 0:
                s += gen_video("clip", scene["prompt"], steps=STEPS, seed=i)
    s += user(MOOD)
    s.select("mood", MOODS)


def by_hand(engine: Engine, animal: str, has_media: bool) -> int:
    """The same, call by call; the prompt tokens that were computed."""
    computed = 0

    def said(answer: Completion | Scores) -> str:
        nonlocal computed
        computed += answer.usage.prompt_tokens - answer.usage.cached_tokens
        return answer.text if isinstance(answer, Completion) else ""

    messages = [_message("system", RULES), _message("user", STORY.format(animal))]
    messages.append(_message("assistant", said(engine.chat(messages, **LONG))))
    for i in range(NUM_SCENES):
        scene = [*messages, _message("user", SCENE.format(animal))]
        scene.append(_message("assistant", said(engine.chat(scene, temperature=0.8, seed=i, **LONG))))
        scene.append(_message("user", PROMPT))
        prompt = said(engine.chat(scene, **SHORT))
        if has_media:
            engine.image(prompt, num_inference_steps=STEPS, seed=i)
            if i == 0:
                engine.video(prompt, num_inference_steps=STEPS, seed=i)
    messages.append(_message("user", MOOD))
    for mood in MOODS:
        said(engine.scores([mood], messages=messages))
    return computed


def run(*, repeats: int, threads: int) -> Report:
    """All of it, `repeats` times, each time about other animals; medians."""
    with (
        Engine("demo", threads=threads) as engine,
        Engine("hemiola-tiny-chat", threads=threads, prefix_cache=False) as plain,
    ):
        _both(engine, plain, ["a warm cat"], False)
        _both(engine, engine, ["a warm dog"], True)
        texts = [_both(engine, plain, _about(i, ANIMALS), False) for i in range(repeats)]
        wholes = [_both(engine, engine, _about(i, ANIMALS[-NUM_WHOLE_BOOKS:]), True) for i in range(repeats)]
    served_s, here_s = _served_and_here(repeats, threads)
    text, whole = (_Taken(*map(statistics.median, zip(*rounds, strict=True))) for rounds in (texts, wholes))
    scenarios: tuple[Scenario, ...] = (
        cost("text of 16 books", text.seconds, "s", text.seconds_by_hand, 3.0),
        cost("  prompt tokens computed", text.computed, "tokens", text.computed_by_hand, 4.0),
        cost("  sent to a server, against here", served_s, "s", here_s, SERVED_TARGET),
        cost(f"{NUM_WHOLE_BOOKS} books with pictures and clips", whole.seconds, "s", whole.seconds_by_hand, 1.15),
        cost("  CPU time of all threads", whole.cpu_s, "s", whole.cpu_by_hand_s, None),
    )
    note = "Where others use the machine, CPU time says more; steps are then cut finer, which costs some of it."
    return Report("programs", machine_name(), "float32", threads, scenarios, (note,))


def _served_and_here(repeats: int, threads: int) -> tuple[float, float]:
    """Seconds of the text of all books: sent to a server, one request a book, and on an engine in this process.

    All of the server shares the machine.
    """
    rooms = {"served": count(), "here": count()}
    with (
        Engine("hemiola-tiny-chat", threads=threads) as engine,
        running_server(["hemiola-tiny-chat"], threads) as url,
        Client(url) as client,
    ):
        programs = {"served": book.on(client, remote=True), "here": book.on(engine)}

        def timed(where: str) -> float:
            items = [{"animal": each, "has_media": False} for each in _about(next(rooms[where]), ANIMALS)]
            return seconds(lambda: _raise_for_errors(programs[where].run_batch(items)))

        served_s, here_s = in_turn([lambda: timed("served"), lambda: timed("here")], repeats)
    return served_s, here_s


def _raise_for_errors(items: Sequence[BatchItem]) -> None:
    for item in items:
        if item.run is None or item.error is not None:
            raise item.error or AssertionError("An item without an error has a run.")


class _Taken(NamedTuple):
    """What books took, as programs and by hand. CPU time is the user's and the system's, of the process."""

    seconds: float
    seconds_by_hand: float
    cpu_s: float
    cpu_by_hand_s: float
    computed: float
    computed_by_hand: float


def _both(engine: Engine, other: Engine, animals: Sequence[str], has_media: bool) -> _Taken:
    """The books as programs, then by hand about other animals, of as many."""
    computed = computed_hand = 0

    def programs() -> None:
        nonlocal computed
        items = book.on(engine).run_batch([{"animal": each, "has_media": has_media} for each in animals])
        _raise_for_errors(items)
        computed += sum(item.run.trace().computed_prompt_tokens for item in items if item.run is not None)

    def hand() -> None:
        nonlocal computed_hand
        for each in animals:
            computed_hand += by_hand(other, f"{each} again", has_media)

    begun_s = time.process_time()
    as_programs_s = seconds(programs)
    between_s = time.process_time()
    by_hand_s = seconds(hand)
    cpu_s, cpu_by_hand_s = between_s - begun_s, time.process_time() - between_s
    return _Taken(as_programs_s, by_hand_s, cpu_s, cpu_by_hand_s, computed, computed_hand)


def _about(round_idx: int, animals: Sequence[str]) -> list[str]:
    """No round finds what another left in the cache."""
    return [f"a {animal} in room {round_idx + 1}" for animal in animals]


def _message(role: str, content: str) -> Mapping[str, str]:
    return {"role": role, "content": content}
