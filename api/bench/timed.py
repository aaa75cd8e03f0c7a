"""An engine that notes when events were delivered, and what benchmarks read from that. Times are the engine's clock."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from hemiola.core.errors import InvalidRequest
from hemiola.core.events import Event, Final, Progress, Token
from hemiola.core.tracing import StepRecord

from ..engine import Engine
from ..front.media import MediaFront
from ..front.terms import engine_clock
from ..front.text import TextFront
from ..stream import Stream

LEAST_TOKENS = 3  # of one row: a gap begins where all rows have two tokens
Window = tuple[float, float]
F = TypeVar("F", TextFront, MediaFront)


class TimedEngine(Engine):
    """Fields: per request when its tokens and its denoise steps came, and how often it ended."""

    def __init__(self, *models: str, **options: Any) -> None:
        self.token_times: dict[str, list[float]] = defaultdict(list)
        self.denoise_times: dict[str, list[float]] = defaultdict(list)
        self.num_finals: Counter[str] = Counter()
        super().__init__(*models, **options)

    def _deliver(self, event: Event) -> None:
        if isinstance(event, Token):
            self.token_times[event.request_id].append(engine_clock())
        elif isinstance(event, Progress) and event.phase == "denoise":
            self.denoise_times[event.request_id].append(engine_clock())
        elif isinstance(event, Final):
            self.num_finals[event.request_id] += 1
        super()._deliver(event)

    def text(self) -> TextFront:
        """The one language model that generates.

        Raises:
            InvalidRequest: there is none, or several.
        """
        return _only("text", [each for each in self.fronts.values() if isinstance(each, TextFront)])

    def media(self) -> MediaFront:
        """The one pipeline.

        Raises:
            InvalidRequest: there is none, or several.
        """
        return _only("media", [each for each in self.fronts.values() if isinstance(each, MediaFront)])

    def stream_media(self, prompt: str, front: MediaFront, **options: Any) -> Stream[Any]:
        """Whatever that pipeline makes."""
        start = self.stream_image if front.kind == "image" else self.stream_video
        return start(prompt, model=front.name, **options)


def _only(kind: str, fronts: list[F]) -> F:
    if len(fronts) != 1:
        names = ", ".join(front.name for front in fronts) or "none"
        raise InvalidRequest("model", f"Invalid 'model': one {kind} model is measured; of that kind: {names}.")
    return fronts[0]


@dataclass(frozen=True, slots=True)
class Decoding:
    """What some rows got while all of them were decoding.

    Fields:
        gaps_ms: between tokens of a row, of all rows.
        tokens_per_s: of one row.
        window: while all of them ran.
    """

    gaps_ms: tuple[float, ...]
    tokens_per_s: float
    window: Window


def fresh_prompts(engine: TimedEngine, rows: int, context: int, rng: random.Random) -> list[list[int]]:
    """Random tokens: no two begin alike, so that no prefix is shared."""
    size = engine.text().tokenizer.vocab_size
    return [[rng.randrange(size) for _ in range(context)] for _ in range(rows)]


def prefill(engine: TimedEngine, prompts: Sequence[Sequence[int]]) -> float:
    """Computes the prompts, which then lie in the prefix cache; tokens per second."""
    start = engine_clock()
    streams = _decode_streams(engine, prompts, num_tokens=1)
    for stream in streams:
        stream.result()
    last = max(engine.token_times[stream.request_ids[0]][0] for stream in streams)
    return sum(map(len, prompts)) / (last - start)


def decode(engine: TimedEngine, prompts: Sequence[Sequence[int]], num_tokens: int) -> Decoding:
    """Lets all rows decode side by side; their prompts were computed before (`prefill`): they start together."""
    streams = _decode_streams(engine, prompts, num_tokens)
    for stream in streams:
        stream.result()
    return decoding([engine.token_times[stream.request_ids[0]] for stream in streams])


def decoding(times: Sequence[Sequence[float]]) -> Decoding:
    """From the times of each row's tokens. The window begins when all rows have two tokens and ends with the first."""
    begin, end = max(row[min(1, len(row) - 1)] for row in times), min(row[-1] for row in times)
    inside = [[time for time in row if begin <= time <= end] for row in times]
    gaps = tuple((after - before) * 1e3 for row in inside for before, after in pairwise(row))
    if not gaps:
        asked, why = max(map(len, times)), "too few for all rows to decode at the same time"
        raise InvalidRequest(
            "tokens", f"Invalid 'tokens': {asked}, {why}. The least is {LEAST_TOKENS} of one row, more of several."
        )
    num_tokens = sum(len(row) - 1 for row in inside if row) / len(times)
    return Decoding(gaps, num_tokens / (end - begin), (begin, end))


def _decode_streams(engine: TimedEngine, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Stream[Any]]:
    options: dict[str, Any] = {"max_tokens": num_tokens, "temperature": 0.0, "ignore_eos": True}
    return [engine.stream_complete(ids, model=engine.text().name, **options) for ids in prompts]


def within(records: Iterable[StepRecord], window: Window, model: str) -> list[StepRecord]:
    """A model's steps that were launched in the window."""
    return [record for record in records if record.model == model and window[0] <= record.start_s < window[1]]


def idle_share(records: Iterable[StepRecord], window: Window, model: str) -> float:
    """Share of the window in which none of the model's steps ran."""
    busy_s = sum(record.seconds for record in within(records, window, model))
    return max(0.0, 1 - busy_s / (window[1] - window[0]))


def blocks_per_s(records: Iterable[StepRecord], window: Window, model: str) -> float:
    """How fast a pipeline denoised: finer than whole steps."""
    mine = within(records, window, model)
    return sum(record.work.blocks for record in mine if record.phase == "denoise") / (window[1] - window[0])


def graphs_of(engine: TimedEngine, model: str) -> str:
    """How many graphs there are for a model's steps by now, in words."""
    composition = engine.composition
    if model in composition.languages:
        decode_graphs = composition.languages[model].steps.graphs
        return "no graphs" if decode_graphs is None else f"{decode_graphs.num_graphs} graphs of decode steps"
    blocks = composition.pipelines[model].graphs
    if blocks is None:
        return "no graphs"
    return f"{blocks.num_graphs} graphs of blocks over {blocks.num_slots} slots of {blocks.nbytes / 2**20:,.0f} MiB"


def denoise_gaps_ms(times: Mapping[str, Sequence[float]], request_ids: Iterable[str]) -> list[float]:
    """Between the ends of denoise steps: the first step of each request is left out."""
    return [(after - before) * 1e3 for each in request_ids for before, after in pairwise(times[each])]
