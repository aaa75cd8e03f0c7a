"""What configs of language models say is told from the files, as the library would read it."""

import subprocess
import sys
from typing import Any

import pytest
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

from hemiola.core.hub.dummies import shape_names
from hemiola.core.hub.find import resolve
from hemiola.core.hub.language import CONTEXT_NAMES, context_len
from hemiola.core.hub.quoting import one_line

# Whose layers do not attend as pages need it: the engine refuses them.
REFUSED = {"bailing_hybrid", "kimi_linear", "openai-gpt", "rwkv"}

READ = """
import pathlib, sys
from hemiola.core.hub import context_len
print(context_len(pathlib.Path(sys.argv[1])), "transformers" in sys.modules)
"""


def test_families_call_their_context_what_the_library_says() -> None:
    config_classes: Any = CONFIG_MAPPING
    names = {
        model_type: config_class.attribute_map["max_position_embeddings"]
        for model_type, config_class in config_classes.items()
        if config_class in MODEL_FOR_CAUSAL_LM_MAPPING and "max_position_embeddings" in config_class.attribute_map
    }
    assert {model_type: name for model_type, name in names.items() if model_type not in REFUSED} == CONTEXT_NAMES


def test_a_length_that_the_config_says_is_read_without_the_library() -> None:
    """The process at the edge stays light."""
    shape = next(resolve(name) for name in shape_names() if resolve(name).kind == "language")
    done = subprocess.run([sys.executable, "-c", READ, shape.path], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(context_len(shape.path)), "False"], done.stderr


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("one\n  two\n\nthree", "one two"),
        ("\n\nfield 'x'\nis wrong", "field 'x' is wrong"),
        ("", "ValueError"),
        ("x" * 400, "x" * 400),
        ("x" * 401, "x" * 400 + "..."),
    ],
)
def test_a_library_is_quoted_in_one_line_of_bounded_length(said: str, line: str) -> None:
    assert one_line(ValueError(said)) == line
