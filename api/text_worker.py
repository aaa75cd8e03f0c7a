"""The thread that turns token ids into text, one step behind the loop, and looks for stop strings.

The loop hands it Token and final events of text requests; it passes them on with their text. When a stop string
appears, it tells the loop to finish the request, shows nothing of what came after, and marks the end as `stop`.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from hemiola.core.events import Event, Failed, Final, Finished, Token
from hemiola.core.request import TextRequest
from hemiola.llm.detokenize import Detokenizer

from .front.text import TextFront


@dataclass(slots=True)
class _Watched:
    """A text request in progress. `stopped_by` is the stop string once it was seen; `num_tokens` those shown."""

    detokenizer: Detokenizer
    num_tokens: int = 0
    stopped_by: str | None = None
    tail: list[Token] = field(default_factory=list)


class TextWorker:
    """Detokenizes on a thread of its own.

    Args:
        push: told every event, in order per request.
        finish: asks the loop for the good end of a request.
    """

    def __init__(self, push: Callable[[Event], None], finish: Callable[[str], None]) -> None:
        self._push = push
        self._finish = finish
        self._watched: dict[str, _Watched] = {}
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hemiola-text", daemon=True)
        self._thread.start()

    def watch(self, request: TextRequest, front: TextFront) -> None:
        """From now on events of the request are this worker's."""
        self._watched[request.id] = _Watched(front.detokenizer(request))

    def take(self, event: Event) -> bool:
        """Queues an event of a watched request; False if it is none of them."""
        if event.request_id not in self._watched:
            return False
        self._events.put(event)
        return True

    def stop(self) -> None:
        """Ends the thread when all that was queued is passed on."""
        self._events.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            watched = self._watched[event.request_id]
            if isinstance(event, Token):
                self._pass_token(event, watched)
            elif isinstance(event, Final):
                del self._watched[event.request_id]
                self._pass_final(event, watched)
            else:
                self._push(event)

    def _pass_token(self, event: Token, watched: _Watched) -> None:
        if watched.stopped_by is not None:
            return
        piece = watched.detokenizer.push(event.token_id)
        watched.num_tokens += 1
        self._push(msgspec.structs.replace(event, text=piece.text))
        if piece.stopped_by is not None:
            watched.stopped_by = piece.stopped_by
            self._finish(event.request_id)

    def _pass_final(self, event: Finished | Failed, watched: _Watched) -> None:
        if isinstance(event, Failed):
            self._push(event)
            return
        if watched.stopped_by is not None:
            usage = msgspec.structs.replace(event.usage, completion_tokens=watched.num_tokens)
            event = Finished(event.request_id, "stop", usage, watched.stopped_by)
        self._push(event)
