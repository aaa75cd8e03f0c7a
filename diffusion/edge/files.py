"""A pipeline folder as diffusers lays it out, read without loading a weight. No torch.

`hemiola.json` beside model_index.json says what diffusers has no place for:

    {"text_encoder": {"shares": "<served model or relative path>", "hidden_state": -2},
     "defaults": {"width": 128, "height": 128, "num_inference_steps": 16, "guidance_scale": 3.0}}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hemiola.core.errors import CorruptWeights, ModelNotFound, UnsupportedModel

_CONFIG_NAMES = ("config.json", "scheduler_config.json")


@dataclass(frozen=True, slots=True)
class SharedEncoder:
    """A text encoder that is a language model of its own: its name or path, and which hidden state is taken."""

    model: str
    hidden_state: int


@dataclass(frozen=True)
class PipelineFiles:
    """Fields: the folder; the parsed model_index.json; the parsed hemiola.json (empty without one)."""

    folder: Path
    index: Mapping[str, Any] = field(repr=False)
    extras: Mapping[str, Any] = field(repr=False)

    @property
    def pipeline_class(self) -> str:
        return str(self.index.get("_class_name"))

    @property
    def shared_encoder(self) -> SharedEncoder | None:
        declared = self.extras.get("text_encoder")
        if declared is None:
            return None
        if "shares" not in declared:
            raise UnsupportedModel(f"{self.folder / 'hemiola.json'}: 'text_encoder' says nothing of what it 'shares'.")
        return SharedEncoder(str(declared["shares"]), int(declared.get("hidden_state", -2)))

    def component(self, name: str) -> Path:
        """The folder of a component.

        Raises:
            ModelNotFound: there is none.
        """
        folder = self.folder / name
        if not folder.is_dir():
            raise ModelNotFound(f"The pipeline in {self.folder} has no '{name}': looked for {folder}.")
        return folder

    def config(self, name: str) -> Mapping[str, Any]:
        """The parsed configuration of a component."""
        folder = self.component(name)
        for file_name in _CONFIG_NAMES:
            if (folder / file_name).is_file():
                return read_json(folder / file_name)
        raise ModelNotFound(f"No configuration of '{name}': looked for {' or '.join(_CONFIG_NAMES)} in {folder}.")

    def is_set(self, name: str) -> bool:
        """Whether model_index.json names such a component or option, and not as null."""
        value = self.index.get(name)
        return value not in (None, False) and value != [None, None]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        CorruptWeights: the file is no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptWeights(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise CorruptWeights(f"{path} holds no JSON object.")
    return content


def read_pipeline(folder: str | Path) -> PipelineFiles:
    """The files of a pipeline.

    Raises:
        ModelNotFound: no pipeline lies there.
    """
    folder = Path(folder)
    index = folder / "model_index.json"
    if not index.is_file():
        raise ModelNotFound(f"No diffusion pipeline in {folder}: looked for {index}.")
    extras = folder / "hemiola.json"
    return PipelineFiles(folder, read_json(index), read_json(extras) if extras.is_file() else {})
