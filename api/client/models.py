"""What a server says of the models it serves, asked for once: how long texts may be, and whose server it is.

A field that is not of the OpenAI API means nothing to most servers, and many ignore what they do not know. So it is
only sent to servers that are known to honour it, or of which the caller says so.
"""

from collections.abc import Mapping
from typing import Any

from hemiola.core.errors import HemiolaError, InvalidRequest

from .connection import Connection

KNOWN_OWNERS = ("hemiola", "vllm", "sglang")
_EVERYWHERE = frozenset({"model", "stream", "n", "prompt", "seed"})
_TEXT = frozenset({"max_tokens", "temperature", "top_p", "stop", "stream_options", "logprobs"}) | _EVERYWHERE
STANDARD = {
    "/v1/chat/completions": frozenset({"messages", "tools", "tool_choice", "top_logprobs"}) | _TEXT,
    "/v1/completions": frozenset({"echo"}) | _TEXT,
    "/v1/images/generations": frozenset({"size", "response_format", "output_format"}) | _EVERYWHERE - {"seed"},
    "/v1/videos": frozenset({"size", "seconds"}) | _EVERYWHERE - {"seed"},
}
"""The fields that the OpenAI API has, of those that the client sends."""


class ServedModels:
    """Of one server.

    Args:
        extensions: whether the server honours fields beyond the OpenAI API; None: if its models say whose it is.
    """

    def __init__(self, connection: Connection, extensions: bool | None) -> None:
        self._connection = connection
        self._extensions = extensions
        self._entries: list[Mapping[str, Any]] | None = None

    async def context_len(self, model: str | None) -> int | None:
        """How many tokens that model takes at most; None where the server does not say.

        A completion without `max_tokens` goes on to the end of the context in the engine, while the API stops after 16.
        """
        known = {
            entry["id"]: entry["max_model_len"]
            for entry in await self._listed()
            if isinstance(entry.get("id"), str) and isinstance(entry.get("max_model_len"), int)
        }
        return min(known.values(), default=None) if model is None else known.get(model)

    async def is_hemiola(self) -> bool:
        """Whether it is a server of this project, which runs programs."""
        return any(entry.get("owned_by") == KNOWN_OWNERS[0] for entry in await self._listed())

    async def check(self, path: str, body: Mapping[str, Any]) -> None:
        """
        Raises:
            InvalidRequest: the body has a field beyond the OpenAI API, which the server is not known to honour.
        """
        beyond = [name for name, value in body.items() if value is not None and name not in STANDARD[path]]
        if not beyond or self._extensions:
            return
        owners = sorted({str(entry.get("owned_by")) for entry in await self._listed()})
        if self._extensions is None and any(owner in KNOWN_OWNERS for owner in owners):
            return
        server = f"{self._connection.url} (owned_by: {', '.join(owners) or 'unknown'})"
        text = (
            f"'{beyond[0]}' is not of the OpenAI API, and {server} is not known to honour it. Allowed there: "
            f"{', '.join(sorted(STANDARD[path]))}. If it does honour more, say Client(..., extensions=True)."
        )
        raise InvalidRequest(beyond[0], text, "unsupported_parameter")

    async def _listed(self) -> list[Mapping[str, Any]]:
        if self._entries is None:
            try:
                models, _ = await self._connection.ask("GET", "/v1/models")
            except HemiolaError as error:
                if error.code in _IS_UP:
                    raise
                models = {}  # it lists none
            entries = models.get("data") if isinstance(models, dict) else None
            self._entries = [entry for entry in entries or () if isinstance(entry, dict)]
        return self._entries


_IS_UP = frozenset({"server_unreachable", "connection_lost", "timeout", "server_overloaded"})
"""What says nothing of the server's abilities, and may be otherwise next time."""
