"""Progress bars in the terminal for streams of pictures and clips."""

from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from hemiola.core.events import Progress

from ..stream import Stream


def new_bars() -> Bars:
    """Bars as all commands show them: what, how far, how long."""
    return Bars(
        TextColumn("{task.description:<22}"), BarColumn(32), MofNCompleteColumn(), TimeElapsedColumn(), transient=False
    )


def show_progress(stream: Stream[Any]) -> None:
    """Shows a bar per request until the stream ends."""
    tasks = {}
    with new_bars() as bars:
        for event in stream:
            if isinstance(event, Progress):
                if event.request_id not in tasks:
                    tasks[event.request_id] = bars.add_task(event.phase, total=event.total)
                bars.update(tasks[event.request_id], description=event.phase, completed=event.done, total=event.total)
