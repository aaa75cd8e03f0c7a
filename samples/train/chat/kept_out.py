"""The wordings that training must not produce: digests of the hand-written ones of the evaluation.

``python -m samples.train.chat.kept_out`` writes them again when the evaluation's wordings change. A request is compared
whole, with a placeholder for whatever was filled in, without case, punctuation, spaces, articles and short forms. The
training code knows the digests alone.
"""

import re
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from pathlib import Path

from samples.train.chat.grammar import PLACEHOLDER, Slot
from samples.train.chat.surface import DROPPED, SHORTENED

FILE = Path(__file__).with_name("wordings") / "kept_out.digests"
_LENGTHENED = {short: word for word, shorts in SHORTENED.items() for short in shorts}


def digest(wording: str) -> str:
    """The same for all ways of typing a wording; its slots are written {name} or as the placeholder."""
    text = re.sub(r"\{\w+\}", PLACEHOLDER, wording).lower().replace("'", "")
    words = [_LENGTHENED.get(word, word) for word in re.findall(r"[^\W_]+", text)]
    return blake2b("".join(word for word in words if word not in DROPPED).encode(), digest_size=8).hexdigest()


@cache
def digests() -> frozenset[str]:
    return frozenset(FILE.read_text(encoding="utf-8").split())


def is_kept_out(pieces: Iterable[str]) -> bool:
    """Whether a text in pieces (see grammar.pieces) is worded as one of the evaluation."""
    return digest("".join(PLACEHOLDER if isinstance(piece, Slot) else piece for piece in pieces)) in digests()


def main() -> None:
    from samples.train.chat.evaluation.wordings import UNSEEN

    found = {digest(text) for texts in UNSEEN.values() for text in texts}
    FILE.write_text("\n".join(sorted(found)) + "\n", encoding="utf-8")
    print(f"{len(found)} digests in {FILE}")


if __name__ == "__main__":
    main()
