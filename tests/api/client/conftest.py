"""A server on a real port over an engine, and its client; one of each per file."""

from collections.abc import Iterator

import pytest

from hemiola.api.client import Client
from hemiola.api.engine import Engine
from hemiola.api.http.settings import Settings
from hemiola.tests.api.http.text_rig import served


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("demo", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def address(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = Settings(api_keys=("secret",), data_dir=tmp_path_factory.mktemp("data"))
    with served(engine, settings) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address, "secret") as client:
        yield client
