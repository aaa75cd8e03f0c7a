"""A program that serves pretended pictures and clips until it is killed: `python painting_server.py FOLDER hold|go`.

Says its URL on its output. With `hold`, clips of more than one step stop before the last.
"""

import sys
import threading
from pathlib import Path

from hemiola.tests.api.http.media_server import serving

if __name__ == "__main__":
    with serving(Path(sys.argv[1])) as server:
        if sys.argv[2] == "hold":
            server.painter.hold()
        print(server.url, flush=True)
        threading.Event().wait()
