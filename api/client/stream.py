"""A Stream that a server fills: its failures are told with all that the server said of them."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from hemiola.core.errors import HemiolaError
from hemiola.core.events import Event, Failed

from ..stream import Stream
from ..wakeups import Wakeups

T = TypeVar("T")


class ClientStream(Stream[T], Generic[T]):
    """As `Stream`, filled by the client's thread."""

    def __init__(
        self,
        request_ids: Sequence[str],
        assemble: Callable[[Sequence[Event]], T],
        cancel: Callable[[str], None],
        wakeups: Wakeups,
    ) -> None:
        super().__init__(request_ids, assemble, cancel, wakeups=wakeups)
        self._error: HemiolaError | None = None

    def fail(self, request_id: str, error: HemiolaError) -> None:
        """The bad end of a request, unless it has ended."""
        if request_id not in self._unfinished:
            return
        if self._error is None:
            self._error = error
        self.push(Failed(request_id, error.code, error.message))

    @property
    def failure(self) -> HemiolaError | None:
        """The first error, with its class, code and field."""
        return self._error
