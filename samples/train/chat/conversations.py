"""Kinds of conversations: abilities with their weights, system texts, tools, thoughts and memories.

The evaluation set is drawn from these, too; `mixture` has what training draws besides, and how it mixes them.
"""

from functools import partial

from samples.train.chat.abilities import (
    knowledge,
    media,
    memory,
    numbers,
    reading,
    social,
    strings,
    structured,
    styles,
    tools,
)
from samples.train.chat.rendering import Conversation, Turn
from samples.train.chat.world import Abilities, Ability, Exchange, World, article

WORDINGS: dict[str, tuple[str, ...]] = {
    **social.WORDINGS, **knowledge.WORDINGS, **strings.WORDINGS, **numbers.WORDINGS, **media.WORDINGS,
    **structured.WORDINGS, **reading.WORDINGS, **memory.WORDINGS, **styles.WORDINGS, **tools.WORDINGS,
}  # fmt: skip

ABILITIES: dict[str, tuple[float, Ability]] = {
    **{key: (1.0, partial(social.social, key=key)) for key in ("greet", "how", "thanks", "bye")},
    **{key: (1.6, partial(social.social, key=key)) for key in ("who", "can")},
    "unknown_fact": (1.6, partial(social.social, key="unknown_fact")), "joke": (1.2, social.joke),
    "define": (8, knowledge.define), "unknown_word": (1.6, knowledge.unknown_word), "opposite": (3.5, knowledge.opposite),
    "to_emoji": (3.5, knowledge.to_emoji), "from_emoji": (3.5, knowledge.from_emoji), "capital": (1.6, knowledge.capital),
    "list": (2.2, knowledge.list_items), "colour_fact": (1.3, styles.colour_fact), "one_word": (1.6, styles.one_word),
    "spell": (2.2, strings.spell), "reverse": (2.6, strings.reverse), "upper": (2.2, strings.upper),
    "lower": (1.6, strings.lower), "first": (1.4, strings.first_letter), "last": (1.6, strings.last_letter),
    "length": (2.2, strings.length), "count_words": (2, strings.count_words), "sort": (1.6, strings.sort_words),
    "repeat": (3.2, strings.repeat),
    "add": (3.4, numbers.add), "subtract": (3.4, numbers.subtract), "multiply": (1.3, numbers.multiply),
    "compare": (1.8, numbers.compare), "next": (1, numbers.following), "problem": (4, numbers.problem),
    "count_items": (2.2, numbers.count_items),
    "image_prompt": (4.5, media.image_prompt), "video_prompt": (3.5, media.video_prompt), "mood_prompt": (2, media.mood_prompt),
    "surprise": (1.6, media.surprise), "caption_qa": (3, media.caption_qa), "plain_words": (3, media.plain_words),
    "draw": (6, media.draw_request), "caption_json": (2, media.caption_json),
    "extract": (11, structured.extract), "make_json": (3, structured.make_json), "json_list": (2.6, structured.json_list),
    "reading": (5, reading.reading),
}  # fmt: skip
_ABILITIES = Abilities(ABILITIES)
_FACTS = ("define", "define", "opposite", "to_emoji", "from_emoji", "capital", "colour_fact")
_SMALL = (
    "greet",
    "how",
    "thanks",
    "opposite",
    "to_emoji",
    "from_emoji",
    "capital",
    "add",
    "next",
    "first",
    "upper",
    "spell",
    "colour_fact",
    "joke",
    "list",
)


def unit(world: World) -> Exchange:
    """One exchange of any ability."""
    abilities = world.abilities or _ABILITIES
    return world.rng.choices(abilities.functions, abilities.weights)[0](world)


def named_unit(world: World, names: tuple[str, ...]) -> Exchange:
    return (world.abilities or _ABILITIES).by_name[world.rng.choice(names)](world)


def turns_of(exchange: Exchange, is_thinking: bool) -> list[Turn]:
    return [Turn("user", exchange.user), Turn("assistant", exchange.answer, exchange.think if is_thinking else None)]


def joined(world: World, exchanges: list[Exchange]) -> Conversation:
    """The exchanges as one conversation, at times under a system text."""
    return _join(world, exchanges, _system(world))


def with_tools(world: World, offered: list[tools.Tool]) -> Conversation:
    """A conversation that has not begun yet, with these tools."""
    return Conversation([], _system(world), [tools.definition(world, tool) for tool in offered])


def _join(world: World, exchanges: list[Exchange], system: str = "", mode: float | None = None) -> Conversation:
    """The exchanges as one conversation; a quarter think in every turn, a tenth in some."""
    roll = world.rng.random() if mode is None else mode
    turns: list[Turn] = []
    for exchange in exchanges:
        turns += turns_of(exchange, roll < 0.22 or (roll < 0.32 and world.chance(0.5)))
    return Conversation(turns, system)


def _system(world: World) -> str:
    return system_text(world, "plain_system") if world.chance(0.18) else ""


def system_text(world: World, key: str, **slots: str) -> str:
    """A system message; people write them without greetings."""
    noisy, world.noisy = world.noisy, False
    text = world.ask(key, **slots)
    world.noisy = noisy
    return text[0].upper() + text[1:] if world.chance(0.7) else text


def short_talk(world: World) -> Conversation:
    return _join(world, [unit(world) for _ in range(world.rng.choice((1, 1, 1, 2, 3)))], _system(world))


def long_talk(world: World) -> Conversation:
    exchanges: list[Exchange] = []
    for _ in range(world.number(3, 12)):
        exchanges += media.scene_talk(world) if world.chance(0.06) else [unit(world)]
    return _join(world, exchanges, _system(world))


def quiz(world: World) -> Conversation:
    """Many facts in a row: the cheapest way to learn them inside the chat format."""
    return _join(world, [named_unit(world, _FACTS) for _ in range(world.number(6, 16))], mode=1.0)


