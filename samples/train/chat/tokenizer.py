"""Train the byte-level BPE on generated conversations: ``python -m samples.train.chat.tokenizer OUT_FILE``.

6,144 entries: 256 bytes, merges, three special tokens and the markers of tools and thoughts. Words of the scenes'
captions are weighted so that each becomes one or two tokens.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from samples.train.chat.mixture import conversation, training_world
from samples.train.chat.rendering import END_OF_TEXT, IM_END, MARKERS, SPECIAL, head
from samples.train.chat.world import table
from samples.train.scenes.vocabulary import MOTIONS, THINGS, TINTS, caption, sample_clip, sample_scene

VOCABULARY = 6144
FILE = Path(__file__).with_name("tokenizer.json")
TEMPLATE = Path(__file__).with_name("chat_template.jinja")
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def corpus(num_conversations: int) -> Iterator[str]:
    """Texts in about the mixture of training, plus the words that must be short."""
    world = training_world(7)
    rng = world.rng
    for i in range(num_conversations):
        talk = conversation(world)
        for turn in talk.turns:
            yield turn.content
            if turn.think:
                yield turn.think
        if talk.tools and i % 4 == 0:
            yield head(talk)
    for _ in range(num_conversations // 2):
        yield caption(rng, sample_scene(rng) if rng.random() < 0.7 else sample_clip(rng))
    for word in [*TINTS, *MOTIONS, *(thing.name for thing in THINGS), *(thing.plural for thing in THINGS)]:
        for part in word.split():
            yield from [f"a {part}"] * 300
    for emoji, label in table("chat_emoji.tsv"):
        yield from [emoji + " " + label] * 12


def train(num_conversations: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKERS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=16,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(num_conversations), trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in MARKERS])
    assert tokenizer.get_vocab_size() == VOCABULARY, tokenizer.get_vocab_size()
    return tokenizer


def load() -> Tokenizer:
    return Tokenizer.from_file(str(FILE))


def fast_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer with its chat template, as transformers uses it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=load(),
        eos_token=IM_END,
        pad_token=END_OF_TEXT,
        model_max_length=4096,
        padding_side="right",
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATE.read_text(encoding="utf-8"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--conversations", type=int, default=40_000)
    args = parser.parse_args()
    train(args.conversations).save(str(args.out), pretty=False)


if __name__ == "__main__":
    main()
