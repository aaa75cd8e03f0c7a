"""Makes the autoencoder's training folder of a folder that ships, so that another denoiser can be trained without it.

    python -m samples.train.image.recover samples/models/hemiola-tiny-image --out VAE

The weights are the shipped ones (bfloat16, which is what training saves, too); the figures for the next card are read
from the card, `vae.json`'s form. Raises ValueError when the card does not have them.
"""

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

_STEPS = re.compile(r"Autoencoder: (\d+) steps of (\d+)\.")
_PSNR = re.compile(r"PSNR of fresh scenes in dB \([^)]*\): ([^\n]*)\.\n")
_SIZE = re.compile(r"(\d+x\d+): ([\d.]+), ([\d.]+), ([\d.]+)")


def figures_of_card(card: str) -> dict[str, Any]:
    """Steps, batch and PSNR by size as the card prints them."""
    steps, psnr = _STEPS.search(card), _PSNR.search(card)
    if steps is None or psnr is None:
        raise ValueError("the card names no autoencoder's steps or no PSNR; is it one of samples.train.image.card?")
    sizes = {
        size: {"mean": float(mean), "pooled": float(pooled), "worst": float(worst)}
        for size, mean, pooled, worst in _SIZE.findall(psnr[1])
    }
    return {"steps": int(steps[1]), "batch": int(steps[2]), "psnr": sizes}


def recover(folder: Path, out: Path) -> dict[str, Any]:
    """Writes config.json, the weights and vae.json to `out`; the figures."""
    config = json.loads((folder / "vae" / "config.json").read_text(encoding="utf-8"))
    config.pop("_name_or_path", None)
    figures = figures_of_card((folder / "README.md").read_text(encoding="utf-8"))
    figures |= {name: config[name] for name in ("scaling_factor", "shift_factor")}
    out.mkdir(parents=True, exist_ok=True)
    weights = "diffusion_pytorch_model.safetensors"
    shutil.copyfile(folder / "vae" / weights, out / weights)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "vae.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder that ships")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    print(json.dumps(recover(options.folder, options.out), indent=1))


if __name__ == "__main__":
    main()
