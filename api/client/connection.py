"""A server at the other end: one event loop on a thread of its own, one pool of connections that are used again.

Knows HTTP and what goes wrong with it; not what is asked.
"""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import httpx

from hemiola.core.bounds import plain
from hemiola.core.errors import HemiolaError, InvalidRequest

from ..front.json_words import check_words
from ..front.terms import check_integer
from .errors import ConnectionLost, NoAnswer, Unreachable, error_of_body
from .retries import TookNothing, refused, retried

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CONNECTIONS = 512
_CONNECT_S = 5.0
_MOST_RETRIES = 1000
_IDLE_S = 4.0  # servers close idle connections after 5 s or more
_CLOSE_S = 10.0


class Connection:
    """To one server.

    Args:
        url: of the server, with or without `/v1`.
        api_key: sent with every request to that server, and to no other.
        timeout: seconds without a byte after which an answer is given up.
        max_retries: how often a request of which nothing was done is sent once more: see `retries`.

    Raises:
        InvalidRequest: the URL is none, nor the key one that a header can hold, nor the timeout a time, nor
            `max_retries` a number.
    """

    def __init__(self, url: str, api_key: str | None, timeout: float, max_retries: int) -> None:
        _check(url, api_key, timeout)
        self._max_retries = check_integer("max_retries", max_retries, 0, _MOST_RETRIES)
        base = url.rstrip("/").removesuffix("/v1")
        if not base.startswith(("http://", "https://")):
            raise InvalidRequest("url", f"Invalid 'url': '{url}'. Allowed: http://... or https://...")
        try:
            self._http = httpx.AsyncClient(
                base_url=base,
                headers={"accept-encoding": "identity"},
                timeout=httpx.Timeout(timeout, connect=_CONNECT_S),
                follow_redirects=False,  # what is sent is for that server alone
                limits=httpx.Limits(
                    max_connections=MAX_CONNECTIONS,
                    max_keepalive_connections=MAX_CONNECTIONS,
                    keepalive_expiry=_IDLE_S,
                ),
            )
        except httpx.InvalidURL as error:
            raise InvalidRequest("url", f"Invalid 'url': '{url}'. {error}") from error
        self.url = base
        self._api_key = api_key
        self._is_closed = False
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hemiola-client", daemon=True)
        self._thread.start()

    # For any thread

    def start(self, name: str, work: Coroutine[Any, Any, None], on_cancelled: Callable[[], None]) -> None:
        """Runs it on the client's thread, until it ends or `cancel` is called with its name; then that is told.

        Raises:
            HemiolaError: the client is closed.
            InvalidRequest: something runs under that name.
        """
        with self._lock:
            if self._is_closed or name in self._names:
                work.close()
                if self._is_closed:
                    raise HemiolaError("The client is closed.")
                raise InvalidRequest("id", f"Invalid 'id': '{name}' is in use. Allowed: one of which no request runs.")
            self._names.add(name)
            self._loop.call_soon_threadsafe(self._start, name, work, on_cancelled)

    def cancel(self, name: str) -> None:
        """Ends what runs under that name, if it has not ended."""
        with self._lock:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(self._cancel, name)

    def close(self) -> None:
        """Cancels what runs and waits until the server was told. May be called more than once."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # On the client's thread

    @asynccontextmanager
    async def request(self, method: str, path: str, body: bytes | None = None) -> AsyncIterator[httpx.Response]:
        """The good response to it, of which nothing but the head was read. Leaving early ends it for the server too.

        Raises:
            HemiolaError: what the server said, or what happened on the way there and back.
        """
        async with self._read(await self.retried(partial(self._send, method, path, body))) as response:
            yield response

    async def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[Any, httpx.Headers]:
        """The JSON value that answers it, and the response's headers. Raises as `request`."""
        return await self.retried(partial(self.ask_once, method, path, body))

    async def ask_once(self, method: str, path: str, body: bytes | None = None) -> tuple[Any, httpx.Headers]:
        """As `ask`, for who has a reason to call `retried` himself.

        Raises:
            TookNothing: it may be asked again.
            HemiolaError: see `request`.
        """
        async with self._read(await self._send(method, path, body)) as response:
            return read_json(await response.aread()), response.headers

    async def fetch(self, url: str) -> bytes:
        """What is there: a path on the server, or a URL that it told, which may be anybody's. Raises as `request`."""
        async with self.request("GET", url) as response:
            return await response.aread()

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """See `retries.retried`: as often as the client may."""
        return await retried(attempt, self._max_retries)

    async def _send(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        """One attempt. Raises as `ask_once`."""
        request = self._request(method, path, body)
        try:
            response = await self._http.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            unreachable = Unreachable(f"No server can be reached at {self.url}: {_words(error)}")
            raise TookNothing(unreachable) from error
        except httpx.TimeoutException as error:
            raise NoAnswer(f"{self.url} did not answer in time.") from error
        except httpx.HTTPError as error:
            raise ConnectionLost(f"The connection to {self.url} was lost: {_words(error)}") from error
        if response.status_code < 300:
            return response
        async with self._read(response):
            problem = error_of_body(await response.aread(), response.status_code)
        raise refused(problem, response.status_code, response.headers)

    def _request(self, method: str, path: str, body: bytes | None) -> httpx.Request:
        headers = {} if body is None else {"content-type": "application/json"}
        request = self._http.build_request(method, path, content=body, headers=headers)
        if self._api_key is not None and _origin(request.url) == _origin(self._http.base_url):
            request.headers["authorization"] = f"Bearer {self._api_key}"
        return request

    @asynccontextmanager
    async def _read(self, response: httpx.Response) -> AsyncIterator[httpx.Response]:
        """The same, closed in the end."""
        try:
            yield response
        except httpx.TimeoutException as error:
            raise NoAnswer(f"Nothing came from {self.url} for too long.") from error
        except httpx.HTTPError as error:
            raise ConnectionLost(f"The connection to {self.url} was lost: {_words(error)}") from error
        finally:
            await response.aclose()

    def _start(self, name: str, work: Coroutine[Any, Any, None], on_cancelled: Callable[[], None]) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.pop(name, None)
            with self._lock:
                self._names.discard(name)
            if task.cancelled():
                on_cancelled()

        self._tasks[name] = self._loop.create_task(work, name=name)
        self._tasks[name].add_done_callback(ended)

    def _cancel(self, name: str) -> None:
        if (task := self._tasks.get(name)) is not None:
            task.cancel()

    async def _shut(self) -> None:
        """Whatever is still to be said to the server, such as that a job is not wanted, has some time."""
        for task in tuple(self._tasks.values()):
            task.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_CLOSE_S)
        with suppress(httpx.HTTPError):
            await self._http.aclose()


