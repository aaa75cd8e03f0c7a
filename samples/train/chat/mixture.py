"""The training mixture: conversations as the evaluation has them, and what only training needs.

More wordings come from the world (see training_world). Here are more kinds of extraction, several requests at once, tasks
given by the system text, wishes that need a tool when none is there, and tools among which everything else is asked.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from random import Random

from samples.train.chat import conversations
from samples.train.chat.abilities import extraction, media, memory, social, strings, styles, tools
from samples.train.chat.abilities.families import FAMILIES
from samples.train.chat.conversations import ABILITIES, WORDINGS, turns_of, unit
from samples.train.chat.phrasebook import load_book
from samples.train.chat.rendering import Conversation, Turn
from samples.train.chat.surface import quoted
from samples.train.chat.training_world import TrainingWorld, relisted
from samples.train.chat.world import COUNTRIES, Abilities, Ability, Exchange, World, split, table
from samples.train.scenes.vocabulary import caption, sample_clip, sample_scene

INFORMING = (0, 3, 11, 12, 14, 18, 19, 20, 21, 28, 33)
"""Tool families that only tell something: without them the model says that it does not know."""
DRAWING = (1, 2)
_AMBIGUOUS = (10, 25)  # translations and dictionaries: close to what the model does itself


def mixed_case(world: World, is_upper: bool) -> Exchange:
    """Capitals or small letters of texts that have both, or figures."""
    text = world.phrase()
    text = world.rng.choice(
        (text.title(), text.capitalize(), f"{text} {world.code()}", world.full_name(), world.city())
    )
    key = "upper" if is_upper else "lower"
    shown = text if world.chance(0.5) else f'"{text}"'
    answer = text.upper() if is_upper else text.lower()
    kind = "capitals" if is_upper else "small letters"
    return Exchange(key, world.ask(key, q=shown), answer, f"I write {text} in {kind}.")


def either(share: float, ability: Ability, other: Ability) -> Ability:
    """The first of two abilities with the probability `share`."""
    return lambda world: (ability if world.chance(share) else other)(world)


def one_word(world: World) -> Exchange:
    """A question of several kinds, with the answer cut to one word by the user's own wish."""
    noisy, world.noisy = world.noisy, False
    base = _TRAINED.by_name[world.rng.choice(("capital", "opposite", "colour_fact"))](world)
    world.noisy = noisy
    word = base.answer.rstrip(".").split(" is ")[-1].split()[-1].capitalize()
    question = base.user[0].upper() + base.user[1:]
    question = question if question[-1] in ".?!" else question + world.rng.choice("?.")
    return Exchange("one_word", world.ask("one_word", q=question), word, "One word only.")


_SHORT = (
    "spell", "reverse", "upper", "lower", "first", "last", "length", "add", "subtract", "multiply", "next", "opposite", "to_emoji", "capital",
    "colour_fact", "from_emoji", "compare",
)  # fmt: skip


def combined(world: World) -> Exchange:
    """Two requests in one message, answered in their order, one a line."""
    noisy, world.noisy = world.noisy, False
    first, second = (_TRAINED.by_name[name](world) for name in world.rng.sample(_SHORT, 2))
    world.noisy = noisy
    joint = world.rng.choice(
        (" And ", "\n", " Then ", " Also: ", "\n\n", " After that: ", " Second question: ", "; then ")
    )
    if joint[0] == "\n" and world.chance(0.4):
        user = f"1. {first.user}\n2. {second.user}"
    else:
        begin = first.user if first.user[-1] in ".?!\"'" else first.user + world.rng.choice(".?;")
        user = begin + joint + second.user[0].lower() + second.user[1:]
    return Exchange("combined", user, f"{first.answer}\n{second.answer}", "Two requests, two lines.")


def toolless(world: World) -> Exchange:
    """A wish that needs a tool, and no tool is there."""
    families = [i for i in range(len(FAMILIES)) if i not in DRAWING + _AMBIGUOUS]
    index = world.rng.choice(families)
    user = tools.request(world, tools.family_tool(world, index)).user
    if index in INFORMING:
        return Exchange("unknown_fact", user, social.ANSWERS["unknown_fact"], social.THOUGHTS["unknown_fact"])
    return Exchange("tool_missing", user, "I have no tool for that.", "I have no tools here.")


