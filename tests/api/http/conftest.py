"""What tests of text over HTTP share: a server over a backend that recites, and clients of it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from .text_rig import Reciter, RecitingCalls, served, write_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def shared_calls(model_folder: Path) -> Iterator[RecitingCalls]:
    calls = RecitingCalls(model_folder)
    yield calls
    calls.close()


@pytest.fixture(scope="session")
def shared_address(shared_calls: RecitingCalls) -> Iterator[str]:
    with served(shared_calls) as address:
        yield address


@pytest.fixture
def calls(shared_calls: RecitingCalls) -> RecitingCalls:
    """With nothing left of the test before."""
    shared_calls.reciter.reset()
    shared_calls.condition_now = "ready"
    return shared_calls


@pytest.fixture
def reciter(calls: RecitingCalls) -> Reciter:
    return calls.reciter


@pytest.fixture
def address(shared_address: str, reciter: Reciter) -> str:
    return shared_address


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=20) as client:
        yield client


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    """OpenAI's own client; it does not try again, so that a failure is seen as it was."""
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, timeout=20) as made:
        yield made
