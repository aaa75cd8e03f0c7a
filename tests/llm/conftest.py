"""Runners over tiny models, each with an arena of its own."""

from typing import Any

import pytest

from hemiola.core.memory import Arena
from hemiola.llm import LanguageRunner
from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import MakeRunner

MIB = 1 << 20


@pytest.fixture
def make_runner() -> MakeRunner:
    """`make_runner(name="qwen3", arena_bytes=..., host_bytes=..., **options)`."""

    def make(
        name: str = "qwen3", *, arena_bytes: int = 24 * MIB, host_bytes: int = 8 * MIB, **options: Any
    ) -> LanguageRunner:
        return LanguageRunner("tiny", tiny.folder_of(name), Arena(arena_bytes, host_bytes=host_bytes), **options)

    return make
