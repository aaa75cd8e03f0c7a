"""Words for what no served model can do yet: look at pictures and clips, and change them. Each is refused by its name.

They are here so that a program which needs them says so in words, and hears at that line what there is instead.
"""

from typing import Any, NoReturn

from hemiola.core.errors import InvalidRequest

from .values import Text

_INSTEAD = "Supported: texts as input of gen, select, gen_image and gen_video."


def image(source: Any) -> NoReturn:
    """A picture for the model to look at, as part of `user(...)`: a path, a PIL image, a variable of `gen_image`.

    Raises:
        InvalidRequest: always; no served model sees pictures.
    """
    raise _unsupported("image", f"no served model sees pictures. {_INSTEAD}")


def video(source: Any) -> NoReturn:
    """A clip for the model to look at, as part of `user(...)`: a path, a variable of `gen_video`.

    Raises:
        InvalidRequest: always; no served model sees clips.
    """
    raise _unsupported("video", f"no served model sees clips. {_INSTEAD}")


def edit_image(name: str, image: Any, prompt: Text, *, mask: Any = None, **options: Any) -> NoReturn:
    """A picture changed as the prompt says, everywhere or where the mask is white. Options: see `gen_image`.

    Raises:
        InvalidRequest: always; no served model edits pictures.
    """
    text = f"no served model edits pictures, as '{name}' asks. Supported: gen_image, which makes one from a prompt."
    raise _unsupported("edit_image", text)


def _unsupported(word: str, why: str) -> InvalidRequest:
    return InvalidRequest(word, f"'{word}' is not supported: {why}", "unsupported_parameter")
