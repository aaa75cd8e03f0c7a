"""What the denoiser is trained on is what ZImagePipeline feeds it, whatever the chat model's own template does."""

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from samples.train.image.models import SHAPES
from samples.train.image.pipeline import assemble, save_self_contained
from samples.train.image.text import SLOTS, CaptionEncoder, prompt_text

CHAT = Path(__file__).parents[2] / "samples" / "train" / "chat"
CAPTIONS = [
    "a red cat",
    "",
    "Draw three small dogs, please!",
    "a bell above a wrench on pink and green horizontal stripes",
]


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with the chat model's tokenizer and its thinking template."""
    folder = tmp_path_factory.mktemp("chat")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(CHAT / "tokenizer.json"), pad_token="<|endoftext|>", eos_token="<|im_end|>"
    )
    tokenizer.chat_template = (CHAT / "chat_template.jinja").read_text()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=256, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def test_hidden_states_equal_the_pipelines(chat_folder: Path) -> None:
    shape = SHAPES["toy"]
    pipe = assemble(shape.vae(), shape.transformer(32), chat_folder, torch.device("cpu"), torch.float32)
    expected, _ = pipe.encode_prompt(list(CAPTIONS), do_classifier_free_guidance=False, max_sequence_length=64)
    encoder = CaptionEncoder(chat_folder, torch.device("cpu"))
    hidden, lengths = encoder(encoder.tokenize(CAPTIONS), SLOTS)
    assert lengths.tolist() == [len(row) for row in expected]
    for got, row in zip(hidden, expected, strict=True):
        assert torch.allclose(got[: len(row)], row, atol=1e-5)


def test_too_long_captions_are_refused(chat_folder: Path) -> None:
    encoder = CaptionEncoder(chat_folder, torch.device("cpu"))
    with pytest.raises(ValueError, match="more than 8"):
        encoder(encoder.tokenize(["a very long caption of many words indeed"]), 8)


def test_the_saved_tokenizer_renders_one_user_turn(chat_folder: Path, tmp_path: Path) -> None:
    from diffusers import DiffusionPipeline

    shape = SHAPES["toy"]
    vae = shape.vae()
    vae.register_to_config(scaling_factor=0.5, shift_factor=0.1)
    pipe = assemble(vae, shape.transformer(32), chat_folder, torch.device("cpu"), torch.float32)
    save_self_contained(pipe, tmp_path)
    loaded = DiffusionPipeline.from_pretrained(tmp_path)
    for thinks in (True, False):
        text = loaded.tokenizer.apply_chat_template(
            [{"role": "user", "content": "a red cat"}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinks,
        )
        assert text == prompt_text("a red cat")
    image = loaded("a red cat", height=32, width=48, num_inference_steps=1, guidance_scale=3.0, output_type="pt").images
    assert image.shape == (1, 3, 32, 48) and image.isfinite().all()
