"""Evaluates a pipeline folder: `python -m samples.train.video.evaluate FOLDER --out DIR [--judge DIR]`.

Without --judge a judge is trained first (minutes on a GPU, hopeless on a CPU).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from diffusers import WanPipeline

from samples.train.video.evaluation import evaluate_pipeline
from samples.train.video.judge import save_judge
from samples.train.video.measures import judge_figures
from samples.train.video.train_judge import train_judge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("video-evaluation"))
    parser.add_argument("--judge", type=Path, help="folder written by samples.train.video.train_judge")
    parser.add_argument("--judge-seconds", type=float, default=60.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    folder = options.judge
    if folder is None:
        folder = options.out / "judge"
        judge = train_judge(options.judge_seconds, device)
        save_judge(judge, judge_figures(judge, device, 1024), folder)
    evaluate_pipeline(WanPipeline.from_pretrained(options.model), folder, options.out, device)


if __name__ == "__main__":
    main()
