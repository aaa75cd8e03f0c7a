"""Loading pipelines: what is broken or unknown is said, and random weights need no weight file."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hemiola.core.errors import CorruptWeights, ModelNotFound, UnsupportedModel
from hemiola.diffusion.components import Components, fill
from hemiola.diffusion.edge import open_edge
from hemiola.diffusion.families import load_family
from hemiola.tests.diffusion.driver import Driver, media_request, solo
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_weights_have_the_types_of_loaded_ones(folder: Path, dtype: torch.dtype) -> None:
    """Rotary tables and what Wan keeps in float32 included."""
    edge = open_edge(folder)
    real, made_up = (
        Components(edge.files, dtype=dtype, device="cpu", load_format=load_format) for load_format in ("auto", "dummy")
    )
    for component in ("transformer", "vae", "text_encoder"):
        ours, theirs = made_up.model(component), real.model(component)
        for name, tensor in theirs.state_dict(keep_vars=True).items():
            assert ours.get_parameter(name).dtype == tensor.dtype, name
        for name, buffer in theirs.named_buffers():
            assert torch.equal(ours.get_buffer(name), buffer) and ours.get_buffer(name).dtype == buffer.dtype, name


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("flux", {"num_layers": 20, "num_single_layers": 40}),
        ("wan", {"num_layers": 60}),
        ("zimage", {"n_layers": 60}),
    ],
)
def test_random_weights_keep_activations_in_scale_through_sixty_blocks(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    copy = tmp_path / name
    shutil.copytree(tiny_pipeline_dir(name), copy)
    config = json.loads((copy / "transformer" / "config.json").read_text())
    (copy / "transformer" / "config.json").write_text(json.dumps({**config, **changes}))
    family = load_family(copy, load_format="dummy", dtype=torch.bfloat16)
    driver = Driver(family)
    state = driver.admit(media_request(family, num_inference_steps=2))
    driver.step_until(state, "decode")
    assert 0.1 < state.tensors(state.num_done)[0].std() < 10
    driver.run([state])
    frames = driver.frames("a")
    assert np.isfinite(frames).all() and frames.std() > 0.05


def test_what_constructors_leave_uninitialised_is_filled() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64))
    for parameter in module.parameters():
        parameter.data.fill_(float("nan"))
    fill(module, 3)
    first = [parameter.clone() for parameter in module.parameters()]
    fill(module, 3)
    assert all(torch.equal(a, b) for a, b in zip(first, module.parameters(), strict=True))
    weight, bias, gain, _ = first
    assert abs(weight.std().item() * 8 - 1) < 0.1 and not bias.any() and bool((gain == 1).all())


def test_an_autoencoder_that_overflows_in_float16_is_held_in_float32() -> None:
    for name, dtype in (("flux", torch.float32), ("zimage", torch.float16)):
        files = open_edge(tiny_pipeline_dir(name)).files
        components = Components(files, dtype=torch.float16, device="cpu", load_format="auto")
        assert components.model("vae").dtype == dtype, "as 'force_upcast' says"


def test_weights_are_loaded_in_the_type_that_was_asked_for(folder: Path) -> None:
    family = load_family(folder, dtype=torch.bfloat16)
    assert family.condition_dtype == torch.bfloat16
    assert np.isfinite(solo(family, media_request(family, num_inference_steps=2))).all()