def drawing_wish(world: World) -> Exchange:
    """A picture or a clip is wanted, and no tool is there: the model answers with the prompt."""
    is_clip = world.chance(0.35)
    scene = sample_clip(world.rng) if is_clip else sample_scene(world.rng)
    text = caption(world.rng, scene)
    if text.split(" ", 1)[0] in ("a", "an", "two", "three", "four"):
        text = world.ask(f"family_{DRAWING[is_clip]}", **{"0": text})
    answer = f"Good idea! {'Video' if is_clip else 'Image'} prompt: {media.canonical(scene)}"
    return Exchange("draw", text, answer, "The user describes a scene.")


_WEIGHTS: dict[str, float] = {
    "greet": 1.4, "how": 1.6, "thanks": 1.8, "bye": 1.8, "who": 2, "can": 2, "unknown_fact": 2.6, "joke": 1.8, "define": 7, "unknown_word": 2, "spell": 2.6, "reverse": 4, "upper": 3.4, "lower": 3.2,
    "first": 2, "last": 2, "length": 2.8, "count_words": 2.4, "sort": 3.2, "subtract": 3.8, "multiply": 1.8, "compare": 2.4,
    "problem": 4.5, "extract": 13, "make_json": 3.2, "json_list": 3.2, "plain_words": 2.6, "one_word": 2, "draw": 7,
}  # fmt: skip
_OWN: dict[str, Ability] = {
    "extract": extraction.extract, "make_json": extraction.make_json,
    "upper": either(0.86, strings.upper, partial(mixed_case, is_upper=True)),
    "lower": either(0.86, strings.lower, partial(mixed_case, is_upper=False)),
    "one_word": either(0.5, styles.one_word, one_word),
}  # fmt: skip
TRAINED: dict[str, tuple[float, Ability]] = {
    **{name: (_WEIGHTS.get(name, weight), _OWN.get(name, ability)) for name, (weight, ability) in ABILITIES.items()},
    "combined": (1.4, combined), "toolless": (1.8, toolless), "drawing_wish": (1.6, drawing_wish),
}  # fmt: skip
_TRAINED = Abilities(TRAINED)
_SERVED_BY = {
    "family_25": ("define", "unknown_word", "opposite"),
    "family_28": ("capital",),
    "family_10": ("upper", "lower"),
}
"""Abilities whose wordings could be meant for a tool of the family."""


@cache
def beside_tools(shapes: frozenset[str]) -> Abilities:
    """What can be asked while tools of these shapes are offered without being a request for them."""
    left_out = {name for shape in shapes for name in _SERVED_BY.get(shape, ())}
    left_out |= {"unknown_fact", "toolless", "drawing_wish", "draw", "combined"}
    return Abilities({name: weighted for name, weighted in TRAINED.items() if name not in left_out})


def training_world(seed: int, part: str = "all", has_rewording: bool = False) -> TrainingWorld:
    """The world of one worker; `part` as in load_book, `has_rewording` for other words in the wordings (see rewording)."""
    book = load_book(part)
    if has_rewording:
        book = replace(book, strangers=split("word", False))
    world = TrainingWorld(Random(seed), WORDINGS, book=book)
    world.abilities = _TRAINED
    return world


_GIVEN: dict[str, Callable[[World], tuple[str, str]]] = {
    "spell": lambda w: _pair(w.word(), "-".join), "reverse": lambda w: _pair(w.word(), lambda t: t[::-1]),
    "upper": lambda w: _pair(w.phrase(), str.upper), "lower": lambda w: _pair(w.phrase().upper(), str.lower),
    "first": lambda w: _pair(w.word(), lambda t: f"The first letter is {t[0]}."),
    "last": lambda w: _pair(w.word(), lambda t: f"The last letter is {t[-1]}."),
    "length": lambda w: _pair(w.word(), lambda t: f"It has {len(t)} letters."),
    "count_words": lambda w: _pair(w.phrase(), lambda t: f"There are {len(t.split())} words."),
    "define": lambda w: _defined(w), "opposite": lambda w: _opposite(w), "capital": lambda w: _capital(w),
    "to_emoji": lambda w: _emoji(w), "sort": lambda w: _sorted(w),
}  # fmt: skip


def _pair(text: str, answer: Callable[[str], str]) -> tuple[str, str]:
    return text, answer(text)


def _defined(world: World) -> tuple[str, str]:
    word, pos, gloss = world.rng.choice(table("chat_definitions.tsv"))
    return word, f"{word.capitalize()} ({pos}): {gloss}."


def _opposite(world: World) -> tuple[str, str]:
    word, other = world.rng.choice(table("chat_antonyms.tsv"))
    return word, f"The opposite of {word} is {other}."


def _capital(world: World) -> tuple[str, str]:
    country, city = world.rng.choice(COUNTRIES).split(":")
    return country, f"The capital of {country} is {city}."


