"""Worker processes that turn random conversations into packed rows of token ids for the trainer.

A row holds whole conversations one after the other; `document` numbers them, so that attention can stay inside each.
Rows come from best-fit packing over a few open bins. Which rows come next depends on timing, so two runs differ.
"""

import multiprocessing
import os
import queue
from dataclasses import dataclass
from multiprocessing.queues import Queue

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from samples.train.chat.mixture import conversation, training_world
from samples.train.chat.rendering import pieces
from samples.train.chat.tokenizer import load

OPEN_BINS = 12


@dataclass(frozen=True)
class Rows:
    """ids, loss and document numbers, each [rows, row_len]; the pad tail has a document number of its own."""

    ids: npt.NDArray[np.uint16]
    loss: npt.NDArray[np.bool_]
    document: npt.NDArray[np.int32]


class Packer:
    """Fills rows with documents; `rows` grows by one whenever a bin is full."""

    def __init__(self, row_len: int, pad_id: int) -> None:
        self.row_len, self.pad_id = row_len, pad_id
        self.bins: list[list[tuple[list[int], list[bool]]]] = [[] for _ in range(OPEN_BINS)]
        self.used = [0] * OPEN_BINS
        self.full: list[list[tuple[list[int], list[bool]]]] = []

    def add(self, ids: list[int], loss: list[bool]) -> None:
        if len(ids) > self.row_len:
            return
        fits = [i for i in range(OPEN_BINS) if self.used[i] + len(ids) <= self.row_len]
        if not fits:
            fullest = max(range(OPEN_BINS), key=self.used.__getitem__)
            self.full.append(self.bins[fullest])
            self.bins[fullest], self.used[fullest] = [], 0
            fits = [fullest]
        best = max(fits, key=self.used.__getitem__)
        self.bins[best].append((ids, loss))
        self.used[best] += len(ids)

    def take(self, count: int) -> Rows:
        rows, self.full = self.full[:count], self.full[count:]
        shape = (count, self.row_len)
        out = Rows(np.full(shape, self.pad_id, np.uint16), np.zeros(shape, np.bool_), np.zeros(shape, np.int32))
        for r, documents in enumerate(rows):
            at = 0
            for number, (ids, loss) in enumerate(documents):
                out.ids[r, at : at + len(ids)] = ids
                out.loss[r, at : at + len(ids)] = loss
                out.document[r, at : at + len(ids)] = number
                at += len(ids)
            out.document[r, at:] = len(documents)
        return out


def encode(tokenizer: Tokenizer, talks: list[list[tuple[str, bool]]]) -> list[tuple[list[int], list[bool]]]:
    """Ids and loss flags of conversations given as pieces."""
    encodings = iter(tokenizer.encode_batch_fast([t for talk in talks for t, _ in talk], add_special_tokens=False))
    found = []
    for talk in talks:
        ids: list[int] = []
        loss: list[bool] = []
        for _, has_loss in talk:
            encoding = next(encodings)
            ids += encoding.ids
            loss += [has_loss] * len(encoding.ids)
        found.append((ids, loss))
    return found


def generate(seed: int, part: str, has_rewording: bool, row_len: int, rows_at_once: int, out: "Queue[Rows]") -> None:
    """A worker's endless loop; `part` says which wordings there are (see phrasebook.load_book)."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = load()
    world = training_world(seed, part, has_rewording)
    pad_id = tokenizer.token_to_id("<|endoftext|>")
    assert pad_id is not None
    packer = Packer(row_len, pad_id)
    while True:
        while len(packer.full) < rows_at_once:
            for ids, loss in encode(tokenizer, [pieces(conversation(world)) for _ in range(64)]):
                packer.add(ids, loss)
        out.put(packer.take(rows_at_once))


class Feed:
    """Starts the workers; `next` gives the rows of one step."""

    def __init__(
        self, seed: int, workers: int, row_len: int, rows: int, part: str = "all", has_rewording: bool = False
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.rows_at_once = min(rows, 8)
        assert rows % self.rows_at_once == 0
        self.parts = rows // self.rows_at_once
        self.queue: Queue[Rows] = context.Queue(maxsize=workers * 4)
        arguments = [
            (seed * 1000 + i, part, has_rewording, row_len, self.rows_at_once, self.queue) for i in range(workers)
        ]
        self.processes = [context.Process(target=generate, args=a, daemon=True) for a in arguments]
        for process in self.processes:
            process.start()

    def next(self) -> Rows:
        parts = [self._get() for _ in range(self.parts)]
        return Rows(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.loss for part in parts]),
            np.concatenate([part.document for part in parts]),
        )

    def _get(self) -> Rows:
        while True:
            try:
                return self.queue.get(timeout=20)
            except queue.Empty:
                dead = [p.exitcode for p in self.processes if not p.is_alive()]
                if dead:
                    raise RuntimeError(f"data workers died with exit codes {dead}") from None

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