def _new_loop() -> asyncio.AbstractEventLoop:
    """The faster kind where it is installed: a token costs the client a quarter less."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def to_json(value: dict[str, Any]) -> bytes:
    """A body of the fields that are not None.

    Raises:
        InvalidRequest: JSON has no word for something in it: names the field.
    """
    given = {name: field for name, field in value.items() if field is not None}
    try:
        return json.dumps(given, default=_own_number, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        with suppress(RecursionError):  # then all of it is at fault
            check_words(given)
        raise InvalidRequest("request", f"The request cannot be written as JSON: {error}", "invalid_type") from error


def _own_number(value: Any) -> Any:
    """
    Raises:
        TypeError: it is no number at all.
    """
    number = plain(value)
    if number is value:
        raise TypeError(f"{type(value).__name__} is none of its types.")
    return number


def read_json(body: bytes) -> Any:
    """
    Raises:
        ConnectionLost: it is none.
    """
    try:
        return json.loads(body)
    except ValueError as error:
        raise ConnectionLost("The server answered something that is not JSON.") from error


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    """Who is behind it (RFC 6454, 4): scheme, host and port, which httpx leaves out where it is the scheme's own."""
    return url.scheme, url.host, url.port


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _check(url: object, api_key: object, timeout: object) -> None:
    if not isinstance(url, str):
        raise InvalidRequest("url", f"Invalid 'url': {url!r}. Allowed: http://... or https://...")
    if api_key is not None and not (isinstance(api_key, str) and api_key.isascii() and api_key.isprintable()):
        raise InvalidRequest("api_key", "Invalid 'api_key'. Allowed: printable ASCII characters.")  # it stays secret
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidRequest("timeout", f"Invalid 'timeout': {timeout!r}. Allowed: seconds, more than 0.")
