"""The torch-free edge: tokenisation as diffusers feeds it, defaults, limits."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from hemiola.core.errors import CorruptWeights, ModelNotFound, UnsupportedModel
from hemiola.diffusion.edge import load_tokenizers, open_edge, read_pipeline
from hemiola.tests.diffusion.driver import media_request, tiny_family
from hemiola.tests.tiny_diffusion import tiny_pipeline_dir

PROMPTS = [
    "a red fox",
    "",
    "  two   spaces\nand a line ",
    "caf\u00e9 &amp;amp; na\u00efve \U0001f98a",
    "word " * 200,
    "<|im_end|> inside",
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_zimage_ids_are_those_of_the_chat_template_and_tokenizer_of_transformers(prompt: str) -> None:
    folder = tiny_pipeline_dir("zimage")
    edge = open_edge(folder)
    theirs = AutoTokenizer.from_pretrained(folder / "tokenizer")
    rendered = theirs.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True, enable_thinking=True
    )
    length = edge.defaults.max_sequence_length
    batch = theirs([rendered], padding="max_length", max_length=length, truncation=True)
    real = [i for i, is_real in zip(batch["input_ids"][0], batch["attention_mask"][0], strict=True) if is_real]
    assert list(edge.tokenize(prompt, "", load_tokenizers(edge)).token_ids["text_encoder"]) == real


@pytest.mark.parametrize("prompt", PROMPTS)
def test_wan_ids_are_those_of_diffusers_cleaning_and_the_tokenizer_of_transformers(prompt: str) -> None:
    from diffusers.pipelines.wan.pipeline_wan import prompt_clean

    folder = tiny_pipeline_dir("wan")
    edge = open_edge(folder)
    theirs = AutoTokenizer.from_pretrained(folder / "tokenizer")
    batch = theirs([prompt_clean(prompt)], padding="max_length", max_length=512, truncation=True)
    ids = edge.tokenize(prompt, "", load_tokenizers(edge)).token_ids["text_encoder"]
    assert list(ids) == batch["input_ids"][0]


@pytest.mark.parametrize("prompt", [*PROMPTS, "Fed FO \u00c9 it's 12 o'clock!"])
@pytest.mark.parametrize("has_json", [True, False])
def test_flux_ids_are_those_of_both_tokenizers_of_transformers(tmp_path: Path, prompt: str, has_json: bool) -> None:
    """FLUX.1's own CLIP tokenizer ships as vocab.json and merges.txt."""
    folder = tmp_path / "flux"
    shutil.copytree(tiny_pipeline_dir("flux"), folder)
    clip = AutoTokenizer.from_pretrained(folder / "tokenizer")
    if not has_json:
        model = json.loads((folder / "tokenizer" / "tokenizer.json").read_text())["model"]
        (folder / "tokenizer" / "tokenizer.json").unlink()
        (folder / "tokenizer" / "vocab.json").write_text(json.dumps(model["vocab"]))
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        (folder / "tokenizer" / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    edge = open_edge(folder)
    ids = edge.tokenize(prompt, "", load_tokenizers(edge)).token_ids
    t5 = AutoTokenizer.from_pretrained(folder / "tokenizer_2")
    for name, theirs, length in (("clip", clip, 16), ("t5", t5, edge.defaults.max_sequence_length)):
        assert (
            list(ids[name]) == theirs([prompt], padding="max_length", max_length=length, truncation=True).input_ids[0]
        )


def test_flux_needs_the_ids_of_both_encoders_and_cannot_share_one(tmp_path: Path) -> None:
    family = tiny_family("flux")
    request = media_request(family)
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    for encoder, wrong, named in (
        ("t5", (), "'t5'"),
        ("clip", (1, 2), "Allowed: 16"),
        ("clip", (9999,) * 16, "'clip': token ids"),
        ("t5", (1,) * 513, "512"),
    ):
        changed = type(request)(**{**fields, "token_ids": {**request.token_ids, encoder: wrong}})
        error = family.edge.validate(changed)
        assert error is not None and error.param == "token_ids" and named in error.message
    shutil.copytree(tiny_pipeline_dir("flux"), tmp_path / "flux")
    (tmp_path / "flux" / "hemiola.json").write_text(
        json.dumps({"text_encoder": {"shares": "../chat", "hidden_state": -2}})
    )
    with pytest.raises(UnsupportedModel, match="text_encoder"):
        open_edge(tmp_path / "flux")


def test_flux_has_the_defaults_of_its_two_models(tmp_path: Path) -> None:
    for name, expected in (("flux", (512, 28, 3.5, 512)), ("schnell", (512, 4, 0.0, 256))):
        shutil.copytree(tiny_pipeline_dir(name), tmp_path / name)
        (tmp_path / name / "hemiola.json").unlink()
        made = open_edge(tmp_path / name).defaults
        assert (made.width, made.num_inference_steps, made.guidance_scale, made.max_sequence_length) == expected


def test_the_edge_and_media_load_without_torch_or_transformers() -> None:
    code = (
        "import sys; import hemiola.diffusion.edge as e, hemiola.diffusion.media;"
        f"edge = e.open_edge({str(tiny_pipeline_dir('wan'))!r}); edge.tokenize('a', 'b', e.load_tokenizers(edge));"
        "print([name for name in ('torch', 'transformers', 'diffusers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(tiny_pipeline_dir("zimage"), tmp_path / "copy")
    return tmp_path / "copy"


def test_defaults_come_from_the_family_the_model_and_hemiola_json(copy: Path) -> None:
    edge = open_edge(copy)
    assert (edge.defaults.width, edge.defaults.height, edge.defaults.num_inference_steps) == (32, 32, 50)
    (copy / "hemiola.json").write_text(json.dumps({"defaults": {"width": 16, "guidance_scale": 2.5}}))
    edge = open_edge(copy)
    assert (edge.defaults.width, edge.defaults.height, edge.defaults.guidance_scale) == (16, 32, 2.5)


def test_unknown_defaults_are_refused_by_name(copy: Path) -> None:
    (copy / "hemiola.json").write_text(json.dumps({"defaults": {"widht": 16}}))
    with pytest.raises(UnsupportedModel, match=r"widht.*guidance_scale"):
        open_edge(copy)


def test_a_folder_without_a_pipeline_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"model_index\.json"):
        read_pipeline(tmp_path)


def test_an_unknown_pipeline_lists_those_that_are_supported(copy: Path) -> None:
    (copy / "model_index.json").write_text(json.dumps({"_class_name": "FooPipeline"}))
    with pytest.raises(UnsupportedModel, match=r"FooPipeline.*FluxPipeline, WanPipeline, ZImagePipeline"):
        open_edge(copy)


def test_broken_json_is_named(copy: Path) -> None:
    (copy / "model_index.json").write_text("{")
    with pytest.raises(CorruptWeights, match=r"model_index\.json"):
        open_edge(copy)


@pytest.mark.parametrize("option", ["transformer_2", "boundary_ratio", "expand_timesteps"])
def test_options_of_wan_that_are_not_supported_are_refused_by_name(tmp_path: Path, option: str) -> None:
    folder = tmp_path / "wan"
    shutil.copytree(tiny_pipeline_dir("wan"), folder)
    index = json.loads((folder / "model_index.json").read_text())
    index[option] = ["diffusers", "WanTransformer3DModel"] if option == "transformer_2" else 0.9
    (folder / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(UnsupportedModel, match=option):
        open_edge(folder)


@pytest.mark.parametrize(
    ("name", "fields", "param", "allowed"),
    [
        ("zimage", {"width": 12}, "width", "multiples of 8 from 8 to 128"),
        ("zimage", {"height": 136}, "height", "multiples of 8 from 8 to 128"),
        ("zimage", {"num_frames": 5}, "num_frames", "1"),
        ("zimage", {"guidance_scale": -1.0}, "guidance_scale", ">= 0"),
        ("zimage", {"num_inference_steps": 1001}, "num_inference_steps", "1 to 1000"),
        ("zimage", {"seed": 2**64}, "seed", "to 18446744073709551615"),
        ("wan", {"num_frames": 6}, "num_frames", "4k+1 from 1 to 125"),
        ("wan", {"width": 8}, "width", "multiples of 16 from 16 to 512"),
    ],
)
def test_errors_name_the_field_its_value_and_what_is_allowed(
    name: str, fields: dict[str, Any], param: str, allowed: str
) -> None:
    family = tiny_family(name)
    error = family.edge.validate(media_request(family, **fields))
    assert error is not None and error.param == param
    assert str(fields[param]) in error.message and allowed in error.message


def test_a_setting_that_allows_fewer_frames_is_named(tmp_path: Path) -> None:
    """It was as if the model could not make them."""
    request = media_request(tiny_family("wan"), num_frames=5)
    for most, said in ((1, "Allowed: 1 ('max_frames')."), (3, "from 1 to 3 ('max_frames').")):
        edge = open_edge(tiny_pipeline_dir("wan"))
        edge.restrict(max_pixels=1 << 20, max_frames=most)
        error = edge.validate(request)
        assert error is not None and error.param == "num_frames" and error.message.endswith(said)


def test_a_caption_without_positions_is_too_long() -> None:
    family = tiny_family("zimage")
    request = media_request(family)
    ids = {"text_encoder": (5,) * 97}
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    error = family.edge.validate(type(request)(**{**fields, "token_ids": ids}))
    assert error is not None and error.code == "context_length_exceeded" and "96" in error.message


def test_ids_that_the_encoder_does_not_have_are_refused() -> None:
    family = tiny_family("wan")
    request = media_request(family)
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    for wrong in (-1, 48):
        error = family.edge.validate(type(request)(**{**fields, "token_ids": {"text_encoder": (5, wrong)}}))
        assert error is not None and error.param == "token_ids" and "0 to 47" in error.message


def test_the_negative_prompt_is_needed_only_where_guidance_uses_it() -> None:
    for name, off in (("zimage", 0.0), ("wan", 1.0)):
        family = tiny_family(name)
        request = media_request(family, guidance_scale=off)
        fields = {field: getattr(request, field) for field in request.__struct_fields__}
        without = type(request)(**{**fields, "negative_token_ids": {}})
        assert family.edge.validate(without) is None
        assert len(family.prompts(without)) == 1
