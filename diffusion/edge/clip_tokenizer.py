"""CLIP's tokenizer from vocab.json and merges.txt, for pipelines that ship without a tokenizer.json. No torch.

The parts are those of transformers' CLIPTokenizer: https://github.com/openai/CLIP/blob/main/clip/simple_tokenizer.py.
"""

from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

_START, _END = "<|startoftext|>", "<|endoftext|>"
_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def is_clip(folder: Path) -> bool:
    """Whether the folder holds such files, and no tokenizer.json."""
    names = ("vocab.json", "merges.txt")
    return not (folder / "tokenizer.json").is_file() and all((folder / name).is_file() for name in names)


def clip_tokenizer(folder: Path) -> Tokenizer:
    """Raises whatever the library does for files that are not what their names say."""
    vocab, merges = BPE.read_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = Tokenizer(
        BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix="</w>", fuse_unk=False, unk_token=_END)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.add_special_tokens([_START, _END])
    ends = (_END, vocab[_END]), (_START, vocab[_START])
    tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=False, add_prefix_space=False)
    return tokenizer
