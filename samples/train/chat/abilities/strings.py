"""Letters and words as strings: spelling, reversing, case, first and last letters, counting, sorting, repeating."""

from samples.train.chat.abilities.phrases import DO, WANT
from samples.train.chat.world import Exchange, World

OF = "(|the word |this word: |the word: |this: )"
WORDINGS: dict[str, tuple[str, ...]] = {
    "spell": (
        DO + "spell (out |)" + OF + "{q}(|.)(| letter by letter.| with hyphens.| slowly.| for me.)",
        "(how do you|how do I|how would you|how does one|how is|how to) (spell|write|spell out) "
        + OF
        + "{q}(| spelled| letter by letter)?",
        WANT + " the (spelling|letters) of " + OF + "{q}(|.|?)",
        "(spelling|spell|spell it|spelling of|letters of|letters)(: | ){q}(|.|?)",
        "{q}(: |, | - )(spell it|spell that|spelling|spell it out|how is it spelled|letter by letter)(|.|?)",
        DO
        + "(write|split|break|separate|list|print) "
        + OF
        + "{q} (letter by letter|into letters|into its letters|one letter at a time|into single letters|with a hyphen between the letters)(|.)",
        "(what are|which are|list|name) (the|all the) letters (of|in) " + OF + "{q}(|?|.)",
        "(which|what) letters (make up|are in|does one need for|spell) " + OF + "{q}?",
    ),
    "reverse": (
        DO + "(reverse|flip|invert|turn around|mirror) (the letters (of|in) |)" + OF + "{q}(|.)",
        DO
        + "(write|spell|say|print|type|read|put) "
        + OF
        + "{q} (backwards|backward|in reverse|from back to front|from the end|in reverse order|back to front|the other way round)(|.)",
        "(what's|what is|how do you write|how do you spell|how would you write|how does one write) "
        + OF
        + "{q} (backwards|backward|in reverse|reversed|spelled backwards|back to front|from right to left)?",
        "(reverse|backwards|reversed|in reverse|flipped)(: | - ){q}(|.)",
        "{q}(: |, | - )(backwards|reverse it|reversed|in reverse|written backwards|flip it)(|.|?)",
        WANT + " (the reverse|the reversed form|the mirror image|the backwards spelling) of " + OF + "{q}(|.|?)",
        "(if you|if I|when you) (reverse|flip|read backwards) {q}, what (do you|do I|does one) get?",
    ),
    "upper": (
        DO
        + "(write|put|type|print|say|convert|turn|change|set|transform) (|the word |the text |the words )({q}) (in|into|to|using|with) (upper case|uppercase|capitals|capital letters|all caps|big letters|caps|block letters)(|.)",
        DO
        + "(uppercase|capitalise|capitalize|shout) (all letters of |every letter of |the whole text |)(|the word |the text |this: ){q}(|.)",
        "(uppercase|upper case|in capitals|all caps|caps|capitals|to upper case)(: | - ){q}(|.)",
        "{q}(: |, | - )(in capitals|uppercase|in upper case|all caps please|make it uppercase|in capital letters)(|.|?)",
        "(how does|what does|how do I write) {q} (look|look like|) (in|with) (capitals|upper case|capital letters|all caps)?",
        WANT + " {q} in (capitals|upper case|uppercase|capital letters|all caps)(|.|?)",
    ),
    "lower": (
        DO
        + "(write|put|type|print|convert|turn|change|set|transform) (|the word |the text |the words ){q} (in|into|to|using|with) (lower case|lowercase|small letters|lowercase letters)(|.)",
        DO + "(lowercase|lower) (all letters of |every letter of |)(|the word |the text |this: ){q}(|.)",
        "(lowercase|lower case|in small letters|to lower case|small letters)(: | - ){q}(|.)",
        "{q}(: |, | - )(in small letters|lowercase|in lower case|make it lowercase|without capitals)(|.|?)",
        WANT + " {q} in (small letters|lower case|lowercase)(|.|?)",
    ),
    "first": (
        "(what's|what is|which is|what would be) the (first|initial|starting|very first) (letter|character) (of|in) "
        + OF
        + "{q}?",
        "(which|what) (letter|character) does " + OF + "{q} (start|begin) with?",
        WANT + " the (first|initial|starting) (letter|character) (of|in) " + OF + "{q}(|.|?)",
        "(first letter|initial|starting letter|first character|the first letter)(| of)(: | ){q}(|?|.)",
        "{q}(: |, | - )(first letter|what is the first letter|starts with which letter|initial)(|?|.)",
        "(with what|with which) letter does {q} (start|begin)?",
    ),
    "last": (
        "(what's|what is|which is|what would be) the (last|final|ending|very last) (letter|character) (of|in) "
        + OF
        + "{q}?",
        "(which|what) (letter|character) does " + OF + "{q} (end|finish) (with|in)?",
        WANT + " the (last|final|ending) (letter|character) (of|in) " + OF + "{q}(|.|?)",
        "(last letter|final letter|ending|last character|the last letter)(| of)(: | ){q}(|?|.)",
        "{q}(: |, | - )(last letter|what is the last letter|ends with which letter|final letter)(|?|.)",
        "(with what|with which) letter does {q} (end|finish|stop)?",
    ),
    "length": (
        "how (many|much) (letters|characters) (does|are in|are there in|has|in) " + OF + "{q}(| have| contain)?",
        "(count|number|total) (of |)(the |)(letters|characters) (in|of) " + OF + "{q}(|.)",
        "(what's|what is) the (length|number of letters|letter count|size) of " + OF + "{q}(| in letters)?",
        "how long is " + OF + "{q}(| in letters)?",
        DO + "count (the|all the|how many) letters (of|in|are in) " + OF + "{q}(|.)",
        "{q}(: |, | - )(how many letters|how long is it|count the letters|letter count|number of letters)(|?|.)",
        WANT + " the (length|letter count|number of letters) of " + OF + "{q}(|.|?)",
    ),
    "count_words": (
        "how many words (are in|are there in|does|has|are) (|the sentence |this: |this sentence: )(\"{s}\"|'{s}')(| have| contain)?",
        DO + 'count (the|all the) words (in|of) (|this sentence: |the sentence |this: )("{s}"|{s})(|.)',
        '(number of words|word count|words|count the words|how many words)(| in)(: | - )("{s}"|{s})',
        '(what\'s|what is) the (word count|number of words) (of|in) "{s}"?',
        '"{s}"(: |, | - )(how many words|count the words|word count|how many words is that)(|?|.)',
    ),
    "sort": (
        DO
        + "(sort|order|arrange|put|alphabetise) (these words|the words|this list|the following|these) (alphabetically|in alphabetical order|from a to z|by the alphabet)(: | - |:\n){l}",
        DO + "(sort|order|arrange) (alphabetically|from a to z|in alphabetical order)(: |:\n){l}",
        "(alphabetical order|sorted from a to z|sort|sort from a to z|order alphabetically)(: |, please: ){l}",
        "{l}(: | - )(sort them|sort these|in alphabetical order|order them alphabetically|from a to z)(|.|?)",
        "(what is|which is|give me) the alphabetical order of (these words: |){l}(|?|.)",
    ),
    "repeat": (
        DO
        + "(repeat|say|echo|copy|write|write down|type|print) (after me|this|exactly|exactly this|this sentence|this text|the following|these words|back to me|my words)(: | - |:\n)(\"{s}\"|{s}|'{s}')",
        '(repeat|echo|copy|parrot|copy this|say this|repeat after me|say it again|word for word|verbatim)(: | - )("{s}"|{s})',
        DO
        + '(say|repeat|write|echo|print|type) "{s}"(|.)(| nothing else.| and nothing else.| word for word.| exactly.)',
        '(what did I say|answer only with|respond with exactly|reply with|your answer must be|your answer should be)(: | )"{s}"(|.)',
        '"{s}"(: |, | - )(repeat that|say that|say it back|copy that|repeat it word for word)(|.)',
    ),
}


