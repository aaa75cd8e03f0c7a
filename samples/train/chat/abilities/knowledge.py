"""Facts that are memorised: definitions, opposites, emoji, capitals, and members of categories."""

from functools import cache

from samples.train.chat.abilities.phrases import DO, KNOW, WANT
from samples.train.chat.world import CATEGORIES, COUNTRIES, Exchange, World, article, table

WORDINGS: dict[str, tuple[str, ...]] = {
    "define": (
        DO
        + "(define|explain|describe) (|the word |the meaning of |the meaning of the word |the term |for me ){q}(|.)(| in (one sentence|a few words|short|simple words).| briefly.)",
        "(what does|what would|what might) (|the word |the term ){q} mean(| in English| exactly)?",
        "(what's|what is) (meant by|the (meaning|definition|sense) of) (|the word |the term ){q}?",
        WANT
        + " (a|the|one|a short|the short|a simple|a quick) (definition|explanation|meaning) (of|for) (|the word |the term ){q}(|.)",
        KNOW + " what (|the word |the term ){q} means(|.|?)",
        "(definition|meaning|define|explanation|sense)(| of| wanted)(: | - | )(|the word ){q}(|?|.)",
        "{q}(: | - |, |? |... )(what does it mean|what does that mean|what is that|definition|define it|meaning|explain|in other words|what's the meaning)(|?|.)",
        "(how would you|how do you|how can I|how would one) (define|explain|describe) (|the word |the term ){q}?",
        "I (do not|don't) (know|understand|get) (|the word |the term |what is ){q}(, |. |; )(what does it mean|explain it|define it|please explain|help|what is it|can you explain)(|?|.)",
        "(my (son|daughter|friend|teacher) asked me|someone asked me|a kid asks|the question is) what {q} (means|is)(|.|?)",
        "(what|which) definition (does|would) (a|the|your) dictionary (have|give|list) for {q}?",
        "(look up|look|check) {q} (in (a|the|your) dictionary|for me)(|.)(| what does it say?)",
        "(in a dictionary|in your dictionary|in plain English), what (is|does) {q}(| mean)?",
    ),
    "what_is": (
        "(what's|what is|what exactly is|so what is) {a}?",
        KNOW + " what {a} is(|.|?)",
        "(explain|describe|define) (to me |)(what {a} is|{a})(|.)",
        "(what kind of thing|what sort of thing) is {a}?",
        "{a}(: |, )what is (it|that)?",
    ),
    "opposite": (
        WANT + " (the|an|one) (opposite|antonym|opposite word|contrary|reverse) (of|to|for) (|the word ){q}(|.|?)",
        "(what's|what is|what would be|which word is|which word means|what word is) (|the )(opposite|contrary|antonym) (of|to) (|the word ){q}(| called)?",
        "(opposite|antonym|antonym for|opposite word|contrary)(| of| to)(: | - | ){q}(|?|.)",
        "(if it|if something|if someone|when something) is not {q}, (what is it|it is what|then what)(|?)",
        "{q}(: | - |, |? )(opposite|antonym|what is the opposite|the opposite|and the opposite|its opposite)(|?|.)",
        "(which|what) word (has|carries) the opposite (meaning|sense) (of|to) {q}?",
        DO
        + "(name|find|think of|write|give) (a|the|one) word that (means the opposite of|is the opposite of|is opposite to) {q}(|.)",
        KNOW + " the (opposite|antonym) of {q}(|.|?)",
        "(the opposite of|not) {q} (is|means)(|...|:|?)",
    ),
    "to_emoji": (
        WANT + " (the|an|a|one) emoji (of|for|that shows|showing|meaning|called) (|a |the ){q}(|.|?)",
        "(which|what) emoji (is|shows|means|stands for|has the name|depicts|is called|do I use for|should I use for|would you use for) (|a |the ){q}?",
        "(emoji|emoji please|emoji wanted|emoji for)(: | - | )(|a ){q}(|?|.)",
        "{q}(: |, | )(as an emoji|emoji|in emoji|emoji please)(|?|.)",
        DO + "(send|show|type|write|post|print|draw) (me |)(|the |an )emoji (for|of|called) {q}(|.)",
        DO + "(turn|convert|translate|change) {q} (into|to) (an emoji|emoji|one emoji)(|.)",
        "(is there|do you have|do you know) (an|the) emoji (for|of) {q}?",
        "how do I (write|type|say) {q} (with|as|in) (an |)emoji?",
    ),
    "from_emoji": (
        "(what|which) (does|is) (|the emoji |this emoji |this: ){e}(| mean| called| show| stand for)?",
        "(what's|what is) (the name of |the meaning of |)(|this emoji: |the emoji |this: ){e}(| in words| called)?",
        WANT + " (the name|the meaning|a description|the label) (of|for) (|the emoji |this emoji ){e}(|.|?)",
        DO + "(name|describe|explain|identify|label) (this emoji: |the emoji |this: |){e}(|.)",
        "{e}(| )(: |, |- )(what is (that|this|it)|meaning|what does it mean|name it|name|in words|which emoji is it|what emoji is this)(|?|.)",
        "(someone|my friend|she|he|my boss) (sent|wrote|texted) (me |){e}(. |, )(what is it|what does it mean|what is that|explain)(|?)",
        "(how|what) (would you|do you|do people) call {e}?",
        KNOW + " what {e} (means|is|is called|stands for)(|.|?)",
    ),
    "capital": (
        "(what's|what is|which city is|what city is) the capital (of|city of) {x}?",
        WANT + " the capital (|city )of {x}(|.|?)",
        KNOW + " (the capital of {x}|what the capital of {x} is)(|.|?)",
        "(capital|capital of|capital city|the capital)(: | - | )(of |){x}(|?|.)",
        "{x}(: |, | - |)('s| its|) capital(|?| is?| city?)",
        "(which|what) city is (the seat of government of|the capital in) {x}?",
        "(the|what) capital of {x} is (what|called|named|which city)?",
        DO + "(name|give|state) the capital of {x}(|.)",
    ),
    "list": (
        DO
        + "(name|list|give me|write|write down|think of|tell me|enumerate|say|mention|suggest) {n} (different |)(|kinds of |types of |examples of |random ){c}(|.)",
        WANT + " {n} (different |)(|examples of |kinds of ){c}(|.|?)",
        "(a list of|list of|list|list:) {n} {c}(|.)",
        "(what are|which are|do you know|know) {n} (different |)(|examples of ){c}?",
        "{n} {c}(|, please|!|?| as a list)",
        "{c}(: |, )(name|list|give me) {n}(|.)",
        "(can you come up with|come up with|could you list) {n} {c}(|?)",
    ),
}

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")


