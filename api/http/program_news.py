"""From what becomes of a program's nodes to what a client is told of it."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from hemiola.core.errors import HemiolaError
from hemiola.core.events import Pixels, Usage
from hemiola.diffusion import media

from ..jobs.encode import encode_picture
from ..programs import news
from ..programs.execution import ProgramEvent
from ..programs.graph import Node, NodeFailed, Outcome
from ..programs.run import Run
from ..results import ImageResult, Scores, VideoResult
from .errors import problem_of

KeepPictures = Callable[[Sequence[bytes]], Awaitable[Sequence[str]]]


class NewsWriter:
    """Writes the news of one program.

    Args:
        video_format: how clips are sent.
        keep: keeps pictures and says where they are; None: they are sent themselves.
    """

    def __init__(self, video_format: Literal["mp4", "png"], keep: KeepPictures | None) -> None:
        self._video_format = video_format
        self._keep = keep

    async def of(self, event: ProgramEvent) -> news.News:
        """What an event of a node is told as."""
        node = event.node
        assert node is not None, "Executions say whose an event is."
        match event.kind:
            case "started":
                return news.NodeStarted(node.idx, node.name, node.branch, node.kind)
            case "text":
                return news.NodeText(node.idx, event.text, event.index)
            case "progress":
                return news.NodeProgress(node.idx, event.done, event.total, event.index)
        return await self.end_of(node)

    async def end_of(self, node: Node) -> news.NodeFinished | news.NodeFailed:
        """What a node gave, or why it gave nothing."""
        if node.error is not None:
            return _failed(node, node.error)
        outcome = node.result.result()
        if isinstance(outcome.value, ImageResult):
            return self._finished(node, outcome.value.model, images=await self._pictures(outcome.value))
        if isinstance(outcome.value, VideoResult):
            clip = await asyncio.to_thread(self._clip, outcome.value)
            return self._finished(node, outcome.value.model, video=clip)
        return self._text(node, outcome)

    def _text(self, node: Node, outcome: Outcome) -> news.NodeFinished:
        scores = outcome.scores
        return self._finished(
            node,
            scores.model if scores is not None else node.model or "",
            value=outcome.value,
            text=outcome.text,
            raw=outcome.raw,
            reasoning=outcome.reasoning,
            scores=() if scores is None else _scores(scores),
        )

    def _finished(self, node: Node, model: str, **given: Any) -> news.NodeFinished:
        idx, name, branch, kind = node.idx, node.name, node.branch, node.kind
        return news.NodeFinished(idx, name, branch, kind, model, node.usage, node.request_ids, **given)

    async def _pictures(self, result: ImageResult) -> tuple[news.PictureFile, ...]:
        files = await asyncio.to_thread(lambda: [encode_picture(each.pixels, "png") for each in result.pictures])
        urls = None if self._keep is None else await self._keep(files)
        return tuple(
            news.PictureFile(
                seed=picture.seed,
                width=picture.pixels.width,
                height=picture.pixels.height,
                usage=result.finished[i].usage,
                b64_json=None if urls is not None else base64.b64encode(files[i]).decode(),
                url=None if urls is None else urls[i],
            )
            for i, picture in enumerate(result.pictures)
        )

    def _clip(self, result: VideoResult) -> news.ClipFile:
        is_mp4, pixels = self._video_format == "mp4", result.pixels
        return news.ClipFile(
            seed=result.seed,
            width=pixels.width,
            height=pixels.height,
            fps=result.fps,
            usage=result.finished.usage,
            b64_json=base64.b64encode(media.to_mp4(pixels, result.fps)).decode() if is_mp4 else None,
            frames=() if is_mp4 else tuple(map(_png, _frames(pixels))),
        )


def finished(run: Run) -> news.ProgramFinished:
    """All nodes have ended."""
    usages = [node.usage for node in run.nodes if node.usage is not None]
    names = Usage.__struct_fields__
    return news.ProgramFinished(
        id=run.id,
        status="completed" if all(node.error is None for node in run.nodes) else "incomplete",
        variables=_variables(run),
        usage=Usage(**{name: sum(getattr(usage, name) for usage in usages) for name in names}),
        inference_time_s=round(run.seconds, 3),
    )


def _variables(run: Run) -> dict[str, Any]:
    by_value = {id(node.result.result().value): node.idx for node in run.nodes if node.error is None}

    def plain(value: Any) -> Any:
        if isinstance(value, ImageResult | VideoResult):
            return {"node": by_value[id(value)]}
        return [plain(each) for each in value] if isinstance(value, list) else value

    found = {}
    for name in run.names:
        with suppress(HemiolaError, LookupError, TypeError):  # a node failed, or its value has no such part
            found[name] = plain(run[name])
    return found


def _failed(node: Node, error: BaseException) -> news.NodeFailed:
    """As its cause is told: a failed node is no error of its own."""
    because = next((each.idx for each in node.inputs if each.error is not None), None)
    root = root_of(error)
    problem = problem_of(root)
    told = msgspec.convert(problem.envelope["error"], news.Told)
    idx, name, branch, kind = node.idx, node.name, node.branch, node.kind
    return news.NodeFailed(idx, name, branch, kind, told, problem.status, because, node.request_ids)


def root_of(error: BaseException) -> BaseException:
    """Why a node failed in the first place."""
    while isinstance(error, NodeFailed) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _scores(scores: Scores) -> tuple[news.ChoiceScore, ...]:
    return tuple(news.ChoiceScore(s.choice, s.logprobs, s.tokens, s.unconditional) for s in scores)


def _frames(pixels: Pixels) -> list[Pixels]:
    """Each frame by itself."""
    nbytes = len(pixels.data) // pixels.num_frames
    return [
        msgspec.structs.replace(pixels, data=pixels.data[i * nbytes : (i + 1) * nbytes], num_frames=1)
        for i in range(pixels.num_frames)
    ]


def _png(pixels: Pixels) -> str:
    return base64.b64encode(encode_picture(pixels, "png")).decode()
