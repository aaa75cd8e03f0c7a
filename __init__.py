"""Hemiola: one service that generates text, images and video.

    from hemiola import Engine

    with Engine("demo") as engine:
        print(engine.chat("Tell me a short story about a fox.").text)
        engine.image("a red fox in the snow").save("fox.png")

Nothing heavy is imported before a name is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.client.client import Client as Client
    from .api.engine import Engine as Engine
    from .api.front.terms import CallTerms as CallTerms
    from .api.programs.batch import Batch as Batch
    from .api.programs.batch import BatchItem as BatchItem
    from .api.programs.binding import using as using
    from .api.programs.execution import ProgramEvent as ProgramEvent
    from .api.programs.expressions import Gen as Gen
    from .api.programs.expressions import assistant as assistant
    from .api.programs.expressions import gen as gen
    from .api.programs.expressions import gen_float as gen_float
    from .api.programs.expressions import gen_image as gen_image
    from .api.programs.expressions import gen_int as gen_int
    from .api.programs.expressions import gen_json as gen_json
    from .api.programs.expressions import gen_video as gen_video
    from .api.programs.expressions import select as select
    from .api.programs.expressions import system as system
    from .api.programs.expressions import user as user
    from .api.programs.graph import NodeFailed as NodeFailed
    from .api.programs.program import Program as Program
    from .api.programs.program import program as program
    from .api.programs.run import Run as Run
    from .api.programs.seeing import edit_image as edit_image
    from .api.programs.seeing import image as image
    from .api.programs.seeing import video as video
    from .api.programs.state import Forks as Forks
    from .api.programs.state import State as State
    from .api.programs.tools import Tool as Tool
    from .api.programs.tools import tool as tool
    from .api.programs.trace import Trace as Trace
    from .api.programs.values import Variable as Variable
    from .api.results import Answer as Answer
    from .api.results import Completion as Completion
    from .api.results import ImageResult as ImageResult
    from .api.results import Picture as Picture
    from .api.results import Score as Score
    from .api.results import Scores as Scores
    from .api.results import ToolCall as ToolCall
    from .api.results import VideoResult as VideoResult
    from .api.stream import Stream as Stream
    from .core.config import EngineConfig as EngineConfig
    from .core.errors import HemiolaError as HemiolaError
    from .core.events import Failed as Failed
    from .core.events import Finished as Finished
    from .core.events import Image as Image
    from .core.events import Preview as Preview
    from .core.events import Progress as Progress
    from .core.events import Token as Token
    from .core.events import Video as Video

_HOMES = {
    "api.client.client": ("Client",),
    "api.engine": ("Engine",),
    "api.front.terms": ("CallTerms",),
    "api.programs.batch": ("Batch", "BatchItem"),
    "api.programs.binding": ("using",),
    "api.programs.execution": ("ProgramEvent",),
    "api.programs.expressions": (
        "Gen",
        "assistant",
        "gen",
        "gen_float",
        "gen_image",
        "gen_int",
        "gen_json",
        "gen_video",
        "select",
        "system",
        "user",
    ),
    "api.programs.graph": ("NodeFailed",),
    "api.programs.program": ("Program", "program"),
    "api.programs.run": ("Run",),
    "api.programs.seeing": ("edit_image", "image", "video"),
    "api.programs.state": ("Forks", "State"),
    "api.programs.tools": ("Tool", "tool"),
    "api.programs.trace": ("Trace",),
    "api.programs.values": ("Variable",),
    "api.results": ("Answer", "Completion", "ImageResult", "Picture", "Score", "Scores", "ToolCall", "VideoResult"),
    "api.stream": ("Stream",),
    "core.config": ("EngineConfig",),
    "core.errors": ("HemiolaError",),
    "core.events": ("Failed", "Finished", "Image", "Preview", "Progress", "Token", "Video"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [  # noqa: RUF022 - in the order in which one meets them
    "Engine",
    "Client",
    "EngineConfig",
    "CallTerms",
    "Stream",
    "Completion",
    "Answer",
    "ToolCall",
    "ImageResult",
    "Picture",
    "VideoResult",
    "Scores",
    "Score",
    "Token",
    "Progress",
    "Preview",
    "Image",
    "Video",
    "Finished",
    "Failed",
    "HemiolaError",
    "program",
    "using",
    "system",
    "user",
    "assistant",
    "gen",
    "gen_int",
    "gen_float",
    "gen_json",
    "gen_image",
    "gen_video",
    "edit_image",
    "image",
    "video",
    "select",
    "tool",
    "Program",
    "State",
    "Forks",
    "Variable",
    "Gen",
    "Tool",
    "Run",
    "Batch",
    "BatchItem",
    "Trace",
    "ProgramEvent",
    "NodeFailed",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'hemiola' has no attribute '{name}'")
    from importlib import import_module

    from .core.config import wait_passively

    wait_passively()  # before torch is imported
    return getattr(import_module(f"hemiola.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