@cache
def _defined() -> frozenset[str]:
    return frozenset(word for word, _, _ in table("chat_definitions.tsv"))


def quoted(world: World, word: str) -> str:
    return world.rng.choice((word, word, f"'{word}'", f'"{word}"'))


def define(world: World) -> Exchange:
    word, pos, gloss = world.rng.choice(table("chat_definitions.tsv"))
    if pos == "noun" and world.chance(0.3):
        user = world.ask("what_is", a=world.rng.choice((article(word), word)))
    else:
        user = world.ask("define", q=quoted(world, word))
    return Exchange("define", user, f"{word.capitalize()} ({pos}): {gloss}.", f"The word is {word}, a {pos}.")


def unknown_word(world: World) -> Exchange:
    word = world.invented() + world.rng.choice(("", "", "x", "zk", "ple", "ork"))
    while world.is_training and word in _defined():
        word = world.invented()
    user = world.ask("define", q=quoted(world, word))
    return Exchange("unknown_word", user, f'I do not know the word "{word}".', f"{word} is not a word I know.")


def opposite(world: World) -> Exchange:
    word, other = world.rng.choice(table("chat_antonyms.tsv"))
    user = world.ask("opposite", q=quoted(world, word))
    return Exchange("opposite", user, f"The opposite of {word} is {other}.", f"{word} and {other} are opposites.")


def to_emoji(world: World) -> Exchange:
    emoji, label = world.rng.choice(table("chat_emoji.tsv"))
    return Exchange("to_emoji", world.ask("to_emoji", q=quoted(world, label)), emoji, f"The emoji {label} is {emoji}.")


def from_emoji(world: World) -> Exchange:
    emoji, label = world.rng.choice(table("chat_emoji.tsv"))
    return Exchange("from_emoji", world.ask("from_emoji", e=emoji), f"{emoji} is {label}.", f"{emoji} has a name.")


def capital(world: World) -> Exchange:
    country, city = world.rng.choice(COUNTRIES).split(":")
    answer = f"The capital of {country} is {city}."
    return Exchange("capital", world.ask("capital", x=country), answer, f"{country}: {city}.")


def members(world: World) -> tuple[str, int, list[str]]:
    """A category, a count, and what a right list may hold."""
    category = world.rng.choice(sorted(CATEGORIES))
    found = CATEGORIES[category].split("|")
    return category, world.number(2, min(5, len(found))), found


def list_items(world: World) -> Exchange:
    category, count, found = members(world)
    number = NUMBERS[count] if world.chance(0.6) else str(count)
    answer = "\n".join(f"{i}. {item}" for i, item in enumerate(found[:count], 1))
    think = f"I list {count} {category}."
    return Exchange("list", world.ask("list", n=number, c=category), answer, think, ("members", str(count), *found))
