"""What can be asked, whoever answers: `x(...)` waits, `await ax(...)` waits in a coroutine, `stream_x(...)` does not.

`Calls` answers with an engine, `Client` with a server.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from .front.terms import CallTerms
from .results import Completion, ImageResult, Scores, VideoResult
from .stream import Stream

Messages = str | Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int]


class Asking(ABC):
    """The five kinds of calls, each in three manners. Whoever answers defines the ones that do not wait."""

    # Text

    @abstractmethod
    def stream_chat(
        self, messages: Messages, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Completion]: ...

    @abstractmethod
    def stream_complete(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        model: str | None = None,
        terms: CallTerms | None = None,
        **options: Any,
    ) -> Stream[Completion]: ...

    def chat(self, messages: Messages, **options: Any) -> Completion:
        return self.stream_chat(messages, **options).result()

    async def achat(self, messages: Messages, **options: Any) -> Completion:
        return await self.stream_chat(messages, **options).aresult()

    def complete(self, prompt: Prompt | Sequence[Prompt], **options: Any) -> Completion:
        return self.stream_complete(prompt, **options).result()

    async def acomplete(self, prompt: Prompt | Sequence[Prompt], **options: Any) -> Completion:
        return await self.stream_complete(prompt, **options).aresult()

    @abstractmethod
    def stream_scores(
        self, choices: Sequence[str], *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Scores]: ...

    def scores(self, choices: Sequence[str], **options: Any) -> Scores:
        return self.stream_scores(choices, **options).result()

    async def ascores(self, choices: Sequence[str], **options: Any) -> Scores:
        return await self.stream_scores(choices, **options).aresult()

    # Pictures and clips

    @abstractmethod
    def stream_image(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[ImageResult]: ...

    @abstractmethod
    def stream_video(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[VideoResult]: ...

    def image(self, prompt: str, **options: Any) -> ImageResult:
        return self.stream_image(prompt, **options).result()

    async def aimage(self, prompt: str, **options: Any) -> ImageResult:
        return await self.stream_image(prompt, **options).aresult()

    def video(self, prompt: str, **options: Any) -> VideoResult:
        return self.stream_video(prompt, **options).result()

    async def avideo(self, prompt: str, **options: Any) -> VideoResult:
        return await self.stream_video(prompt, **options).aresult()
