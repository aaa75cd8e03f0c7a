"""Makes the image pipeline's folder.

    python -m samples.train.image.export --vae DIR --dit DIR --text-encoder DIR --out FOLDER

The folder ships without the weights of the text encoder, which are the chat model's. `--self-contained` adds a copy;
`--speed` measures a picture on this machine's CPU with one thread.
"""

import argparse
import time
from pathlib import Path

import torch
from diffusers import ZImagePipeline

from samples.train.image.evaluate import MAX_SEQUENCE_LENGTH, load_trained
from samples.train.image.models import GUIDANCE, NATIVE_SIZE, STEPS
from samples.train.image.pipeline import assemble, save_self_contained, save_shipped


def seconds_per_picture(pipe: ZImagePipeline, repeats: int = 5) -> float:
    """Median time of one native picture with guidance, through the pipeline; call with one torch thread."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        pipe(
            "a red cat on a blue background",
            height=NATIVE_SIZE,
            width=NATIVE_SIZE,
            num_inference_steps=STEPS,
            guidance_scale=GUIDANCE,
            max_sequence_length=MAX_SEQUENCE_LENGTH,
        )
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[repeats // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vae", type=Path, required=True)
    parser.add_argument("--dit", type=Path, required=True)
    parser.add_argument("--text-encoder", type=Path, required=True, help="folder of the chat model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--guidance", type=float, default=GUIDANCE, help="the default that hemiola.json declares")
    parser.add_argument("--self-contained", action="store_true")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    if options.speed:  # of a pipeline of its own: one that has run sets its tokenizer to the length of prompts
        torch.set_num_threads(1)
        print(f"{seconds_per_picture(_pipeline(options)):.2f} s a picture, one thread, float32")
    (save_self_contained if options.self_contained else save_shipped)(_pipeline(options), options.out, options.guidance)
    size = sum(path.stat().st_size for path in options.out.rglob("*") if path.is_file())
    print(f"{options.out}: {size / 1e6:.2f} MB")


def _pipeline(options: argparse.Namespace) -> ZImagePipeline:
    vae, transformer, _ = load_trained(options.vae, options.dit)
    return assemble(vae, transformer, options.text_encoder, torch.device("cpu"), torch.float32)


if __name__ == "__main__":
    main()
