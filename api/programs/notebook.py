"""A program that is shown while it runs: in a notebook as a page that changes, elsewhere as text. Needs no IPython."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any, TextIO

from .execution import ProgramEvent
from .page import fragment, value_html

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
        self._parts: dict[tuple[str, str], _Part] = {}

    def take(self, event: ProgramEvent) -> None:
        part = self._parts.setdefault((event.branch, event.name), _Part())
        if event.kind == "text":
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
        _print(events, file or sys.stdout)
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


def _print(events: Iterable[ProgramEvent], file: TextIO) -> None:
    """Text as it is written, under its name whenever that changes; a line for whatever else has ended."""
    last: tuple[str, str, int] | None = None
    for event in events:
        title = _title(event.branch, event.name)
        if event.kind == "text":
            if last != (key := (event.branch, event.name, event.index)):
                file.write(f"{'' if last is None else chr(10)}{title}: ")
                last = key
            file.write(event.text)
        elif event.kind == "failed" or (event.kind == "finished" and not isinstance(event.value, str | list)):
            file.write(f"{'' if last is None else chr(10)}{title}: {event.error or event.value}")
            last = (event.branch, event.name, -1)
        file.flush()
    file.write("\n" if last is not None else "")


def _title(branch: str, name: str) -> str:
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
