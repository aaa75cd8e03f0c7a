"""A device that has broken down is the engine's end, and no request's fault."""

from typing import Any

import pytest

from hemiola.llm.runner import LanguageRunner

from .flights import FLIGHTS, FakeStreams
from .models import chat, prompt_ids
from .rig import Rig

SAID = "CUDA error: an illegal memory access was encountered"


def lost(*_: Any) -> Any:
    raise RuntimeError(SAID)


@pytest.mark.parametrize("flight", ["one lane", "two lanes"])  # whose runners are on lanes, as on a GPU
def test_a_launch_that_fails_because_the_device_is_lost_ends_the_engine(
    flight: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another step in flight nobody met the error but the request: it failed, as did all later ones, and the
    engine was never started anew."""
    monkeypatch.setattr(LanguageRunner, "launch", lost)
    monkeypatch.setattr(FakeStreams, "finish", lost, raising=False)
    rig = Rig(flight=FLIGHTS[flight])
    rig.submit(chat("one", prompt_ids(9)))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        rig.run_until(lambda: rig.scheduler.is_idle)
