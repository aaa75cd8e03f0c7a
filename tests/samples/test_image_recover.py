"""The autoencoder's training folder made again of the shipped folder."""

import json
from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKL

from samples.train.image.recover import figures_of_card, recover

SHIPPED = Path(__file__).resolve().parents[2] / "samples" / "models" / "hemiola-tiny-image"


def test_the_recovered_folder_is_the_shipped_autoencoder(tmp_path: Path) -> None:
    recover(SHIPPED, tmp_path)
    own, shipped = AutoencoderKL.from_pretrained(tmp_path), AutoencoderKL.from_pretrained(SHIPPED, subfolder="vae")
    assert own.config.scaling_factor == shipped.config.scaling_factor != 1.0
    assert own.config.shift_factor == shipped.config.shift_factor
    weights = shipped.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in own.state_dict().items())


def test_the_figures_are_the_cards(tmp_path: Path) -> None:
    recover(SHIPPED, tmp_path)
    figures = json.loads((tmp_path / "vae.json").read_text())
    card = (SHIPPED / "README.md").read_text()
    assert f"Autoencoder: {figures['steps']} steps of {figures['batch']}." in card
    printed = "; ".join(
        f"{s}: {r['mean']:.1f}, {r['pooled']:.1f}, {r['worst']:.1f}" for s, r in figures["psnr"].items()
    )
    assert printed in card and len(figures["psnr"]) == 4


def test_a_card_without_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no autoencoder's steps"):
        figures_of_card("# a card\n")
