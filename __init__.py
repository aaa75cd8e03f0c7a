"""Hemiola: one service that generates text, images and video.

    from hemiola import Engine

    with Engine("demo") as engine:
        print(engine.chat("Tell me a short story about a fox.").text)
        engine.image("a red fox in the snow").save("fox.png")

Nothing heavy is imported before a name is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.engine import Engine as Engine
    from .api.front.terms import CallTerms as CallTerms
    from .api.results import Answer as Answer
    from .api.results import Completion as Completion
    from .api.results import ImageResult as ImageResult
    from .api.results import Picture as Picture
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
    "api.engine": ("Engine",),
    "api.front.terms": ("CallTerms",),
    "api.results": ("Answer", "Completion", "ImageResult", "Picture", "ToolCall", "VideoResult"),
    "api.stream": ("Stream",),
    "core.config": ("EngineConfig",),
    "core.errors": ("HemiolaError",),
    "core.events": ("Failed", "Finished", "Image", "Preview", "Progress", "Token", "Video"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [  # noqa: RUF022 - in the order in which one meets them
    "Engine",
    "EngineConfig",
    "CallTerms",
    "Stream",
    "Completion",
    "Answer",
    "ToolCall",
    "ImageResult",
    "Picture",
    "VideoResult",
    "Token",
    "Progress",
    "Preview",
    "Image",
    "Video",
    "Finished",
    "Failed",
    "HemiolaError",
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
