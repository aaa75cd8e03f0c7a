"""Counts the bytes of tensors that are alive, on any device; on `meta` nothing is computed, so that sizes can be real.

What libraries take inside an operation is not seen: a convolution's workspace, an attention's scores.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """While it is on: what operations made and nobody has dropped yet.

    Fields:
        now, peak: in bytes.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in before:
                self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now -= self._known.pop(key)


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    """But for those of weights packed by a library, which nobody can look at."""
    tensors = (leaf for leaf in tree_leaves(tree) if torch.is_tensor(leaf) and not leaf.is_mkldnn)
    return [tensor.untyped_storage() for tensor in tensors]


@contextmanager
def live_bytes() -> Iterator[LiveBytes]:
    with torch.inference_mode(), LiveBytes() as live:
        yield live
