"""Chat without a model: real calls, a real edge and a real server over a backend that says what it is told to say.

The model is a folder of a byte-level tokenizer and a template in the manner of Qwen; it has no weights.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from hemiola.api.calls import Calls
from hemiola.api.front.text import TextFront
from hemiola.api.http.app import create_app
from hemiola.api.http.settings import Settings
from hemiola.api.operations import Condition
from hemiola.core.errors import EngineDied, HemiolaError, RequestAborted
from hemiola.core.events import Failed, Finished, Token, TopLogprob, Usage
from hemiola.core.request import Request, TextRequest
from hemiola.llm.tokenizer import TextTokenizer
from hemiola.tests.api.listening import listening

CONTEXT_LEN = 2048
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}
{%- for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": \
{% if call.function.arguments is string %}{{ call.function.arguments }}{% endif %}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""


def write_model(folder: Path) -> Path:
    """Few merges, so that most characters beyond ASCII are several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["the fox and the hen and the fox"] * 3, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in MARKS])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    end_id = tokenizer.token_to_id("<|im_end|>")
    config = {"max_position_embeddings": CONTEXT_LEN, "eos_token_id": end_id}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@dataclass(slots=True)
class Answer:
    """What the backend answers: a text, token by token, and how that ends. `failure` is a Failed event's code."""

    text: str
    reason: Literal["stop", "length"] = "stop"
    failure: str | None = None
    cached_tokens: int = 0


class Reciter:
    """A backend that recites answers, each request on a thread of its own.

    Fields:
        answers: of the next requests, in order; the last one is repeated.
        requests: all that were submitted.
        aborted: ids that were aborted.
        refusal: raised by `submit`, if set.
        pause_after: tokens after which a request waits until `go_on` is set.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokenizer = tokenizer
        self.calls: Calls | None = None
        self.reset()

    def reset(self) -> None:
        self.answers: list[Answer] = [Answer("Hello there.")]
        self.requests: list[TextRequest] = []
        self.aborted: list[str] = []
        self.refusal: HemiolaError | None = None
        self.pause_after: int | None = None
        self.go_on = threading.Event()
        self._ended: dict[str, str] = {}

    def submit(self, request: Request) -> None:
        assert isinstance(request, TextRequest)
        if self.refusal is not None:
            raise self.refusal
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.requests.append(request)
        threading.Thread(target=self._recite, args=(request, answer), daemon=True).start()

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        self._ended.setdefault(request_id, "aborted")
        self.go_on.set()

    def finish(self, request_id: str) -> None:
        self._ended.setdefault(request_id, "finished")
        self.go_on.set()

    def end_program(self, program: str) -> None:
        """Keeps nothing."""

    def _recite(self, request: TextRequest, answer: Answer) -> None:
        assert self.calls is not None
        ids = self.tokenizer.encode(answer.text)
        num_told = 0
        for token_id in ids[: request.sampling.max_tokens]:
            if num_told == self.pause_after:
                self.go_on.wait(20)
            if request.id in self._ended:
                break
            self.calls._deliver(_token(request, token_id))
            num_told += 1
        self.calls._deliver(self._end(request, answer, num_told, is_cut=num_told < len(ids)))

    def _end(self, request: TextRequest, answer: Answer, num_told: int, is_cut: bool) -> Finished | Failed:
        end = self._ended.get(request.id)
        if end == "aborted":
            return Failed(request.id, RequestAborted.code, "The request was aborted.")
        if answer.failure is not None:
            return Failed(request.id, answer.failure, "A step failed at /srv/models/x/y.py: out of luck.")
        usage = Usage(len(request.token_ids), answer.cached_tokens, num_told, num_told)
        reason = "length" if is_cut and end is None else answer.reason
        return Finished(request.id, reason, usage, self.tokenizer.id_of("<|im_end|>") if reason == "stop" else None)


def _token(request: TextRequest, token_id: int) -> Token:
    num_top = request.sampling.logprobs
    if num_top is None:
        return Token(request.id, token_id)
    others = [i for i in range(3, 30) if i != token_id]
    likeliest = [TopLogprob(token_id, -0.25), *(TopLogprob(i, -1.0 - i) for i in others)]
    return Token(request.id, token_id, -0.25, tuple(likeliest[:num_top]))


class RecitingCalls(Calls):
    """Calls that can also be asked how they are."""

    def __init__(self, folder: Path) -> None:
        front = TextFront("org/tiny", folder)
        self.reciter = Reciter(front.tokenizer)
        self.condition_now: Condition = "ready"
        super().__init__({front.name: front}, self.reciter)
        self.reciter.calls = self

    @property
    def front(self) -> TextFront:
        return self.text_front(None)

    def condition(self) -> Condition:
        return self.condition_now

    def metrics_text(self) -> str:
        return "# TYPE hemiola_fake gauge\nhemiola_fake 1\n"

    async def flush_caches(self) -> int:
        if self.condition_now == "dead":
            raise EngineDied("There is no engine to ask.")
        return 7


@contextmanager
def served(calls: Calls, settings: Settings | None = None) -> Iterator[str]:
    """A real server on a thread; its address."""
    with listening(create_app(calls, settings or Settings())) as address:
        yield address


def frames_of(body: str) -> list[Any]:
    """The JSON values of a stream's frames; the end mark and comments are left out."""
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def wait_until(is_so: Any, timeout_s: float = 10.0) -> None:
    """Until it is so, or the test fails."""
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "It did not happen in time."
        time.sleep(0.01)


def texts(chunks: Sequence[Any]) -> str:
    """What a chat stream of one choice says."""
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
