"""The thread that turns token ids into text, one step behind the loop, and looks for stop strings.

The loop hands it Token and final events of text requests; it passes them on with their text. When a stop string
appears, it tells the loop to finish the request, shows nothing of what came after, and marks the end as `stop`.
"""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from hemiola.core.errors import EngineDied
from hemiola.core.events import Event, Failed, Final, Finished, Token
from hemiola.core.request import TextRequest
from hemiola.llm.detokenize import Detokenizer

from .front.text import TextFront


@dataclass(slots=True)
class _Watched:
    """A text request in progress.

    Fields:
        num_tokens: tokens passed on.
        stopped_by: the stop string, once it was seen.
        last: with stop strings, the newest token waits for the next one: what the detokenizer still holds back when
            the answer ends becomes its text.
    """

    detokenizer: Detokenizer
    has_stops: bool
    num_tokens: int = 0
    stopped_by: str | None = None
    last: Token | None = None


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
        self._watched[request.id] = _Watched(front.detokenizer(request), bool(request.sampling.stop))

    def forget(self, request_id: str) -> None:
        """The request was never sent: no event of it will come."""
        self._watched.pop(request_id, None)

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
        event = msgspec.structs.replace(event, text=piece.text)
        watched.num_tokens += 1
        watched.stopped_by = piece.stopped_by
        if watched.last is not None:
            self._push(watched.last)
        watched.last = event if watched.has_stops and piece.stopped_by is None else None
        if watched.last is None:
            self._push(event)
        if piece.stopped_by is not None:
            with suppress(EngineDied):  # then it has ended as well
                self._finish(event.request_id)

    def _pass_final(self, event: Finished | Failed, watched: _Watched) -> None:
        if watched.last is not None:
            held = watched.detokenizer.finish()
            self._push(msgspec.structs.replace(watched.last, text=watched.last.text + held))
        if watched.stopped_by is not None and isinstance(event, Finished):
            usage = msgspec.structs.replace(event.usage, completion_tokens=watched.num_tokens)
            event = Finished(event.request_id, "stop", usage, watched.stopped_by)
        self._push(event)
