"""A program that is shown while it runs: in a notebook as a page that changes, elsewhere as text. Needs no IPython."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any, TextIO

from .execution import ProgramEvent
from .page import fragment, value_html

Key = tuple[str, str, int]  # branch, name, node: a name may come again
_LEAST_PAUSE_S = 0.1  # between two pictures: a notebook's page is redrawn each time


@dataclass(slots=True)
class _Part:
    """One variable, as far as it is there."""

    texts: dict[int, str] = field(default_factory=dict)
    done: int = 0
    total: int = 0
    value: Any = None
    is_over: bool = False


class LiveView:
    """What a running program has said and made until now. `take` its events; it shows itself."""

    def __init__(self) -> None:
        self._parts: dict[Key, _Part] = {}

    def take(self, event: ProgramEvent) -> None:
        part = self._parts.setdefault(_key(event), _Part())
        if event.kind == "started":  # also when it is asked for again
            part.texts.clear()
        elif event.kind == "text":
            part.texts[event.index] = part.texts.get(event.index, "") + event.text
        elif event.kind == "progress":
            part.done, part.total = event.done, event.total
        elif event.kind in ("finished", "failed"):
            part.value, part.is_over = event.error or event.value, True

    def _repr_html_(self) -> str:
        figures = [_figure(_title(*key), part) for key, part in self._parts.items()]
        return fragment(f'<div class="values">{"".join(figures)}</div>')

    def __repr__(self) -> str:
        return "\n".join(f"{_title(*key)}: {' | '.join(part.texts.values())}" for key, part in self._parts.items())


def show(events: Iterable[ProgramEvent], finished: Any, file: TextIO | None = None) -> None:
    """Shows events as they come: in a notebook a view that changes and ends as `finished()`; elsewhere lines of text.

    Args:
        file: where lines are written outside of notebooks; standard output by default.
    """
    display = _notebook_display()
    if display is None:
        lines = _Lines(file or sys.stdout)
        for event in events:
            lines.take(event)
        return
    view, shown_s = LiveView(), 0.0
    handle = display(view, display_id=True)
    for event in events:
        view.take(event)
        if time.monotonic() - shown_s > _LEAST_PAUSE_S:
            handle.update(view)
            shown_s = time.monotonic()
    handle.update(finished())


def _notebook_display() -> Any:
    """IPython's `display`, where somebody looks at a page; None in terminals, and where there is no IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return ipython.display.display if ipython is not None and hasattr(shell, "kernel") else None


class _Lines:
    """Writes one text at a time as it comes; what others say meanwhile waits until that has ended."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._waiting: dict[Key, str] = {}  # what is not written yet, in order of first words
        self._ended: set[Key] = set()
        self._now: Key | None = None  # whose text is on the last line

    def take(self, event: ProgramEvent) -> None:
        key = _key(event)
        if event.kind == "started" and (key == self._now or key in self._waiting):
            self._waiting[key] = "; again: " if key == self._now else ""
        elif event.kind == "text":
            said = f" [{event.index}] " if event.index and event.text else ""
            self._waiting[key] = self._waiting.get(key, "") + said + event.text
        elif event.kind in ("finished", "failed"):
            self._ended.add(key)
            has_said = key == self._now or key in self._waiting
            if event.error is not None or not has_said:
                before = "; " if has_said else ""
                self._waiting[key] = f"{self._waiting.get(key, '')}{before}{event.error or event.value}"
        self._write()

    def _write(self) -> None:
        while self._waiting:
            if self._now is None:
                self._now = next(iter(self._waiting))
                self._file.write(f"{_title(*self._now)}: ")
            self._file.write(self._waiting.pop(self._now, ""))
            if self._now not in self._ended:
                break
            self._end()
        if self._now in self._ended:
            self._end()
        self._file.flush()

    def _end(self) -> None:
        self._file.write("\n")
        self._now = None


def _key(event: ProgramEvent) -> Key:
    return event.branch, event.name, -1 if event.node is None else event.node.idx


def _title(branch: str, name: str, node: int) -> str:
    return f"{name} [{branch}]" if branch else name


def _figure(title: str, part: _Part) -> str:
    kind = ' class="error"' if isinstance(part.value, Exception) else ""
    if part.is_over and not part.texts:
        body = value_html(part.value)
    elif part.texts:
        body = "".join(f"<p>{escape(text)}</p>" for text in part.texts.values())
        body += value_html(part.value) if isinstance(part.value, Exception) else ""
    else:
        body = f'<progress max="{part.total or 1}" value="{part.done}"></progress>'
    return f"<figure{kind}><figcaption>{escape(title)}</figcaption>{body}</figure>"
