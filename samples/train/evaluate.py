"""Evaluate a demo model: ``python -m samples.train.evaluate chat|image|video MODEL_DIR [options]``.

Each kind has an ``evaluate`` module or package of its own under samples/train; this file only hands over.
"""

import runpy
import sys

MODULES = {
    "chat": "samples.train.chat.evaluation.run",
    "image": "samples.train.image.evaluate",
    "video": "samples.train.video.evaluate",
}


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] not in MODULES:
        raise SystemExit(f"usage: python -m samples.train.evaluate {'|'.join(MODULES)} MODEL_DIR [options]")
    kind = sys.argv.pop(1)
    runpy.run_module(MODULES[kind], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
