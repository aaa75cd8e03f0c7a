"""The trainers' tools: optimiser, schedule, checkpoint parts, tokenizer, prompts."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import torch

from samples.train.common import checkpoint
from samples.train.common.training import Average, MixedOptimizer, Schedule, orthogonalise
from samples.train.scenes.captions import caption
from samples.train.scenes.objects import VIDEO_IDS
from samples.train.scenes.sampling import sample_clip
from samples.train.video.prompts import PROMPT_FILE, compose, load_prompts
from samples.train.video.text import build_tokenizer, caption_words, encode


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 8, 20), (2, 20, 8)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.6 and values.max() < 1.3


def test_the_optimiser_reaches_the_minimum_of_a_quadratic_with_both_kinds_of_weights() -> None:
    torch.manual_seed(0)
    matrix, vector = torch.randn(6, 4, requires_grad=True), torch.randn(5, requires_grad=True)
    optimizer = MixedOptimizer([matrix], [vector], weight_decay=0.0)
    average = Average([matrix, vector], 0.9)
    for step in range(300):
        optimizer.rate.fill_(0.2 * (1 - step / 300))
        loss = (matrix - 1).square().sum() + (vector + 2).square().sum()
        optimizer.step(torch.autograd.grad(loss, optimizer.parameters))
        average.update()
    assert loss.item() < 1e-2
    assert (average.values[1] + 2).abs().max() < 0.1


def test_two_calls_of_half_a_schedule_give_the_rates_of_a_whole_one() -> None:
    whole = Schedule(100, 1.0, warmup_steps=1)
    halves = Schedule(50, 1.0, warmup_steps=1, end=0.5), Schedule(50, 1.0, warmup_steps=1, start=0.5)
    for elapsed in (10, 45, 60, 95, 100):
        part = halves[elapsed > 50]
        assert part.rate(9, elapsed % 50 or 50.0) == pytest.approx(whole.rate(9, elapsed))
    assert whole.rate(9, 100) == 0.0


def test_a_checkpoint_in_parts_comes_back_whole_and_a_missing_part_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "PART_BYTES", 100)
    tensors = {f"t{i}": torch.full((20,), i, dtype=torch.float32) for i in range(3)}
    paths = checkpoint.save_parts(tmp_path, "x", tensors, {"steps": 7})
    assert len(paths) == 3
    loaded, record = checkpoint.load_parts(tmp_path, "x")
    assert record == {"steps": 7} and loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    paths[1].unlink()
    with pytest.raises(FileNotFoundError, match="2 of 3"):
        checkpoint.load_parts(tmp_path, "x")


def test_the_tokenizer_keeps_every_word_of_captions_whole() -> None:
    tokenizer, rng = build_tokenizer(caption_words(20_000)), Random(99)
    captions = [caption(rng, sample_clip(rng)) for _ in range(500)]
    for text in captions:
        words = sum(len(word.strip(",.!?")) > 0 for word in text.split())
        marks = sum(text.count(mark) for mark in ",.!?")
        assert len(tokenizer.tokenize(text)) == words + marks, text
    ids, lengths = encode(tokenizer, captions)
    assert (ids == tokenizer.unk_token_id).sum() == 0
    assert (ids.gather(1, (lengths.long() - 1)[:, None]) == tokenizer.eos_token_id).all()


def test_the_committed_prompts_cover_every_thing_and_are_what_the_script_writes() -> None:
    prompts = load_prompts()
    alone = [p.things[0] for p in prompts if len(p.things) == 1]
    assert {alone.count(thing) for thing in VIDEO_IDS} == {3}
    assert json.loads(PROMPT_FILE.read_text().splitlines()[0])["text"] == compose(20_000_003, 3, 48)[0].text
