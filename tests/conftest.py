"""What all tests share: a calm, offline process, and where the demo models are.

The environment is set before anything imports torch or a model library, since they read it once.
"""

import importlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}.items():
    os.environ.setdefault(_name, _value)

# In CI the same examples every time: a change is never blamed for somebody else's unlucky draw.
settings.register_profile("hemiola", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("hemiola")

# The training scripts are a program beside the package and import themselves as `samples`. Only this one name is
# lent to them: with the repository's root on sys.path, `kernels` would shadow a package of Hugging Face.
sys.modules.setdefault("samples", importlib.import_module("hemiola.samples"))

ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything under tests/gpu needs a GPU, said or not, and is skipped where there is none."""
    for item in items:
        if (ROOT / "tests" / "gpu") in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not importlib.import_module("torch").cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root, which is the package's folder."""
    return ROOT
