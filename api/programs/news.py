"""What a server says of a program that it runs: typed JSON, written by the server and read by the client alike."""

from typing import Any

from msgspec import Struct

from hemiola.core.events import Usage


class NodeStarted(Struct, frozen=True, tag="node.started"):
    """It is asked for now; or again, because its answer did not fit: texts before that do not count.

    `node` counts as the program's graph does.
    """

    node: int
    name: str
    branch: str
    kind: str


class NodeText(Struct, frozen=True, tag="node.text"):
    """`text` is added to its answer `index`."""

    node: int
    text: str
    index: int = 0


class NodeProgress(Struct, frozen=True, tag="node.progress"):
    """`done` of `total` steps of its picture or clip `index`."""

    node: int
    done: int
    total: int
    index: int = 0


class ChoiceScore(Struct, frozen=True, omit_defaults=True):
    """What the model thinks of one choice. Fields: see `results.Score`."""

    choice: str
    logprobs: tuple[float, ...]
    tokens: tuple[int | str, ...] = ()
    unconditional: tuple[float, ...] = ()


class PictureFile(Struct, frozen=True, omit_defaults=True):
    """A PNG: its bytes, or where it is."""

    seed: int
    width: int
    height: int
    usage: Usage
    b64_json: str | None = None
    url: str | None = None


class ClipFile(Struct, frozen=True, omit_defaults=True):
    """A clip: an MP4, or a PNG for each frame, which loses nothing."""

    seed: int
    width: int
    height: int
    fps: int
    usage: Usage
    b64_json: str | None = None
    frames: tuple[str, ...] = ()


class NodeFinished(Struct, frozen=True, tag="node.finished"):
    """What it gave.

    Fields:
        value: of text, what was read of it: a text, number, JSON value, the chosen text, an array of several answers.
        text: what it adds to its turn, as a reader sees it; null where one of several is still to be chosen.
        raw: the same with reasoning as it was generated.
        scores: of a select's choices.
        images, video: of pictures and clips.
        request_ids: of the engine.
    """

    node: int
    name: str
    branch: str
    kind: str
    model: str
    usage: Usage | None
    request_ids: tuple[str, ...] = ()
    value: Any = None
    text: str | None = ""
    raw: str = ""
    reasoning: str | None = None
    scores: tuple[ChoiceScore, ...] = ()
    images: tuple[PictureFile, ...] = ()
    video: ClipFile | None = None


class Told(Struct, frozen=True):
    """An error, as the API has it."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class NodeFailed(Struct, frozen=True, tag="node.failed"):
    """Why it gave nothing. `because` is the node that it needed and that failed, if that is why."""

    node: int
    name: str
    branch: str
    kind: str
    error: Told
    status: int
    because: int | None = None
    request_ids: tuple[str, ...] = ()


class ProgramStarted(Struct, frozen=True, tag="program.started"):
    """It was found right, and begins."""

    id: str
    num_nodes: int


class ProgramFinished(Struct, frozen=True, tag="program.finished"):
    """All nodes have ended.

    Fields:
        status: "completed", or "incomplete" if a node failed.
        variables: of the program itself, by name, lists of forks that were joined too. Pictures and clips are
            `{"node": i}`; what failed is left out.
        usage: of all nodes.
    """

    id: str
    status: str
    variables: dict[str, Any]
    usage: Usage
    inference_time_s: float


News = NodeStarted | NodeText | NodeProgress | NodeFinished | NodeFailed | ProgramStarted | ProgramFinished
