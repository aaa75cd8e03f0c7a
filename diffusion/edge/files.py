"""A pipeline folder as diffusers lays it out, read without loading a weight. No torch.

`hemiola.json` beside model_index.json says what diffusers has no place for:

    {"text_encoder": {"shares": "<served model or relative path>", "hidden_state": -2},
     "defaults": {"width": 128, "height": 128, "num_inference_steps": 16, "guidance_scale": 3.0}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hemiola.core.errors import ModelNotFound
from hemiola.core.hub.source import SharedEncoder, declared_encoder, read_declaration, read_json

_CONFIG_NAMES = ("config.json", "scheduler_config.json")


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
        return declared_encoder(self.folder, self.extras)

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


def read_pipeline(folder: str | Path) -> PipelineFiles:
    """The files of a pipeline.

    Raises:
        ModelNotFound: no pipeline lies there.
        CorruptWeights: model_index.json or hemiola.json holds no JSON object.
    """
    folder = Path(folder)
    index = folder / "model_index.json"
    if not index.is_file():
        raise ModelNotFound(f"No diffusion pipeline in {folder}: looked for {index}.")
    return PipelineFiles(folder, read_json(index), read_declaration(folder))
