"""Pieces of text add up to what the tokenizer decodes, whole characters only, and stop strings are never shown."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from hemiola.llm.detokenize import Detokenizer, Piece
from hemiola.llm.tokenizer import TextTokenizer

TEXTS = [
    "Hello, world! How are you?",
    "naïve café — “quotes” … ½",
    "漢字とかな交じり文、そして한국어",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 flags 🇯🇵🇧🇷 and 👍🏽",
    "mixed 漢😀a\n\n\tend ",
    "",
]


def byte_level(folder: Path) -> TextTokenizer:
    """Few merges, so that most characters are several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return _saved(tokenizer, folder)


def sentence_pieces(folder: Path) -> TextTokenizer:
    """Metaspace with byte fallback, as in Llama 2."""
    vocab = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    for piece in ["▁", "▁Hello", "Hello", ",", "▁world", "!", "▁How", "a", "e", "n", "d", "漢", "字"]:
        vocab[piece] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _saved(tokenizer, folder)


def _saved(tokenizer: Tokenizer, folder: Path) -> TextTokenizer:
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<tool call>", special=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return TextTokenizer(folder)


@pytest.fixture(params=[byte_level, sentence_pieces], ids=lambda make: make.__name__)
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> TextTokenizer:
    make: Callable[[Path], TextTokenizer] = request.param
    return make(tmp_path)


def id_of(tokenizer: TextTokenizer, token: str) -> int:
    token_id = tokenizer.id_of(token)
    assert token_id is not None, token
    return token_id


def pieces(tokenizer: TextTokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(token_id).text for token_id in ids), detokenizer.finish()]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_add_up_and_hold_whole_characters(tokenizer: TextTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    got = pieces(tokenizer, ids)
    assert "".join(got) == tokenizer.decode(ids)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(got)


def test_special_tokens_are_not_shown_and_others_are(tokenizer: TextTokenizer) -> None:
    ids = [*tokenizer.encode("Hello"), id_of(tokenizer, "<tool call>"), id_of(tokenizer, "<|end|>")]
    assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids)
    assert "".join(pieces(tokenizer, ids)).endswith("<tool call>")


@pytest.mark.parametrize("seed", range(40))
def test_any_tokens_at_all_add_up_in_a_byte_level_vocabulary(tmp_path: Path, seed: int) -> None:
    """Random bytes, most of them no UTF-8: each wrong sequence becomes U+FFFD as the tokenizer says."""
    tokenizer = byte_level(tmp_path)
    rng = random.Random(seed)
    ids = [rng.randrange(tokenizer.vocab_size) for _ in range(60)] + tokenizer.encode("end")
    assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_token_that_the_tokenizer_does_not_have_is_shown_by_its_number(tokenizer: TextTokenizer) -> None:
    detokenizer = Detokenizer(tokenizer, stops=("\N{MATHEMATICAL LEFT ANGLE BRACKET}9",))
    (a,) = tokenizer.encode("a")[-1:]
    texts = [detokenizer.push(token_id) for token_id in (a, 150_000, a, 90_000)]
    assert "".join(piece.text for piece in texts) == "a⟨150000⟩a"
    assert texts[-1].stopped_by == "⟨9"


def test_invalid_bytes_come_out_once_they_cannot_be_a_character(tokenizer: TextTokenizer) -> None:
    lead = tokenizer.encode("漢字")[0] if tokenizer.is_byte_level else id_of(tokenizer, "<0xE6>")
    ids = [lead] * 12 + tokenizer.encode("end")
    got = pieces(tokenizer, ids)
    assert "".join(got) == tokenizer.decode(ids)
    assert "".join(got[:10]) != ""


def test_an_unfinished_character_at_the_end_is_not_shown(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    ids = tokenizer.encode("ok 🏴")
    assert len(ids) > 3
    assert "".join(pieces(tokenizer, ids[:-1])) == "ok "


def feed(tokenizer: TextTokenizer, text: str, stops: list[str]) -> tuple[list[Piece], str]:
    detokenizer = Detokenizer(tokenizer, stops)
    got = [detokenizer.push(token_id) for token_id in tokenizer.encode(text)]
    return got, detokenizer.finish()


def test_text_stops_before_the_stop_string_wherever_tokens_cut_it(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    text = "first line\n\nUser: more 漢字 END of it"
    for stop in ("\n\nUser:", "字", "END", "f", "it"):
        got, rest = feed(tokenizer, text, ["never", stop])
        assert "".join(piece.text for piece in got) == text[: text.index(stop)]
        assert (got[-1].stopped_by, rest) == (stop, "")


def test_what_only_began_like_a_stop_string_is_shown_after_all(tmp_path: Path) -> None:
    got, rest = feed(byte_level(tmp_path), "aab aab aaa", ["aabx", "aac"])
    assert "".join(piece.text for piece in got) + rest == "aab aab aaa"
    assert {piece.stopped_by for piece in got} == {None}
    assert rest == "aa"


def test_the_earliest_stop_string_wins(tmp_path: Path) -> None:
    detokenizer = Detokenizer(byte_level(tmp_path), ["wo", "ne"])
    piece = detokenizer._watch("one two")  # all at once, as a long token would bring it
    assert piece == Piece("o", "ne")


def test_nothing_is_shown_after_the_stop(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    detokenizer = Detokenizer(tokenizer, ["b"])
    for token_id in tokenizer.encode("abab"):
        last = detokenizer.push(token_id)
    assert last == Piece("", "b")
