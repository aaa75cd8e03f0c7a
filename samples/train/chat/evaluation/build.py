"""Write the evaluation set: ``python -m samples.train.chat.evaluation.build``. The seed is fixed; the file is committed.

Every case uses words, names, cities and numbers that training never draws (facts to be memorised excepted). `unseen`
cases use the hand-written wordings, `new_tools` hand-written or held-out tools with names training never saw.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random

from samples.train.chat import conversations
from samples.train.chat.abilities import media, memory, tools
from samples.train.chat.conversations import ABILITIES, WORDINGS
from samples.train.chat.evaluation.judge import Case
from samples.train.chat.evaluation.wordings import UNSEEN, UNSEEN_TOOLS
from samples.train.chat.rendering import Conversation, Turn
from samples.train.chat.world import Exchange, World

FILE = Path(__file__).with_name("cases.jsonl")
NUM_SEEN, NUM_UNSEEN, THINKING_EVERY = 28, 30, 4


class UnseenWorld(World):
    """Asks with the hand-written wordings where there are some; `index` walks through them."""

    index = 0

    def ask(self, key: str, **slots: str) -> str:
        texts = UNSEEN.get(key)
        if texts is None:
            return super().ask(key, **slots)
        text = texts[self.index % len(texts)]
        for slot, value in slots.items():
            text = text.replace("{" + slot + "}", value)
        return text[0].upper() + text[1:] if text[0] not in "\"'" else text


Built = tuple[Conversation, tuple[str, ...]]
"""A conversation whose last turn is the expected answer, and the check."""


def ended(exchanges: list[Exchange], system: str = "") -> Built:
    turns = [turn for exchange in exchanges for turn in conversations.turns_of(exchange, False)]
    return Conversation(turns, system), exchanges[-1].check


def single(world: World, name: str) -> Built:
    return ended([ABILITIES[name][1](world)])


def memory_case(world: World, low: int, high: int) -> Built:
    exchanges, facts = between(world, low, high, world.rng.choice((1, 2, 3)))
    return ended([*exchanges, memory.recall(world, world.rng.choice(facts))])


def between(world: World, low: int, high: int, num_facts: int) -> tuple[list[Exchange], list[memory.Fact]]:
    """Facts with other turns after them."""
    return conversations.memory_talk(world, world.number(low, high), num_facts)


def memory_all(world: World) -> Built:
    exchanges, facts = between(world, 0, 3, 2)
    return ended([*exchanges, memory.recall_all(world, facts)])


def memory_unknown(world: World) -> Built:
    exchanges, facts = between(world, 0, 3, 1)
    while True:
        other = memory.new_fact(world)
        if (other.kind, other.key) not in [(fact.kind, fact.key) for fact in facts]:
            return ended([*exchanges, memory.unknown(world, other)])


def persona_case(world: World, asks_name: bool) -> Built:
    name, role = world.name(), world.pick("job")
    system = conversations.system_text(world, "persona", n=name, r=role)
    last = conversations.persona_name(world, name, role) if asks_name else conversations.persona_role(world, role)
    return ended([last], system)


def style_case(world: World, key: str) -> Built:
    plain = World(world.rng, WORDINGS, world.held_out, noisy=True)
    system, exchange = conversations.styled(plain, key)
    if isinstance(world, UnseenWorld):
        first = exchange.answer.split('"')[1] if key == "json_system" else ""
        system = world.ask(key, j=f'{{"{first}": "..."}}')
    return ended([exchange], system)


def scene_prompt(world: World, at: int) -> Built:
    while True:
        talk = media.scene_talk(world)
        if len(talk) == 3:
            return ended(talk[: at + 1])


def offered(world: World, tool: tools.Tool) -> list[dict[str, object]]:
    """The tool among up to three others, in random order."""
    others = [
        t for t in conversations.tool_set(world, world.number(0, 3)) if t.name != tool.name and t.shape != tool.shape
    ]
    found = [tool, *others]
    world.rng.shuffle(found)
    return [tools.definition(world, t) for t in found]


def tool_case(world: World, make: Callable[[World], tools.Tool]) -> Built:
    tool = make(world)
    exchange = tools.call_exchange(tools.request(world, tool))
    talk, check = ended([exchange])
    talk.tools = offered(world, tool)
    return talk, check


def hand_written_tool(world: World, index: int) -> Built:
    """A tool of UNSEEN_TOOLS with one of its hand-written requests."""
    family = UNSEEN_TOOLS[index % len(UNSEEN_TOOLS)]
    args = tuple(tools.Argument(names[0], kind) for names, kind in family.args)
    tool = tools.Tool(family.names[0], family.descriptions[0], args, "hand")
    values = {arg.name: tools.draw(world, arg.kind) for arg in args}
    user = family.requests[index // len(UNSEEN_TOOLS) % len(family.requests)]
    for i, arg in enumerate(args):
        shown = f'"{values[arg.name]}"' if arg.kind == "quote" else str(values[arg.name])
        user = user.replace("{" + str(i) + "}", shown)
    talk, check = ended([tools.call_exchange(tools.Call(user, tool, values))])
    talk.tools = offered(world, tool)
    return talk, check


def tool_result(world: World) -> Built:
    tool = tools.new_tool(world)
    call = tools.request(world, tool)
    text, answer, check = tools.result(world, call)
    talk, _ = ended([tools.call_exchange(call)])
    talk.turns += [Turn("tool", text), Turn("assistant", answer)]
    talk.tools = offered(world, tool)
    return talk, ("contains", *check)


def two_calls(world: World) -> Built:
    pair = conversations.tool_set(world, 2)
    _, exchange = tools.two_calls(world, *pair)
    talk, check = ended([exchange])
    talk.tools = [tools.definition(world, tool) for tool in pair]
    return talk, check


def not_needed(world: World) -> Built:
    name = world.rng.choice(("greet", "thanks", "add", "opposite", "spell", "who", "capital", "repeat", "extract"))
    talk, check = single(world, name)
    talk.tools = [tools.definition(world, tool) for tool in conversations.tool_set(world, world.number(1, 3))]
    return talk, check


def missing(world: World) -> Built:
    have = conversations.tool_set(world, world.number(1, 3))
    talk, check = ended([conversations.missing_tool(world, have)])
    talk.tools = [tools.definition(world, tool) for tool in have]
    return talk, check


def builders() -> dict[str, Callable[[World], Built]]:
    """Every ability that is evaluated with trained and with unseen wordings."""
    found: dict[str, Callable[[World], Built]] = {name: partial(single, name=name) for name in ABILITIES}
    del found["draw"]
    found |= {
        "scene_idea": partial(scene_prompt, at=0), "scene_to_image": partial(scene_prompt, at=1),
        "memory": partial(memory_case, low=0, high=4), "memory_far": partial(memory_case, low=8, high=16),
        "memory_all": memory_all, "memory_unknown": memory_unknown,
        "persona_name": partial(persona_case, asks_name=True), "persona_role": partial(persona_case, asks_name=False),
        "system_upper": partial(style_case, key="upper_system"), "system_one_word": partial(style_case, key="one_word_system"),
        "system_json": partial(style_case, key="json_system"),
        "tool_call_weather": partial(tool_case, make=partial(tools.family_tool, index=0)),
        "tool_call_image": partial(tool_case, make=partial(tools.family_tool, index=1)),
        "tool_call_video": partial(tool_case, make=partial(tools.family_tool, index=2)),
    }  # fmt: skip
    return found


SEEN_ONLY: dict[str, Callable[[World], Built]] = {
    "draw": partial(single, name="draw"), "scene_to_video": partial(scene_prompt, at=2),
    "memory_2000_tokens": partial(memory_case, low=36, high=44),
    "tool_call": partial(tool_case, make=tools.family_tool), "tool_result": tool_result, "two_calls": two_calls,
    "tools_not_needed": not_needed, "tool_missing": missing,
}  # fmt: skip
"""Abilities whose wordings come from many grammars; they are evaluated with trained wordings."""

NEW_TOOLS: dict[str, Callable[[World], Built]] = {
    "new_tool_random_words": partial(tool_case, make=tools.random_tool),
    "new_tool_composed": partial(tool_case, make=tools.composed_tool),
}  # fmt: skip


def case(ability: str, split: str, built: Built, is_thinking: bool) -> Case:
    talk, check = built
    asked = Conversation(talk.turns[:-1], talk.system, talk.tools)
    return Case(ability, split, asked.messages(), talk.tools, is_thinking, talk.turns[-1].content, list(check))


def cases() -> Iterator[Case]:
    for name, build in {**builders(), **SEEN_ONLY}.items():
        world = World(Random(f"seen {name}"), WORDINGS, held_out=True)
        for i in range(NUM_SEEN):
            yield case(name, "seen", build(world), i % THINKING_EVERY == 3)
    for name, build in builders().items():
        unseen = UnseenWorld(Random(f"unseen {name}"), WORDINGS, held_out=True, noisy=False)
        for i in range(NUM_UNSEEN):
            unseen.index = i
            yield case(name, "unseen", build(unseen), i % THINKING_EVERY == 3)
    for name, build in NEW_TOOLS.items():
        for wording in ("trained", "unseen"):
            world = (UnseenWorld if wording == "unseen" else World)(
                Random(f"{wording} {name}"), WORDINGS, held_out=True
            )
            for i in range(40):
                if isinstance(world, UnseenWorld):
                    world.index = i
                yield case(f"{name}_{wording}_wording", "new_tools", build(world), i % THINKING_EVERY == 3)
    hand = World(Random("hand-written tools"), WORDINGS, held_out=True)
    for i in range(2 * len(UNSEEN_TOOLS)):
        yield case("new_tool_hand_written", "new_tools", hand_written_tool(hand, i), i % THINKING_EVERY == 3)


def main() -> None:
    written = [json.dumps(asdict(item), ensure_ascii=False) for item in cases()]
    FILE.write_text("\n".join(written) + "\n", encoding="utf-8")
    print(len(written), "cases,", FILE.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
