"""What may import what, which parts work without torch, and what ships.

The rules are those of the folder table in CONTRIBUTING.md. A failure names the file and line; move the code to where
it belongs rather than widening a rule.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

from hemiola.tests.source_tree import PACKAGE, ROOT, SHIPPED, Source, files, sources, third_party

CONTRACTS = frozenset(
    f"hemiola.core.{name}"
    for name in ("bounds", "config", "errors", "events", "request", "service", "step", "text_encoder")
)
# Beyond the contracts, what a scheduler writes what it did into.
RECORDS = frozenset({"hemiola.core.metrics", "hemiola.core.tracing"})
# Folder -> what of ours it may import. "contracts" is a subset of core.
MAY_IMPORT = {
    "contracts": {"contracts"},
    "core": {"contracts", "core"},
    "kernels": {"kernels"},
    "llm": {"contracts", "core", "kernels", "llm"},
    "diffusion": {"contracts", "core", "kernels", "diffusion"},
    "scheduler": {"contracts", "records", "scheduler"},
    "api": {"contracts", "core", "kernels", "llm", "diffusion", "scheduler", "api"},
}
# Third-party packages of the parts that must stay light; the other parts are free.
MAY_USE = {"contracts": {"msgspec"}, "scheduler": {"msgspec", "numpy"}}
# Import names that are not those of their distributions.
IMPORTED_AS = {"PIL": "pillow", "zmq": "pyzmq", "flashinfer": "flashinfer_python", "cuda": "cuda_bindings"}
WITHOUT_TORCH = sorted(
    CONTRACTS | RECORDS | {"hemiola", "hemiola.core.timeline", "hemiola.core.hub", "hemiola.core.warm_up"}
)


def part_of(module: str) -> str:
    """Which row of the table a module of ours is: `hemiola.core.step.Work` -> contracts."""
    if any(module == name or module.startswith(f"{name}.") for name in CONTRACTS):
        return "contracts"
    return module.split(".")[1] if "." in module else ""


def is_allowed(part: str, imported: str) -> bool:
    """Whether code of a part may import that module of ours."""
    if part == "scheduler" and any(imported == name or imported.startswith(f"{name}.") for name in RECORDS):
        return True
    return part_of(imported) in MAY_IMPORT[part]


def of_shipped_folders() -> Iterator[tuple[Source, str]]:
    for source in sources():
        if source.folder in SHIPPED:
            yield source, part_of(source.module)


def test_folders_import_only_what_their_row_allows() -> None:
    broken = [
        f"{source.path}:{line}: {part} may not import {name}"
        for source, part in of_shipped_folders()
        for line, name in source.imports
        if name.startswith(f"{PACKAGE}.") and not is_allowed(part, name)
    ]
    assert broken == []


def test_light_parts_use_no_other_packages() -> None:
    broken = [
        f"{source.path}:{line}: {part} may not use {name}"
        for source, part in of_shipped_folders()
        if part in MAY_USE
        for line, name in source.imports
        if (top := third_party(name)) is not None and top not in MAY_USE[part]
    ]
    assert broken == []


def test_samples_use_the_public_names_alone() -> None:
    """`from hemiola import Engine` and no deeper: what a sample needs, a user needs."""
    broken = [
        f"{source.path}:{line}: {name}"
        for source in sources()
        if source.folder == "samples"
        for line, name in source.imports
        if name.startswith(f"{PACKAGE}.") and name.count(".") > 1
    ]
    assert broken == []


def test_no_folder_is_imported_by_its_bare_name() -> None:
    """`import kernels` would find a package of Hugging Face, or shadow it. `samples` is a program of its own."""
    broken = [
        f"{source.path}:{line}: {name}"
        for source in sources()
        for line, name in source.imports
        if name.split(".")[0] in (*SHIPPED, "tests", "samples")
        and not (name.startswith("samples.") and "samples" in source.path.parts)
    ]
    assert broken == []


def test_every_module_of_the_light_parts_loads_without_torch() -> None:
    """Through all that they import, too."""
    modules = [*WITHOUT_TORCH, *(source.module for source in sources() if source.folder == "scheduler")]
    code = f"import sys; [__import__(name) for name in {modules!r}]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


def test_every_folder_of_code_is_a_package_that_ships() -> None:
    """setup.py finds the folders below SHIPPED that have an `__init__.py`."""
    setup = next(source for source in sources() if source.path.name == "setup.py")
    shipped = [
        ast.literal_eval(node.value)
        for node in setup.tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SHIPPED"
    ]
    assert shipped == [SHIPPED]
    folders = {source.path.parent for source in sources()}
    code = {folder for folder in folders if folder.parts and folder.parts[0] not in ("samples", "tests")}
    assert {folder.parts[0] for folder in code} == set(SHIPPED)
    assert [str(folder) for folder in sorted(code) if not (ROOT / folder / "__init__.py").is_file()] == []


def test_every_package_that_is_used_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["cuda"]]
    names = {re.split(r"[^\w-]", requirement)[0].replace("-", "_").lower() for requirement in declared}
    undeclared = {
        f"{source.path}: {top}"
        for source, _ in of_shipped_folders()
        for _, name in source.imports
        if (top := third_party(name)) is not None and IMPORTED_AS.get(top, top).lower() not in names
    }
    assert undeclared == set()


def test_files_of_the_package_that_are_no_code_are_listed_for_the_wheel() -> None:
    """A template or a page that lies in a shipped folder has to be package data, or an installed wheel lacks it."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["hemiola"]
    listed = {path for pattern in data for path in ROOT.glob(pattern) if path.is_file()}
    missing = [str(path) for path in files() if path.parts[0] in SHIPPED and path.suffix != ".py"]
    assert [path for path in missing if ROOT / path not in listed] == []


@pytest.mark.parametrize(
    ("part", "imported", "allowed"),
    [
        ("scheduler", "hemiola.core.step.Work", True),
        ("scheduler", "hemiola.core.tracing.StepTrace", True),
        ("scheduler", "hemiola.core.memory.arena.Arena", False),
        ("scheduler", "hemiola.llm.runner", False),
        ("llm", "hemiola.diffusion.runner", False),
        ("diffusion", "hemiola.llm", False),
        ("diffusion", "hemiola.kernels.attention", True),
        ("kernels", "hemiola.core.errors.HemiolaError", False),
        ("contracts", "hemiola.core.memory.lease", False),
        ("core", "hemiola.scheduler.lanes", False),
        ("core", "hemiola", False),
        ("api", "hemiola.llm.runner", True),
    ],
)
def test_the_table_means_what_it_says(part: str, imported: str, allowed: bool) -> None:
    assert is_allowed(part, imported) is allowed
