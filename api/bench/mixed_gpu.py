"""Decoding beside denoising on one device: the time between tokens, what each keeps of its speed, and shares of SMs.

Text alone and pictures alone are measured in the same run. Sums of what both keep above 1 are what sharing wins over
taking turns.
"""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from hemiola.core.config import MEDIA_SM_SHARE
from hemiola.core.errors import HemiolaError, InvalidRequest
from hemiola.core.tracing import StepRecord

from ..front.media import MAX_STEPS
from ..front.terms import engine_clock
from ..stream import Stream
from .asked import PROMPT, asked_of, check_media, check_models, check_prompts, check_rows
from .report import Report, Scenario, cost, machine_name, percentile, rate
from .timed import LEAST_TOKENS, Decoding, TimedEngine, Window, blocks_per_s, decode, fresh_prompts, prefill, within

# On a GPU, per number of rows: how many times as long the p99 between tokens may become, and the sum of speeds.
TARGETS = {16: (1.6, 1.10), 64: (1.75, 1.03)}
NO_SHARES = "a CPU has no SMs to share: text and images take turns"
_ALONE_STEPS = 6
_MANY_STEPS = MAX_STEPS
_AFTER_TEXT_STEPS = 2


def run(
    *,
    repeats: int,
    threads: int,
    models: Sequence[str] = ("dummy:llama-8b", "dummy:flux-dev"),
    rows: Sequence[int] = (16, 64),
    context: int = 2048,
    tokens: int = 128,
    size: str | None = None,
    share: float = MEDIA_SM_SHARE,
) -> Report:
    """For each number of rows: text alone, pictures alone, both; all gaps of all rounds go into one distribution."""
    with asked_of(models) as calls:
        check_models(calls, models, texts=1, media=1)
        check_prompts(calls, context, tokens, least_tokens=LEAST_TOKENS)
        check_media(calls, size, _ALONE_STEPS)
    rng = random.Random(0)
    scenarios: list[Scenario] = []
    notes: list[str] = []
    with TimedEngine(*models, threads=threads, media_sm_share=share) as engine:
        config = engine.loads.config
        check_rows(engine, engine.text().name, rows, context + tokens)
        alone = _denoise_alone(engine, size)
        for num_rows in rows:
            rounds = [_round(engine, num_rows, context, tokens, size, rng) for _ in range(repeats)]
            solo, both = (_joined(side) for side in zip(*((each.solo, each.both) for each in rounds), strict=True))
            images = mean(each.blocks_per_s for each in rounds) / alone
            text = both.tokens_per_s / solo.tokens_per_s
            slower, total = TARGETS.get(num_rows, (None, None)) if config.is_gpu else (None, None)
            shape = f"{num_rows} rows x {context}"
            solo_p99 = percentile(solo.gaps_ms, 0.99)
            first_ms, solo_first_ms = (median(side) for side in zip(*(each.first_ms for each in rounds), strict=True))
            scenarios += [
                cost(f"a fresh prompt's first token beside images, {context}", first_ms, "ms", solo_first_ms, None),
                cost(
                    f"between tokens, p50 beside images, {shape}",
                    percentile(both.gaps_ms, 0.5),
                    "ms",
                    percentile(solo.gaps_ms, 0.5),
                    None,
                ),
                cost(
                    f"between tokens, p99 beside images, {shape}",
                    percentile(both.gaps_ms, 0.99),
                    "ms",
                    solo_p99,
                    None if slower is None else 1 / slower,
                ),
                rate(f"  text keeps of its speed, {shape}", text, "", 1.0, None),
                rate(f"  images keep of their speed, {shape}", images, "", 1.0, None),
                rate(f"  sum of both, {shape}", text + images, "", 1.0, total),
            ]
            if config.is_gpu:
                notes += [f"{shape}: {line}" for line in rounds[-1].timeline]
    notes.append(f"images beside text on {share:.2f} of the SMs" if config.is_gpu else NO_SHARES)
    notes.append(f"images alone: {alone:,.1f} blocks/s")
    return Report("mixed-gpu", machine_name(), config.dtype, threads, tuple(scenarios), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Round:
    """Fields:
    solo, both: decoding alone, and beside a picture.
    blocks_per_s: of the picture, meanwhile.
    first_ms: until the first token of one fresh prompt, beside the picture and alone.
    timeline: when shares of the SMs changed.
    """

    solo: Decoding
    both: Decoding
    blocks_per_s: float
    first_ms: tuple[float, float]
    timeline: list[str]


def _joined(rounds: Sequence[Decoding]) -> Decoding:
    """All rounds' gaps, and their mean speed."""
    gaps = tuple(gap for each in rounds for gap in each.gaps_ms)
    return Decoding(gaps, mean(each.tokens_per_s for each in rounds), rounds[-1].window)


def _round(engine: TimedEngine, rows: int, context: int, tokens: int, size: str | None, rng: random.Random) -> _Round:
    """Text alone, then beside a picture."""
    first_alone_ms = _first_ms(engine, context, rng)
    prompts = fresh_prompts(engine, rows, context, rng)
    prefill(engine, prompts)
    solo = decode(engine, prompts, tokens)
    picture = _start_picture(engine, size, _MANY_STEPS)
    _wait_for_steps(engine, picture, 2)
    first_ms = _first_ms(engine, context, rng)
    both = decode(engine, prompts, tokens)
    after = len(engine.denoise_times[picture.request_ids[0]])
    _wait_for_steps(engine, picture, after + _AFTER_TEXT_STEPS)
    picture.cancel()
    while not picture.is_done:
        time.sleep(0.001)
    name = engine.media().name
    timeline = share_timeline(engine.trace, name, engine.text().name, (both.window[0], engine_clock()))
    return _Round(solo, both, blocks_per_s(engine.trace, both.window, name), (first_ms, first_alone_ms), timeline)


def _first_ms(engine: TimedEngine, context: int, rng: random.Random) -> float:
    return context / prefill(engine, fresh_prompts(engine, 1, context, rng)) * 1e3


def _denoise_alone(engine: TimedEngine, size: str | None) -> float:
    """Blocks per second after the first step."""
    picture = _start_picture(engine, size, _ALONE_STEPS + 1)
    picture.result()
    times = engine.denoise_times[picture.request_ids[0]]
    return blocks_per_s(engine.trace, (times[0], times[-1]), engine.media().name)


def _start_picture(engine: TimedEngine, size: str | None, steps: int) -> Stream[Any]:
    return engine.stream_media(PROMPT, engine.media(), size=size, num_inference_steps=steps, seed=1)


def _wait_for_steps(engine: TimedEngine, picture: Stream[Any], count: int) -> None:
    """Until the picture has so many denoise steps behind it.

    Raises:
        HemiolaError: it has failed, or ended before.
    """
    (request_id,) = picture.request_ids
    while len(engine.denoise_times[request_id]) < count:
        if picture.is_done:
            raise _ended_early(picture)
        time.sleep(0.001)


def _ended_early(picture: Stream[Any]) -> HemiolaError:
    """What the picture failed of; or there was none beside all of the text, so that nothing of it is measured."""
    try:
        picture.result()
    except HemiolaError as error:
        return error
    text = (
        f"Invalid 'tokens': the picture of {_MANY_STEPS} steps ended before the text. Ask for fewer, or a larger size."
    )
    return InvalidRequest("tokens", text)


def share_timeline(records: Iterable[StepRecord], media: str, text: str, window: Window) -> list[str]:
    """When the media's share of the SMs changed, and whether text was then at work."""
    records = list(records)
    last_text_s = max((record.end_s for record in records if record.model == text), default=window[0])
    lines, before = [], None
    for record in within(records, window, media):
        if record.sm_share != before:
            state = "text at work" if record.start_s < last_text_s else "text idle"
            lines.append(
                f"{(record.start_s - window[0]) * 1e3:+9.1f} ms: images on {record.sm_share:.2f} of the SMs ({state})"
            )
            before = record.sm_share
    return lines
