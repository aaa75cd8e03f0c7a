"""Writes served models as self-contained folders: a pipeline that borrows its text encoder gets a copy of it."""

import json
import shutil
from pathlib import Path

from hemiola.core.errors import InvalidRequest
from hemiola.core.hub import ModelSource, encoder_source

ENCODER_FOLDER = "text_encoder"
_ENCODER_FILES = ("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json")


def export_model(source: ModelSource, served: tuple[ModelSource, ...], target: Path) -> None:
    """Copies the model's folder to `target`, complete for transformers or diffusers.

    Raises:
        InvalidRequest: there is something at `target` already.
    """
    if target.exists():
        raise InvalidRequest("target", f"{target} exists already; give the name of a new folder.")
    shutil.copytree(source.path, target)
    if source.shared_encoder is None:
        return
    encoder = encoder_source(source, served)
    (target / ENCODER_FOLDER).mkdir(exist_ok=True)
    for pattern in _ENCODER_FILES:
        for file in encoder.path.glob(pattern):
            if not (target / ENCODER_FOLDER / file.name).exists():
                shutil.copy2(file, target / ENCODER_FOLDER)
    declaration = target / "hemiola.json"
    declared = json.loads(declaration.read_text(encoding="utf-8"))
    del declared["text_encoder"]
    declaration.write_text(json.dumps(declared, indent=2) + "\n", encoding="utf-8")