def _word(world: World) -> tuple[str, str]:
    word = world.word()
    return word, world.rng.choice((word, word, f"'{word}'", f'"{word}"'))


def spell(world: World) -> Exchange:
    word, shown = _word(world)
    return Exchange("spell", world.ask("spell", q=shown), "-".join(word), f"The word is {word}.")


def reverse(world: World) -> Exchange:
    word, shown = _word(world)
    think = f"The letters are {'-'.join(word)}. Backwards: {'-'.join(reversed(word))}."
    return Exchange("reverse", world.ask("reverse", q=shown), word[::-1], think)


def upper(world: World) -> Exchange:
    text = world.word() if world.chance(0.5) else world.phrase()
    shown = text if world.chance(0.5) else f'"{text}"'
    return Exchange("upper", world.ask("upper", q=shown), text.upper(), f"I write {text} in capitals.")


def lower(world: World) -> Exchange:
    text = (world.word() if world.chance(0.5) else world.phrase()).upper()
    shown = text if world.chance(0.5) else f'"{text}"'
    return Exchange("lower", world.ask("lower", q=shown), text.lower(), f"I write {text} in small letters.")


def first_letter(world: World) -> Exchange:
    word, shown = _word(world)
    return Exchange(
        "first", world.ask("first", q=shown), f"The first letter is {word[0]}.", f"{word} starts with {word[0]}."
    )


def last_letter(world: World) -> Exchange:
    word, shown = _word(world)
    think = f"The letters are {'-'.join(word)}."
    return Exchange("last", world.ask("last", q=shown), f"The last letter is {word[-1]}.", think)


def length(world: World) -> Exchange:
    word, shown = _word(world)
    think = " ".join(f"{letter}:{i}" for i, letter in enumerate(word, 1))
    return Exchange("length", world.ask("length", q=shown), f"It has {len(word)} letters.", think)


def count_words(world: World) -> Exchange:
    words = world.sample("common", world.number(2, 9))
    think = " ".join(f"{word}:{i}" for i, word in enumerate(words, 1))
    return Exchange("count_words", world.ask("count_words", s=" ".join(words)), f"There are {len(words)} words.", think)


def sort_words(world: World) -> Exchange:
    words: dict[str, str] = {word[0]: word for word in world.sample("common", world.number(3, 5))}
    while len(words) < 3:
        word = world.pick("common")
        words[word[0]] = word
    shuffled = world.rng.sample(sorted(words.values()), len(words))
    answer = ", ".join(sorted(words.values()))
    initials = "".join(sorted(words))
    return Exchange("sort", world.ask("sort", l=", ".join(shuffled)), answer, f"First letters in order: {initials}.")


def repeat(world: World) -> Exchange:
    text = world.phrase()
    if world.chance(0.4):
        text = f"{world.name()} {world.rng.choice(('saw', 'has', 'likes', 'sold', 'lost'))} the {text}"
    if world.chance(0.3):
        text = f"{text} {world.code()}"
    return Exchange("repeat", world.ask("repeat", s=text), text, "I repeat the words exactly.")
