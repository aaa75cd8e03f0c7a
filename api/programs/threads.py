"""Users' functions on threads of their own. Who waits for one may leave it: then nobody waits for its thread either."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def on_a_thread(function: Callable[[], T], name: str) -> T:
    """What it gives, or raises. Being cancelled leaves the function to itself, to the end of the process at most.

    Raises:
        RuntimeError: instead of StopIteration, which no future can hold, as generators do.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def end(end_it: Callable[[], None]) -> None:
        if not done.done():
            end_it()

    def body() -> None:
        try:
            result = context.run(function)
        except StopIteration as error:
            failure = RuntimeError(f"{name} raised StopIteration.")
            failure.__cause__ = error
            tell(lambda: done.set_exception(failure))
        except BaseException as error:
            failed = error
            tell(lambda: done.set_exception(failed))
        else:
            tell(lambda: done.set_result(result))

    def tell(end_it: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(end, end_it)

    threading.Thread(target=body, name=name, daemon=True).start()
    return await done
