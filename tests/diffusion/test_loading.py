"""Loading pipelines: what is broken or unknown is said, and random weights need no weight file."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hemiola.core.errors import CorruptWeights, ModelNotFound, UnsupportedModel
from hemiola.diffusion.families import load_family
from hemiola.tests.diffusion.driver import media_request, solo
from hemiola.tests.tiny_diffusion import FAMILIES, tiny_pipeline_dir


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(tiny_pipeline_dir(request.param), tmp_path / "copy")
    return tmp_path / "copy"


def weights(folder: Path) -> Path:
    return folder / "transformer" / "diffusion_pytorch_model.safetensors"


def test_a_truncated_weight_file_is_corrupt(folder: Path) -> None:
    path = weights(folder)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorruptWeights, match="transformer"):
        load_family(folder)


def test_a_missing_tensor_is_corrupt_and_named(folder: Path) -> None:
    tensors = load_file(weights(folder))
    name = sorted(tensors)[0]
    del tensors[name]
    save_file(tensors, weights(folder), metadata={"format": "pt"})
    with pytest.raises(CorruptWeights, match=name.replace(".", r"\.")):
        load_family(folder)


def test_a_tensor_of_another_shape_is_corrupt(folder: Path) -> None:
    tensors = load_file(weights(folder))
    name = max(tensors, key=lambda key: tensors[key].numel())
    tensors[name] = tensors[name][..., :-1].contiguous()
    save_file(tensors, weights(folder), metadata={"format": "pt"})
    with pytest.raises(CorruptWeights):
        load_family(folder)


def test_a_missing_component_says_where_it_was_looked_for(folder: Path) -> None:
    shutil.rmtree(folder / "vae")
    with pytest.raises(ModelNotFound, match="vae"):
        load_family(folder)


def test_an_unknown_component_class_lists_the_supported_ones(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    index["vae"] = ["diffusers", "AutoencoderTiny"]
    (folder / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(UnsupportedModel, match=r"AutoencoderTiny.*AutoencoderKL"):
        load_family(folder)


def test_an_unsupported_scheduler_option_is_named(folder: Path) -> None:
    path = folder / "scheduler" / "scheduler_config.json"
    config = json.loads(path.read_text())
    config["use_karras_sigmas"] = True
    path.write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="use_karras_sigmas"):
        load_family(folder)


def test_random_weights_need_configs_alone_and_are_the_same_every_time(folder: Path) -> None:
    for path in folder.rglob("*.safetensors"):
        path.unlink()
    before = torch.random.get_rng_state()
    frames = []
    for _ in range(2):
        family = load_family(folder, load_format="dummy")
        frames.append(solo(family, media_request(family, num_inference_steps=1)))
    assert np.array_equal(frames[0], frames[1])
    assert torch.equal(before, torch.random.get_rng_state())


def test_weights_are_loaded_in_the_type_that_was_asked_for(folder: Path) -> None:
    family = load_family(folder, dtype=torch.bfloat16)
    assert family.condition_dtype == torch.bfloat16
    assert np.isfinite(solo(family, media_request(family, num_inference_steps=2))).all()
