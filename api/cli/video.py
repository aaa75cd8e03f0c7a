"""`hemiola video "a red fox runs" -o fox.mp4`: a clip from a prompt."""

import argparse

from .image import MEDIA_SETTINGS, add_media_arguments
from .numbers import whole
from .options import add_engine_options, add_server_options, check_call, check_output, given, model_asked, open_calls
from .progress import show_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_media_arguments(parser, default_output="video.mp4")
    parser.add_argument("--frames", type=whole(), dest="num_frames", help="number of frames (default: the model's)")
    parser.add_argument("--fps", type=whole(), help="frames a second in the file")
    add_engine_options(parser, model_help="a video model (default: hemiola-tiny-video)")
    add_server_options(parser)


def run(options: argparse.Namespace) -> int:
    check_output(options.output, (".mp4",))
    settings = {**model_asked(options), **given(options, *MEDIA_SETTINGS, "num_frames", "fps")}
    check_call(options, "hemiola-tiny-video", "video", lambda calls: calls.stream_video(options.prompt, **settings))
    with open_calls(options, "hemiola-tiny-video") as engine:
        stream = engine.stream_video(options.prompt, **settings)
        show_progress(stream)
        result = stream.result()
        print(f"{result.save(options.output)} (seed {result.seed})")
    return 0
