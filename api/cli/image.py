"""`hemiola image "a red fox" -o fox.png`: pictures from a prompt."""

import argparse
from pathlib import Path

from .numbers import decimal, whole
from .options import add_engine_options, add_server_options, check_call, check_output, given, model_asked, open_calls
from .progress import show_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_media_arguments(parser, default_output="image.png")
    parser.add_argument("-n", type=whole(), default=1, help="how many pictures, with seeds SEED, SEED + 1, ...")
    add_engine_options(parser, model_help="an image model (default: hemiola-tiny-image)")
    add_server_options(parser)


def add_media_arguments(parser: argparse.ArgumentParser, default_output: str) -> None:
    """What pictures and clips have in common."""
    parser.add_argument("prompt")
    parser.add_argument("--output", "-o", type=Path, default=Path(default_output), metavar="FILE")
    parser.add_argument("--size", help="WIDTHxHEIGHT in pixels (default: the model's)")
    parser.add_argument("--steps", type=whole(), dest="num_inference_steps", help="denoise steps")
    parser.add_argument("--guidance", type=decimal(), dest="guidance_scale", help="classifier-free guidance scale")
    parser.add_argument("--negative", dest="negative_prompt", help="what should not be there")
    parser.add_argument("--seed", type=whole())


MEDIA_SETTINGS = ("size", "num_inference_steps", "guidance_scale", "negative_prompt", "seed")


def run(options: argparse.Namespace) -> int:
    check_output(options.output, (".png", ".jpg", ".jpeg", ".webp"))
    settings = {"n": options.n, **model_asked(options), **given(options, *MEDIA_SETTINGS)}
    check_call(options, "hemiola-tiny-image", "image", lambda calls: calls.stream_image(options.prompt, **settings))
    with open_calls(options, "hemiola-tiny-image") as engine:
        stream = engine.stream_image(options.prompt, **settings)
        show_progress(stream)
        for index, picture in enumerate(stream.result()):
            path = options.output
            if options.n > 1:
                path = path.with_stem(f"{path.stem}-{index}")
            print(f"{picture.save(path)} (seed {picture.seed})")
    return 0
