"""Pictures and clips without a model: real calls and real edges over a backend that only pretends to denoise.

The pipelines are folders of configurations and one-word tokenizers, and have no weights.
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from hemiola.api.calls import Calls
from hemiola.api.front.media import MediaFront
from hemiola.core.errors import HemiolaError
from hemiola.core.events import Event, Failed, Finished, Image, Pixels, Preview, Progress, Usage, Video
from hemiola.core.request import MediaRequest, Request

CHAT_TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}."  # the full stop is a token too


def write_pipeline(folder: Path, kind: str) -> Path:
    """A pipeline whose sizes are multiples of 16 (up to 256), and whose clips have 4k+1 frames (up to 125)."""
    kinds: dict[str, dict[str, dict[str, Any]]] = {
        "image": {
            "model_index.json": {"_class_name": "ZImagePipeline"},
            "vae/config.json": {"block_out_channels": [8, 8, 8, 8], "sample_size": 64},
            "transformer/config.json": {"axes_lens": [130, 16, 16]},
        },
        "video": {
            "model_index.json": {"_class_name": "WanPipeline"},
            "vae/config.json": {},
            "transformer/config.json": {"rope_max_seq_len": 32},
        },
    }
    parts = kinds[kind]
    parts["text_encoder/config.json"] = {"vocab_size": 100}
    parts["tokenizer/tokenizer_config.json"] = {"chat_template": CHAT_TEMPLATE}
    clip = {"width": 48, "height": 32, "num_frames": 9, "fps": 8}
    parts["hemiola.json"] = {"defaults": {"num_inference_steps": 4} | ({} if kind == "image" else clip)}
    for name, content in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    tokenizer = Tokenizer(WordLevel({"[UNK]": 1, "fox": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    return folder


class Painter:
    """A backend. A picture is one colour, told from its seed; a clip grows brighter from frame to frame.

    Fields:
        requests: all that were submitted.
        aborted: ids that were aborted while they ran.
        refusal: raised by `submit`, if set.
        death: requests fail with this code when they are to end, if set.
        has_previews: every step shows a preview.
    """

    def __init__(self) -> None:
        self.requests: list[MediaRequest] = []
        self.aborted: list[str] = []
        self.refusal: HemiolaError | None = None
        self.death: str | None = None
        self.has_previews = False
        self._may_end = threading.Event()
        self._may_end.set()
        self._gone: dict[str, threading.Event] = {}
        self.calls: Calls | None = None

    def hold(self) -> None:
        """Requests of several steps stop before the last, until `let_go`."""
        self._may_end.clear()

    def let_go(self) -> None:
        self._may_end.set()

    @property
    def num_running(self) -> int:
        return len(self._gone)

    # What a backend does.

    def submit(self, request: Request) -> None:
        if self.refusal is not None:
            raise self.refusal
        assert isinstance(request, MediaRequest)
        self.requests.append(request)
        self._gone[request.id] = threading.Event()
        threading.Thread(target=self._paint, args=(request,), daemon=True).start()

    def abort(self, request_id: str) -> None:
        if request_id in self._gone:
            self._gone[request_id].set()

    def finish(self, request_id: str) -> None:
        raise AssertionError("only text is finished early")

    def end_program(self, program: str) -> None:
        """Keeps nothing."""

    # Inside

    def _paint(self, request: MediaRequest) -> None:
        steps = request.num_inference_steps
        for step in range(1, steps + 1):
            while step == steps > 1 and not self._may_end.wait(0.01) and not self._gone[request.id].is_set():
                pass
            if self._gone[request.id].is_set():
                self.aborted.append(request.id)
                self._end(Failed(request.id, "request_aborted", "The request was aborted."))
                return
            self._tell(Progress(request.id, "denoise", step, steps))
            if self.has_previews:
                self._tell(Preview(request.id, step, pixels(request, 1)))
        if self.death is not None:
            self._end(Failed(request.id, self.death, "Something went wrong."))
            return
        made = pixels(request, request.num_frames)
        is_clip = request.model == "film"
        self._tell(Video(request.id, made, request.fps) if is_clip else Image(request.id, made))
        tokens = sum(len(ids) for ids in request.token_ids.values())
        self._end(Finished(request.id, "done", Usage(prompt_tokens=tokens, num_steps=steps)))

    def _tell(self, event: Event) -> None:
        assert self.calls is not None
        self.calls._deliver(event)

    def _end(self, event: Event) -> None:
        del self._gone[event.request_id]
        self._tell(event)


def pixels(request: MediaRequest, num_frames: int) -> Pixels:
    """What the painter makes of a request."""
    frames = (bytes(colour(request.seed, i)) * (request.width * request.height) for i in range(num_frames))
    return Pixels(b"".join(frames), num_frames, request.height, request.width)


def colour(seed: int, frame: int = 0) -> Sequence[int]:
    return (seed * 40 % 256, 90, min(frame * 20, 255))


def open_calls(folder: Path, painter: Painter) -> Calls:
    """Calls that serve the picture model `brush` and the clip model `film`."""
    fronts = {
        "brush": MediaFront("brush", write_pipeline(folder / "brush", "image")),
        "film": MediaFront("film", write_pipeline(folder / "film", "video")),
    }
    painter.calls = Calls(fronts, painter)
    return painter.calls
