"""The repository's own sources, parsed: what the architecture tests look at."""

import ast
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "hemiola"
# The folders that ship; `samples` and `tests` stand beside them.
SHIPPED = ("api", "core", "diffusion", "kernels", "llm", "scheduler")
_NOT_OURS = re.compile(r"^\.|^(build|dist|out|__pycache__)$|\.egg-info$")


@dataclass(frozen=True)
class Source:
    """One Python file; `path` is relative to the root."""

    path: Path

    @cached_property
    def text(self) -> str:
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def folder(self) -> str:
        """The first part of the path; "" for files at the root."""
        return self.path.parts[0] if len(self.path.parts) > 1 else ""

    @property
    def module(self) -> str:
        """`hemiola.core.hub.find`; packages without `__init__`."""
        parts = self.path.with_suffix("").parts
        return ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))

    @property
    def package(self) -> str:
        """What relative imports count from."""
        return self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """(line, absolute module) of every import anywhere in the file; `from a import b` gives `a.b`."""
        return [
            (node.lineno, name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in self._imported(node)
        ]

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            base = node.module or ""
            if node.level:
                package = self.package.split(".")
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def files() -> list[Path]:
    """All files of ours, relative to the root."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not _NOT_OURS.search(name)]
        found += [(Path(folder) / name).relative_to(ROOT) for name in names]
    return sorted(found)


@cache
def sources() -> tuple[Source, ...]:
    """All Python files of ours, each parsed once."""
    return tuple(Source(path) for path in files() if path.suffix == ".py")


def third_party(module: str) -> str | None:
    """The distribution's top-level name that an import needs; None for the standard library and ourselves."""
    top = module.split(".")[0]
    return None if top in sys.stdlib_module_names or top == PACKAGE else top
