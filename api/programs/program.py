"""`@program`: a function of a state becomes something that can be run, streamed, and run over many items."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from hemiola.core.errors import InvalidRequest

from ..front.terms import CallTerms, engine_clock
from .arguments import check_function, check_seconds, path_of
from .asking import Asked
from .batch import Batch, run_items
from .binding import Binding, check_calls
from .elsewhere import run_elsewhere
from .execution import Execution, ProgramEvent
from .graph import timed_out
from .notebook import show
from .run import Run
from .schema import ProgramGraph
from .state import State
from .trace import Trace
from .writing import Writing, WrittenState

P = ParamSpec("P")
T = TypeVar("T")


class Program(Generic[P]):
    """A function whose first argument is the state. It may be a coroutine function.

    Where it runs: `with using(engine):` around, or `program.on(engine)`.
    """

    def __init__(self, function: Callable[Concatenate[State, P], object], binding: Binding | None = None) -> None:
        check_function(function)
        self._function = function
        self._binding = binding or Binding()
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", "program")

    def on(
        self,
        calls: Asked | None = None,
        *,
        timeout_s: float | None = None,
        terms: CallTerms | None = None,
        remote: bool | None = None,
    ) -> "Program[P]":
        """The same program, bound to an engine, a time limit, terms; what is left out stays as it is. See `Binding`.

        Args:
            remote: with a client, send the program to its server as a whole: one round trip, not one for each node.
                It is then written down first, so no line of it may look at a value that is generated; see `graph`.

        Raises:
            InvalidRequest: this is no engine, or no time.
        """
        limit_s = None if timeout_s is None else check_seconds("timeout_s", timeout_s)
        given = {"calls": calls, "timeout_s": limit_s, "terms": terms, "is_remote": remote}
        if calls is not None:
            check_calls(calls)
        said = {key: value for key, value in given.items() if value is not None}
        return Program(self._function, replace(self._binding, **said))  # type: ignore[arg-type]

    async def arun(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """Runs it in this event loop. Being cancelled cancels all its nodes.

        Raises:
            whatever the function raises, such as NodeFailed where it used a value that failed. Failures that it did
            not run into are in `Run.errors`, and raised where their values are read.
            TimeoutError: the time limit has passed; nothing of it goes on.
        """
        return await self._arun(None, *args, **kwargs)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """As `arun`, waiting in this thread."""
        return _waited_for(self.arun(*args, **kwargs))

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> "ProgramStream":
        """Starts when it is iterated, with `for` or `async for`: ProgramEvents as they come, then `.run`."""

        def start(emit: Callable[[ProgramEvent], None]) -> Coroutine[Any, Any, Run]:
            return self._arun(emit, *args, **kwargs)

        return ProgramStream(start)

    async def arun_batch(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        max_concurrency: int = 16,
        progress: bool = False,
        results: str | Path | None = None,
    ) -> Batch:
        """Runs it once for each item's arguments, by name, so many at a time. An item that fails fails alone.

        Args:
            progress: show a bar.
            results: a file of JSON lines that gets a line for every item that ended well. What it already has is not
                run again, if the arguments are the same; pictures and clips lie in a folder beside it.

        Raises:
            InvalidRequest: an item is no mapping, `max_concurrency` is below 1, or `results` is not such a file.
            OSError: `results` could not be written any more; what it has is kept.
        """

        async def one(arguments: Mapping[str, Any]) -> Run:
            return await self._arun(None, **arguments)

        path = None if results is None else path_of(results)
        return await run_items(one, list(items), max_concurrency=max_concurrency, progress=progress, results=path)

    def run_batch(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        max_concurrency: int = 16,
        progress: bool = False,
        results: str | Path | None = None,
    ) -> Batch:
        """As `arun_batch`, waiting in this thread."""
        batch = self.arun_batch(items, max_concurrency=max_concurrency, progress=progress, results=results)
        return _waited_for(batch)

    def graph(self, *args: P.args, **kwargs: P.kwargs) -> ProgramGraph:
        """The program written down, for these arguments, without running it: typed JSON that a server can run.

        Raises:
            InvalidRequest: what it does depends on values that are generated, or it needs what cannot be sent; names
                the line.
        """
        return _waited_for(self._written(*args, **kwargs))[0].graph

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Trace:
        """What it would ask for, and in which order: a trace without times, to be drawn. Raises as `graph`."""
        writing, _ = _waited_for(self._written(*args, **kwargs))
        return Trace.of(writing.nodes, writing.started_s)

    async def _written(self, *args: Any, **kwargs: Any) -> tuple[Writing, WrittenState]:
        writing = Writing()
        state = WrittenState(writing)  # type: ignore[arg-type]  # it stands for an Execution
        if inspect.iscoroutinefunction(self._function):
            await self._function(state, *args, **kwargs)
        else:
            await asyncio.to_thread(self._function, state, *args, **kwargs)
        return writing, state

    async def _arun(self, emit: Callable[[ProgramEvent], None] | None, *args: Any, **kwargs: Any) -> Run:
        binding = self._binding
        if binding.is_remote:
            written = await self._written(*args, **kwargs)
            return await run_elsewhere(binding.chosen, *written, binding.terms, binding.timeout_s, emit)
        execution = Execution(self._binding.chosen, self._binding.terms, emit)
        state = State(execution)

        def body() -> object:
            return self._function(state, *args, **kwargs)

        async def coroutine_body() -> None:
            running = self._function(state, *args, **kwargs)
            assert isinstance(running, Awaitable), "A coroutine function gives something to wait for."
            await running

        is_coroutine = inspect.iscoroutinefunction(self._function)
        try:
            async with asyncio.timeout(self._binding.timeout_s) as limit:
                await execution.run(coroutine_body if is_coroutine else body)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the program's own
            raise timed_out(execution.nodes, self._binding.timeout_s) from error
        return Run(execution, state, engine_clock() - execution.started_s)


def program(function: Callable[Concatenate[State, P], object]) -> Program[P]:
    """Makes a program of a function of a state and what else it needs."""
    return Program(function)


class ProgramStream:
    """A program that runs while it is read: once, with `for` or with `async for`.

    Leaving `for` early, by `break` or an exception, cancels the program; so does leaving `async for`, which ends when
    the iterator is closed (`contextlib.aclosing`).
    """

    def __init__(self, start: Callable[[Callable[[ProgramEvent], None]], Coroutine[Any, Any, Run]]) -> None:
        self._start = start
        self._run: Run | None = None
        self._is_begun = False

    @property
    def run(self) -> Run:
        """The finished run, once all events were read.

        Raises:
            InvalidRequest: they were not.
        """
        if self._run is None:
            text = "There is no run: read all events first. Who stops reading cancels the program."
            raise InvalidRequest("run", text)
        return self._run

    def _begin(self) -> None:
        if self._is_begun:
            raise InvalidRequest("stream", "The program's stream was read already. Ask for another: .stream(...).")
        self._is_begun = True

    def show(self) -> Run:
        """Runs it and shows what it says and makes as it comes: on a notebook's page, or as text."""
        show(self, lambda: self.run)
        return self.run

    def _ipython_display_(self) -> None:
        """What a notebook does with a stream that ends a cell."""
        self.show()

    async def __aiter__(self) -> AsyncIterator[ProgramEvent]:
        self._begin()
        events: asyncio.Queue[ProgramEvent | None] = asyncio.Queue()
        task = asyncio.create_task(self._start(events.put_nowait))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self._run = task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def __iter__(self) -> Iterator[ProgramEvent]:
        self._begin()
        events: SimpleQueue[ProgramEvent | None] = SimpleQueue()
        cancel: list[Callable[[], object]] = []
        failure: list[BaseException] = []
        is_left = threading.Event()

        async def running() -> None:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None, "A coroutine that runs has a task."
            cancel.append(lambda: loop.call_soon_threadsafe(task.cancel))
            if is_left.is_set():
                return
            self._run = await self._start(events.put)

        def body() -> None:
            try:
                asyncio.run(running())
            except BaseException as error:
                failure.append(error)
            events.put(None)

        context = copy_context()
        thread = threading.Thread(target=lambda: context.run(body), name="program-stream", daemon=True)
        thread.start()
        try:
            while (event := events.get()) is not None:
                yield event
        finally:
            is_left.set()
            if cancel and self._run is None:
                with suppress(RuntimeError):  # the loop is closed: it has ended
                    cancel[0]()
            thread.join()
        if failure:
            raise failure[0]


def _waited_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end, in a thread of its own where this one has a running loop (as notebooks do)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = copy_context()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(context.run, asyncio.run, coroutine).result()
