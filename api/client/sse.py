"""Server-sent events from the bytes of a response, whatever pieces they come in."""

from collections.abc import Iterator
from typing import NamedTuple


class Frame(NamedTuple):
    """One event, or a comment, which has no data. Lines of data are joined as they were sent."""

    event: str
    data: bytes
    comment: bytes = b""


class FrameParser:
    """Of one response: `feed` it the bytes as they come."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # of the line that is not complete
        self._event = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The events and comments that are complete now."""
        self._pieces.append(piece)
        if b"\n" not in piece:
            return
        *lines, rest = b"".join(self._pieces).split(b"\n")
        self._pieces = [rest]
        for line in lines:
            line = line.removesuffix(b"\r")
            if not line:
                if self._data:
                    yield Frame(self._event, b"\n".join(self._data))
                self._event, self._data = "", []
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"event:"):
                self._event = line[6:].strip().decode("utf-8", "replace")
            elif line.startswith(b":"):
                yield Frame("", b"", line[1:].strip())
