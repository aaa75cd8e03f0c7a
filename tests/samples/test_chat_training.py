"""The training code of the chat model: equal to transformers' Qwen3, documents apart, answers judged strictly."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from samples.train.chat.checkpoint import load_parts, resume, save_parts, write_folder
from samples.train.chat.evaluation.judge import Case, is_right
from samples.train.chat.evaluation.run import load_cases
from samples.train.chat.feed import Packer, encode
from samples.train.chat.mixture import conversation, training_world
from samples.train.chat.model import ChatModel, Config, block_lists, block_mask
from samples.train.chat.optimiser import Optimisers, orthogonalise
from samples.train.chat.rendering import pieces
from samples.train.chat.tokenizer import load
from samples.train.chat.train import schedule, to_device

SMALL = Config(
    hidden_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32, intermediate_size=64
)


def small_model() -> ChatModel:
    torch.manual_seed(0)
    model = ChatModel(SMALL, torch.float32, use_flex=False)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # norms of one would hide a missing norm
            parameter.data.uniform_(0.5, 1.5)
    return model


def packed(row_len: int, rows: int) -> tuple[Packer, list[int]]:
    world, tokenizer = training_world(5), load()
    packer = Packer(row_len, 0)
    lengths = []
    while len(packer.full) < rows:
        for ids, loss in encode(tokenizer, [pieces(conversation(world))]):
            lengths.append(len(ids))
            packer.add(ids, loss)
    return packer, lengths


def test_transformers_computes_the_same_logits_from_the_saved_folder(tmp_path: Path) -> None:
    model = small_model()
    save_parts(model, tmp_path / "parts", torch.float32)
    write_folder(*load_parts(tmp_path / "parts"), tmp_path / "folder")
    reference = AutoModelForCausalLM.from_pretrained(tmp_path / "folder", dtype=torch.float32)
    with torch.no_grad():  # the folder holds bf16: compare with equally rounded weights
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())
        ids = torch.randint(0, 6000, (2, 40))
        ours = model.hidden(ids, torch.zeros_like(ids)) @ model.embed_tokens.weight.T
        theirs = reference(ids).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_packed_document_gives_the_hidden_states_it_gives_alone() -> None:
    model = small_model()
    ids = torch.randint(0, 6000, (1, 50))
    document = torch.tensor([[0] * 20 + [1] * 30])
    with torch.no_grad():
        together = model.hidden(ids, document)
        alone = model.hidden(ids[:, 20:], torch.zeros(1, 30, dtype=torch.long))
    torch.testing.assert_close(together[:, 20:], alone, rtol=1e-4, atol=1e-4)


def test_the_block_mask_covers_exactly_the_pairs_inside_documents() -> None:
    cuts = [0, 1, 100, 128, 300, 301, 700, 768]
    row = torch.zeros(768, dtype=torch.int32)
    for number, (low, high) in enumerate(pairwise(cuts)):
        row[low:high] = number
    document = torch.stack([row, torch.zeros_like(row)])
    mask = block_mask(document, block_lists(document))
    at = torch.arange(768)
    for b in range(2):
        wanted = (at[:, None] >= at[None]) & (document[b][:, None] == document[b][None])
        blocks = wanted.view(6, 128, 6, 128).any(dim=3).any(dim=1)
        assert torch.equal(mask.to_dense()[b, 0].bool(), blocks)
        count = mask.kv_num_blocks[b, 0]
        for q in range(6):
            assert mask.kv_indices[b, 0, q, : count[q]].tolist() == blocks[q].nonzero().flatten().tolist()
    assert mask.q_num_blocks is not None and mask.q_num_blocks.sum() == mask.kv_num_blocks.sum()


def test_packing_loses_no_document_that_fits() -> None:
    packer, lengths = packed(512, 6)
    rest = sum(len(ids) for open_bin in packer.bins for ids, _ in open_bin)
    full = sum(len(ids) for row in packer.full for ids, _ in row)
    assert full + rest == sum(n for n in lengths if n <= 512)
    rows = packer.take(6)
    assert (np.diff(rows.document, axis=1) >= 0).all()


def test_targets_are_the_ids_after_the_chosen_positions() -> None:
    packer, _ = packed(512, 4)
    rows = packer.take(4)
    ids, _, _, positions, targets, weights = to_device(rows, torch.device("cpu"), np.random.default_rng(0))
    assert len(set(positions.tolist())) == len(positions)
    chosen = positions[weights > 0]
    assert torch.equal(ids.flatten()[chosen + 1], targets[weights > 0])
    assert rows.loss.reshape(-1)[chosen + 1].all() and int(weights.sum()) == int(rows.loss.sum())


def test_a_few_steps_lower_the_loss() -> None:
    packer, _ = packed(256, 4)
    batch = to_device(packer.take(4), torch.device("cpu"), np.random.default_rng(0))
    model = small_model()
    optimisers = Optimisers(model)
    losses = []
    for step in range(40):
        loss = model(*batch)
        loss.backward()
        optimisers.step(schedule(step, step / 40))
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.3


def test_newton_schulz_gives_near_orthogonal_matrices() -> None:
    torch.manual_seed(1)
    for shape in ((3, 32, 64), (3, 64, 32)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.4 and values.max() < 1.4


def test_the_schedule_warms_up_and_ends_at_zero() -> None:
    assert schedule(0, 0.0) == pytest.approx(0.01)
    assert schedule(5000, 0.3) == 1.0
    assert schedule(5000, 1.0) == 0.0


def test_weights_survive_the_parts(tmp_path: Path) -> None:
    model, other = small_model(), ChatModel(SMALL, torch.float32, use_flex=False)
    save_parts(model, tmp_path, torch.float32)
    with torch.no_grad():
        resume(other, tmp_path)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_the_expected_answers_are_judged_right_and_spoilt_ones_wrong() -> None:
    for case in load_cases():
        before = "Hm.\n</think>\n\n" if case.is_thinking else ""
        expected = case.answer
        assert is_right(case, before + expected), (case.ability, case.check, expected)
        assert not is_right(case, before + "<think>")
        assert not is_right(case, "I cannot say."), case.ability
        if case.is_thinking:
            assert not is_right(case, expected)


def test_json_is_compared_by_value() -> None:
    case = Case("extract", "seen", [], [], False, json.dumps({"a": 1, "b": None}), ["json"])
    assert is_right(case, '{"b": null, "a": 1}')
    assert not is_right(case, '{"a": "1", "b": null}')
    assert not is_right(case, 'Here: {"a": 1, "b": null}')
