"""A text request that is running, as the scheduler sees it and as the runner keeps it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..core.request import TextRequest
from ..core.service import token_due_s
from ..core.step import Tokens, Work
from .kv_cache import KvMemory

_ONE_TOKEN = Tokens(1)


@dataclass(frozen=True, slots=True)
class Served:
    """What all states of a runner have in common.

    Fields:
        batch_key: prefills and decodes share it, and so a forward.
        decode_key, mixed_key: cost keys of steps that only decode, and of steps with some prefill.
    """

    model: str
    lane: str
    page_len: int
    page_bytes: int
    batch_key: Hashable
    decode_key: Hashable
    mixed_key: Hashable


class LanguageState:
    """See `core.step.StateView`. Positions advance at launch; `token_ids` and `num_generated` at collect.

    Fields:
        request, served: what was asked, and of whom.
        is_plain: greedy, nothing forced, no log probabilities, so that sampling need not ask.
        memory: its pages.
        row: of the runner's row table; -1 before its first step and while parked.
        token_ids: the prompt, all forced tokens but the last, and what was chosen since: tokens that the host knows.
        num_generated: tokens that were delivered.
        num_computed: tokens whose keys and values are launched.
        target_len: tokens that are known or sampled in flight: what has to be computed before the next is sampled.
        max_len: where `target_len` ends.
        num_cached: tokens of the prompt that were found computed.
        num_steps: launches so far.
        last_token_s: when the last token was launched, on the engine's clock.
    """

    __slots__ = (
        "is_plain",
        "last_token_s",
        "max_len",
        "memory",
        "num_cached",
        "num_computed",
        "num_generated",
        "num_steps",
        "request",
        "row",
        "served",
        "target_len",
        "token_ids",
    )

    def __init__(self, request: TextRequest, served: Served, memory: KvMemory, max_len: int) -> None:
        self.request = request
        self.served = served
        sampling = request.sampling
        self.is_plain = sampling.temperature == 0 and sampling.logprobs is None and not sampling.forced_token_ids
        self.memory = memory
        self.row = -1
        room = max_len - len(request.token_ids)
        self.token_ids = [*request.token_ids, *sampling.forced_token_ids[:room][:-1]]
        self.num_generated = 0
        self.num_computed = 0
        self.target_len = len(self.token_ids)
        self.max_len = max_len
        self.num_cached = 0
        self.num_steps = 0
        self.last_token_s = 0.0

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def model(self) -> str:
        return self.served.model

    @property
    def lane(self) -> str:
        return self.served.lane

    @property
    def prompt_len(self) -> int:
        return len(self.request.token_ids)

    @property
    def num_sampled(self) -> int:
        """Tokens of the answer that are launched."""
        return max(self.num_computed - len(self.request.token_ids) + 1, 0)

    @property
    def phase(self) -> str:
        return "decode" if self.num_computed >= len(self.request.token_ids) else "prefill"

    @property
    def is_ready(self) -> bool:
        memory = self.memory
        return (
            self.target_len < self.max_len
            and memory.copy is None
            and (memory.waits is None or memory.waits.is_launched)
        )

    @property
    def waiting_for(self) -> str | None:
        if self.memory.copy is not None:
            return "a resume"
        if self.memory.waits is not None and self.memory.waits.waits_for is not None and self.memory.is_waiting:
            return f"the prefix that '{self.memory.waits.waits_for.owner}' computes"
        return "its last token" if self.target_len >= self.max_len else None

    @property
    def batch_key(self) -> Hashable:
        return self.served.batch_key

    @property
    def cost_key(self) -> Hashable:
        return self.served.decode_key if self.target_len - self.num_computed == 1 else self.served.mixed_key

    @property
    def cut(self) -> Tokens:
        num_new = self.target_len - self.num_computed
        return _ONE_TOKEN if num_new == 1 else Tokens(num_new)

    @property
    def work(self) -> Work:
        return chunk_work(self.num_computed, self.target_len - self.num_computed)

    @property
    def remaining(self) -> Sequence[tuple[str, Work]]:
        """The rest of the prompt, then at most so many decodes."""
        num_decodes = self.max_len - self.target_len - 1
        decodes = chunk_work(self.target_len, max(num_decodes, 0))._replace(rows=max(num_decodes, 0))
        return (self.phase, self.work), ("decode", decodes._replace(context_tokens=decodes.attended_pairs))

    @property
    def bytes_needed(self) -> int:
        """Of the next step, and after parking of all before it."""
        num_pages = -(-self.target_len // self.served.page_len)
        return max(num_pages - len(self.memory.pages), 0) * self.served.page_bytes

    @property
    def can_park(self) -> bool:
        return self.memory.copy is None and len(self.memory.pages) > self.memory.num_shared

    @property
    def service_class(self) -> str:
        return self.request.service_class

    @property
    def tenant(self) -> str:
        return self.request.tenant

    @property
    def priority(self) -> int:
        return self.request.priority

    @property
    def arrival_s(self) -> float:
        return self.request.arrival_s

    @property
    def behind_s(self) -> float:
        return self.request.behind_s

    @property
    def due_s(self) -> float:
        return token_due_s(self.request, self.num_sampled, self.last_token_s)


def chunk_work(start: int, num_new: int) -> Work:
    """One row that computes tokens [start, start + num_new); each attends to all before it and to itself."""
    return Work(1, num_new, start + num_new, num_new * start + num_new * (num_new + 1) // 2)
