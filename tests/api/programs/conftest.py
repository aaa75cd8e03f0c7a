"""The demo models, served once for all tests of programs."""

from collections.abc import Iterator

import pytest

from hemiola import Engine


@pytest.fixture(scope="session")
def demo() -> Iterator[Engine]:
    with Engine("demo", threads=1) as engine:
        yield engine
