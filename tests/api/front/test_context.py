"""How long a context is, by whatever name a config says it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hemiola.api.front.terms import CallTerms
from hemiola.api.front.text import TextFront
from hemiola.core.errors import ContextTooLong
from hemiola.tests.engine import models


@pytest.mark.parametrize(
    ("config", "context_len"),
    [
        ({"max_position_embeddings": 96}, 96),
        ({"n_positions": 64}, 64),
        ({"max_position_embeddings": 96, "text_config": None}, 96),
        ({"text_config": {"max_position_embeddings": 80}}, 80),
        ({"max_position_embeddings": None}, 2048),
    ],
)
def test_the_context_is_as_long_as_the_config_says(tmp_path: Path, config: dict[str, Any], context_len: int) -> None:
    """GPT-2's was taken for 2,048 tokens; a text_config of null was an AttributeError."""
    folder = tmp_path / "chat"
    shutil.copytree(models.folder("chat"), folder)
    (folder / "config.json").write_text(json.dumps(config))
    front = TextFront("chat", folder)
    assert front.context_len == context_len
    assert front.completion_requests([1] * (context_len - 1), CallTerms())[0].sampling.max_tokens == 1
    with pytest.raises(ContextTooLong, match=f"maximum context length is {context_len} tokens"):
        front.completion_requests([1] * context_len, CallTerms())
