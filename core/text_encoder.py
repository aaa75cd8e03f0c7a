"""Text encoding as a service between runners: a diffusion model whose text encoder is a served language model.

`llm` implements it, `diffusion` uses it, `api` introduces them to each other; neither imports the other.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from .request import Terms


class Encoding(Protocol):
    """A promised hidden-states tensor [num_tokens, hidden_size] in a shared, evictable lease.

    Exactly one of these holds: not `is_done`; done with `error` None; done with an error.
    While it is held (until `release`) the bytes stay where they are.
    """

    @property
    def is_done(self) -> bool: ...
    @property
    def error(self) -> Exception | None: ...
    @property
    def hidden_states(self) -> Any:
        """The tensor; asking before it is done is an error of ours."""
        ...

    def release(self) -> None:
        """Gives up the interest: an unfinished encoding that nobody waits for is cancelled."""
        ...


class TextEncoder(Protocol):
    """Computes hidden states of every position, without KV pages and without the prefix cache."""

    @property
    def hidden_size(self) -> int: ...

    def encode(self, token_ids: Sequence[int], hidden_state: int, parent: Terms) -> Encoding:
        """Promises `hidden_states[hidden_state]` (as transformers counts them: -1 is after the final norm).

        The step inherits the parent's class, tenant, due time and priority. Equal asks share one result.
        """
        ...