def scene_conversation(world: World) -> Conversation:
    exchanges = media.scene_talk(world)
    if world.chance(0.5):
        exchanges.insert(0, unit(world))
    if world.chance(0.3):
        exchanges += media.scene_talk(world)
    return _join(world, exchanges, _system(world))


def memory_talk(world: World, num_between: int, num_facts: int) -> tuple[list[Exchange], list[memory.Fact]]:
    """Facts among other turns, some of them corrected; the facts that hold at the end."""
    held: dict[tuple[str, str], memory.Fact] = {}
    exchanges: list[Exchange] = []
    for _ in range(num_facts):
        fact = memory.new_fact(world)
        is_update = (fact.kind, fact.key) in held
        held[(fact.kind, fact.key)] = fact
        exchanges.append(memory.state(world, fact, is_update))
    if world.chance(0.15):
        old = world.rng.choice(list(held.values()))
        new = memory.Fact(old.kind, old.key, memory.new_value_like(world, old))
        held[(old.kind, old.key)] = new
        exchanges.append(memory.state(world, new, is_update=True))
    for _ in range(num_between):
        between = [named_unit(world, _SMALL) if world.chance(0.5) else unit(world)]
        at = world.number(0, len(exchanges)) if world.chance(0.4) else len(exchanges)
        exchanges[at:at] = between
    return exchanges, list(held.values())


def persona_conversation(world: World) -> Conversation:
    name, role = world.name(), world.pick("job")
    if world.chance(0.3):
        role = f"{world.pick('a')} {world.pick('n')}"
    system = system_text(world, "persona", n=name, r=role)
    exchanges = []
    for _ in range(world.number(1, 3)):
        if world.chance(0.55):
            exchanges.append(persona_name(world, name, role))
        elif world.chance(0.6):
            exchanges.append(persona_role(world, role))
        else:
            exchanges.append(unit(world))
    return _join(world, exchanges, system)


def persona_name(world: World, name: str, role: str) -> Exchange:
    answer = f"I am {name}, {article(role)}."
    return Exchange("persona", world.ask("ask_name"), answer, f"I play {name}.", ("contains", name))


def persona_role(world: World, role: str) -> Exchange:
    return Exchange(
        "persona", world.ask("ask_role"), f"I am {article(role)}.", f"My role is {role}.", ("contains", role)
    )


def styled(world: World, key: str) -> tuple[str, Exchange]:
    """A system text that fixes the style of answers, and an exchange in that style."""
    names = (
        ("capital", "opposite", "colour_fact", "upper")
        if key == "one_word_system"
        else ("capital", "opposite", "colour_fact", "add", "greet", "thanks", "first")
    )
    base = named_unit(world, tuple(name for name in names if name != "upper"))
    if key == "upper_system":
        return system_text(world, key), Exchange("upper_style", base.user, base.answer.upper(), base.think)
    if key == "one_word_system":
        word = base.answer.rstrip(".").split(" is ")[-1].split()[-1].capitalize()
        return system_text(world, key), Exchange("one_word_style", base.user, word, base.think)
    name = world.rng.choice(("answer", "reply", "result", "text", "response", "output", world.pick("n")))
    shown = world.rng.choice(
        (f'{{"{name}": "..."}}', f'{{"{name}": "<{name}>"}}', f'{{"{name}": ""}}', f'{{"{name}": "string"}}')
    )
    answer = f'{{"{name}": "{base.answer}"}}'
    return system_text(world, key, j=shown), Exchange("json_style", base.user, answer, base.think, ("json",))


def styled_conversation(world: World) -> Conversation:
    key = world.rng.choice(("upper_system", "one_word_system", "json_system"))
    system, first = styled(world, key)
    exchanges = [first]
    if key != "json_system":
        exchanges += [styled(world, key)[1] for _ in range(world.number(0, 2))]
    return _join(world, exchanges, system)


def tool_set(world: World, count: int) -> list[tools.Tool]:
    """Tools with different names and different meanings."""
    found: dict[str, tools.Tool] = {}
    while len(found) < count:
        tool = tools.new_tool(world)
        if tool.name not in found and (tool.shape, tool.thing) not in [(t.shape, t.thing) for t in found.values()]:
            found[tool.name] = tool
    return list(found.values())


def missing_tool(world: World, offered: list[tools.Tool]) -> Exchange:
    """A request that no offered tool serves."""
    while True:
        tool = tools.new_tool(world)
        if (
            tool.name not in [t.name for t in offered]
            and tool.shape not in [t.shape for t in offered if t.shape.startswith("family")]
            and "search" not in tool.name
        ):
            break
    user = tools.request(world, tool).user
    return Exchange("tool_missing", user, "I have no tool for that.", "None of the tools fits.")


def one_call(world: World, tool: tools.Tool, is_thinking: bool) -> list[Turn]:
    call = tools.request(world, tool)
    turns = turns_of(tools.call_exchange(call), is_thinking)
    if world.chance(0.6):
        text, answer, _ = tools.result(world, call)
        turns += [Turn("tool", text), Turn("assistant", answer, "I tell the result." if is_thinking else None)]
    return turns


def two_calls(world: World, pair: list[tools.Tool], is_thinking: bool) -> list[Turn]:
    calls, exchange = tools.two_calls(world, *pair)
    turns = turns_of(exchange, is_thinking)
    if world.chance(0.5):
        results = [tools.result(world, call) for call in calls]
        turns += [Turn("tool", text) for text, _, _ in results]
        turns.append(
            Turn(
                "assistant",
                " ".join(answer for _, answer, _ in results),
                "I tell both results." if is_thinking else None,
            )
        )
    return turns