def _emoji(world: World) -> tuple[str, str]:
    emoji, label = world.rng.choice(table("chat_emoji.tsv"))
    return label, emoji


def _sorted(world: World) -> tuple[str, str]:
    words = list({word[0]: word for word in world.sample("common", 4)}.values())
    return relisted(world.rng, world.rng.sample(words, len(words))).strip("\n"), ", ".join(sorted(words))


def system_task(world: TrainingWorld) -> Conversation:
    """The system text says what to do; the user's messages are nothing but the data."""
    key = world.rng.choice(list(_GIVEN))
    text = "".join(world.book.instruction(world.rng, key))
    system = text[0].upper() + text[1:] if world.chance(0.7) else text
    is_thinking = world.chance(0.2)
    turns: list[Turn] = []
    for _ in range(world.number(1, 4)):
        given, answer = _GIVEN[key](world)
        shown = quoted(world.rng, given) if world.chance(0.15) and "\n" not in given else given
        turns += turns_of(Exchange(key, shown, answer, "The system text says what to do."), is_thinking)
    return Conversation(turns, system)


def memory_conversation(world: TrainingWorld) -> Conversation:
    """As in the evaluation, with several questions at once and more questions for what was never said."""
    low, high = world.rng.choices(((0, 4), (5, 16), (20, 55), (55, 95)), (0.72, 0.22, 0.035, 0.025))[0]
    exchanges, facts = conversations.memory_talk(world, world.number(low, high), world.rng.choice((1, 1, 2, 2, 3, 4)))
    held = [(fact.kind, fact.key) for fact in facts]
    asked = world.rng.sample(facts, world.number(1, len(facts)))
    if len(asked) > 1 and world.chance(0.25):
        exchanges.append(memory.recall_many(world, asked[:3]))
        asked = asked[3:]
    for fact in asked:
        exchanges.append(memory.recall(world, fact))
        if world.chance(0.2):
            exchanges.append(unit(world))
    if world.chance(0.24):
        exchanges.append(memory.recall_all(world, facts))
    if world.chance(0.24):
        other = memory.new_fact(world)
        if (other.kind, other.key) not in held:
            exchanges.insert(world.number(len(exchanges) - 1, len(exchanges)), memory.unknown(world, other))
    return conversations.joined(world, exchanges)


def forgetful_conversation(world: TrainingWorld) -> Conversation:
    """Questions for facts of which nothing was said at all."""
    exchanges = [unit(world) for _ in range(world.rng.choice((0, 0, 1, 2)))]
    exchanges += [memory.unknown(world, memory.new_fact(world)) for _ in range(world.rng.choice((1, 1, 2)))]
    return conversations.joined(world, exchanges)


def tool_conversation(world: TrainingWorld) -> Conversation:
    """Tools are offered; one message in three is about something else."""
    offered = conversations.tool_set(world, world.rng.choice((1, 1, 2, 2, 3, 4, 5)))
    talk = conversations.with_tools(world, offered)
    is_thinking = world.chance(0.25)
    world.abilities = beside_tools(frozenset(tool.shape for tool in offered) & set(_SERVED_BY))
    for _ in range(world.rng.choice((1, 1, 1, 2, 2, 3))):
        kind = world.rng.random()
        if kind < 0.33:
            talk.turns += turns_of(unit(world), is_thinking)
        elif kind < 0.41:
            talk.turns += turns_of(conversations.missing_tool(world, offered), is_thinking)
        elif kind < 0.53 and len(offered) > 1:
            talk.turns += conversations.two_calls(world, world.rng.sample(offered, 2), is_thinking)
        else:
            talk.turns += conversations.one_call(world, world.rng.choice(offered), is_thinking)
    world.abilities = _TRAINED
    return talk


KINDS: tuple[tuple[float, Callable[[TrainingWorld], Conversation]], ...] = (
    (47, conversations.short_talk), (10, conversations.long_talk), (3.5, conversations.quiz), (4.5, conversations.scene_conversation),
    (13, memory_conversation), (1.2, forgetful_conversation), (4.5, conversations.persona_conversation),
    (4, conversations.styled_conversation), (1.8, system_task), (23, tool_conversation),
)  # fmt: skip
_FUNCTIONS, _SHARES = [kind for _, kind in KINDS], [share for share, _ in KINDS]


def conversation(world: TrainingWorld) -> Conversation:
    """A conversation of the training mixture."""
    return world.rng.choices(_FUNCTIONS, _SHARES)[0](world)
