"""Whether the edges of the served models take what a program's nodes will ask, before any of it runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hemiola.core.errors import InvalidRequest, ModelNotFound
from hemiola.core.request import Request

from ..front.terms import CallTerms
from .expressions import Gen, Media, Select, as_written
from .graph import Node

if TYPE_CHECKING:
    from ..calls import Calls


def check_asked(calls: "Calls", nodes: Sequence[Node], asked: Sequence[Gen | Select | Media]) -> list[Request]:
    """Asks the edges for the requests of each node, with a prompt in place of one that is not there yet.

    Returns:
        These requests, which nobody submits.

    Raises:
        InvalidRequest: names the step and field, the value and what is allowed.
        ModelNotFound: a model is not served.
    """
    requests: list[Request] = []
    for node, each in zip(nodes, asked, strict=True):
        try:
            requests += _requests(calls, each)
        except InvalidRequest as error:
            where, said = f"{node.place.file}[{node.place.line}]", as_written(error)
            text = f"'{node.name}' of {where}: {said.message}"
            raise InvalidRequest(f"{where}.{said.param}", text, said.code) from error
        except ModelNotFound as error:
            raise ModelNotFound(f"'{node.name}' of {node.place.file}[{node.place.line}]: {error.message}") from error
    return requests


def _requests(calls: "Calls", asked: Gen | Select | Media) -> Sequence[Request]:
    if isinstance(asked, Select):
        calls.text_front(asked.model)
        return ()
    options: dict[str, Any] = dict(asked.options)
    model = options.pop("model", None)
    if isinstance(asked, Media):
        prompt = asked.prompt if isinstance(asked.prompt, str) else "a"
        return calls.media_front(asked.kind, model).requests(prompt, CallTerms(), **options)
    options.pop("enable_thinking", None)
    return calls.text_front(model).requests([[0]], CallTerms(), n=asked.n, **options)
