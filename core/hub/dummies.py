"""Test shapes: models of published sizes that are only config files, served with random weights.

`dummy:llama-8b` and the like stand wherever a model's name may. Each is a folder in `shapes/` with the published
configs of every part; its hemiola.json names the model whose tokenizer it uses and says how many parameters its parts
have, so that memory can be planned without making them. It takes the time and memory of the real one and gives noise.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from ..errors import CorruptWeights, ModelNotFound
from .source import ModelSource, inspect, is_model, read_declaration

PREFIX = "dummy:"


def shapes_folder() -> Path:
    """Where the shapes lie in the installed package."""
    return Path(str(files("hemiola") / "core" / "hub" / "shapes"))


def shape_names() -> tuple[str, ...]:
    """All of them, as they are written in place of a model: `dummy:flux-dev`."""
    return tuple(PREFIX + folder.name for folder in sorted(shapes_folder().iterdir()) if is_model(folder))


def find_shape(target: str) -> ModelSource | None:
    """The shape of that name; None if it is no name of a shape at all.

    Raises:
        ModelNotFound: there is none; lists all.
    """
    if not target.startswith(PREFIX):
        return None
    if target not in shape_names():
        raise ModelNotFound(f"No test shape '{target}'. There are: {', '.join(shape_names())}.")
    source = inspect(shapes_folder() / target.removeprefix(PREFIX), target, "shape")
    return replace(source, load_format="dummy")


def declared_params(folder: Path) -> Mapping[str, int] | None:
    """Parameters per part (`model` for a language model) as hemiola.json in the folder says; None if it does not.

    Raises:
        CorruptWeights: it says something else than numbers.
    """
    declared = read_declaration(folder).get("num_params")
    if declared is None:
        return None
    if not isinstance(declared, dict) or not all(isinstance(count, int) for count in declared.values()):
        raise CorruptWeights(f"{folder / 'hemiola.json'}: num_params has to be numbers by part, not {declared!r}.")
    return declared
