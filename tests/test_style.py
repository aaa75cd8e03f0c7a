"""The few rules of house style that a machine can see."""

import ast
import re
from collections.abc import Iterator

import pytest

from hemiola.tests.source_tree import ROOT, SHIPPED, Source, files, sources

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
VAGUE_FILES = frozenset({"utils.py", "util.py", "misc.py", "helpers.py", "common.py"})
VAGUE_CLASSES = ("Manager", "Handler", "Helper")
# Packages that may be missing; everything else is imported at the top of a file.
OPTIONAL = frozenset({"flashinfer", "xformers", "triton", "cuda", "ray", "grpc"})
# The project speaks of itself alone, and of what is, not of what is to be done.
FOREIGN = re.compile(r"/work/|/root/|\b[Ii]ssue #?\d|\bTODO\b|\bFIXME\b")
TEXTS = frozenset({".py", ".md", ".toml", ".txt", ".sh", ".jinja", ".html", ".js", ".css", ".proto"})


def shipped() -> Iterator[Source]:
    return (source for source in sources() if source.folder in ("", *SHIPPED))


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches everything and says nothing."""
    caught = ast.unparse(handler.type) if handler.type else "BaseException"
    does_nothing = all(isinstance(each, ast.Pass | ast.Continue) for each in handler.body)
    return caught in ("Exception", "BaseException") and does_nothing


def inner_imports(source: Source) -> Iterator[tuple[int, str]]:
    """Imports inside functions, (line, top-level name); `__getattr__` of a module is there to import late."""
    lines = dict(source.imports)
    for function in ast.walk(source.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name != "__getattr__":
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno, lines[node.lineno].split(".")[0]


def test_files_are_short() -> None:
    long = [f"{source.path}: {n} lines" for source in sources() if (n := source.text.count("\n")) > MAX_FILE_LINES]
    assert long == [], "find the second concept in it"


def test_functions_are_short() -> None:
    long = [
        f"{source.path}:{node.lineno} {node.name}"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_every_module_says_what_it_is_for() -> None:
    assert [str(source.path) for source in sources() if source.tree.body and not ast.get_docstring(source.tree)] == []


def test_names_say_what_things_are() -> None:
    assert [str(source.path) for source in sources() if source.path.name in VAGUE_FILES] == []
    vague = [
        f"{source.path}:{node.lineno} {node.name}"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE_CLASSES)
    ]
    assert vague == []


def test_no_error_is_swallowed() -> None:
    swallowed = [
        f"{source.path}:{node.lineno}"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler) and swallows(node)
    ]
    assert swallowed == []


def test_nothing_is_global() -> None:
    globals_ = [
        f"{source.path}:{node.lineno} {', '.join(node.names)}"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Global)
    ]
    assert globals_ == []


def test_only_optional_packages_are_imported_inside_functions() -> None:
    inner = [
        f"{source.path}:{line} {name}"
        for source in shipped()
        if source.folder not in ("", "api")  # the lazy public names and the command line's start
        for line, name in inner_imports(source)
        if name not in OPTIONAL
    ]
    assert inner == []


def test_environment_variables_are_read_in_one_place() -> None:
    readers = [
        f"{source.path}:{node.lineno}"
        for source in shipped()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    ]
    assert [place for place in readers if not place.startswith("core/config.py")] == []
    assert readers != []


def test_texts_speak_of_this_project_alone() -> None:
    ours = [path for path in files() if path.suffix in TEXTS or path.name in ("Makefile", "run")]
    found = [
        f"{path}:{number} {line.strip()[:60]}"
        for path in ours
        if path.name != "test_style.py" and "data" not in path.parts
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), start=1)
        if FOREIGN.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("try: f()\nexcept Exception: pass", True),
        ("try: f()\nexcept: pass", True),
        ("try: f()\nexcept OSError: pass", False),
        ("try: f()\nexcept Exception: log()", False),
    ],
)
def test_swallowing_is_told_from_handling(code: str, expected: bool) -> None:
    handlers = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ExceptHandler)]
    assert [swallows(handler) for handler in handlers] == [expected]
