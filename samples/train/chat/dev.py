"""A measure of new wordings without the evaluation: cases worded by the lines that a training with --dev-wordings skips.

The words in them are the ones kept from training, too. These wordings are by the same hand as the trained ones, so the
figures are higher than those of wordings by others; they are for comparing runs.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import torch

from samples.train.chat import conversations, mixture
from samples.train.chat.abilities import media, memory, tools
from samples.train.chat.abilities.families import FAMILIES
from samples.train.chat.checkpoint import load_parts, write_folder
from samples.train.chat.evaluation.judge import Case
from samples.train.chat.evaluation.run import Report, answers_of, summarise
from samples.train.chat.phrasebook import load_book
from samples.train.chat.rendering import Conversation
from samples.train.chat.training_world import TrainingWorld
from samples.train.chat.world import Exchange, World

PER_ABILITY, PER_TOOL_FAMILY = 14, 2
THINKING_SHARE = 0.2
Built = tuple[Conversation, Exchange]


class DevWorld(TrainingWorld):
    """A world of the dev wordings; keys that have none use the small grammars."""

    def ask(self, key: str, **slots: str) -> str:
        return self.ask_book(key, slots) if key in self.book.sections else World.ask(self, key, **slots)


def dev_world(seed: int) -> DevWorld:
    world = DevWorld(Random(seed), conversations.WORDINGS, held_out=True, book=load_book("dev"))
    world.abilities = mixture.beside_tools(frozenset())
    return world


def _after(exchanges: list[Exchange], last: Exchange, system: str = "") -> Built:
    turns = [turn for exchange in exchanges for turn in conversations.turns_of(exchange, False)]
    return Conversation(turns, system), last


def _memory(world: World, kind: str) -> Built:
    exchanges, facts = conversations.memory_talk(world, world.number(0, 5), world.number(1, 3))
    if kind == "all":
        return _after(exchanges, memory.recall_all(world, facts))
    if kind == "many":
        return _after(exchanges, memory.recall_many(world, facts))
    other = memory.new_fact(world)
    if kind == "unknown" and (other.kind, other.key) not in [(fact.kind, fact.key) for fact in facts]:
        return _after(exchanges, memory.unknown(world, other))
    return _after(exchanges, memory.recall(world, world.rng.choice(facts)))


def _persona(world: World, asks_name: bool) -> Built:
    name, role = world.name(), world.pick("job")
    system = conversations.system_text(world, "persona", n=name, r=role)
    make = conversations.persona_name(world, name, role) if asks_name else conversations.persona_role(world, role)
    return _after([], make, system)


def _style(world: World, key: str) -> Built:
    system, exchange = conversations.styled(world, key)
    return _after([], exchange, system)


def _scene(world: World, at: int) -> Built:
    talk: list[Exchange] = []
    while len(talk) < 3:
        talk = media.scene_talk(world)
    return _after(talk[:at], talk[at])


def _offer(world: World, wanted: list[tools.Tool]) -> Conversation:
    names = [tool.name for tool in wanted]
    others = [tool for tool in conversations.tool_set(world, 3) if tool.name not in names and tool.shape == "named"]
    offered = world.rng.sample([*wanted, *others], len(wanted) + len(others))
    return Conversation([], "", [tools.definition(world, tool) for tool in offered])


def _call(world: World, make: Callable[[World], tools.Tool]) -> Built:
    tool = make(world)
    return _offer(world, [tool]), tools.call_exchange(tools.request(world, tool))


def _two(world: World) -> Built:
    pair = conversations.tool_set(world, 2)
    return _offer(world, pair), tools.two_calls(world, *pair)[1]


def _beside(world: World, is_missing: bool) -> Built:
    offered = conversations.tool_set(world, 2)
    talk = Conversation([], "", [tools.definition(world, tool) for tool in offered])
    return talk, conversations.missing_tool(world, offered) if is_missing else conversations.unit(world)


def builders() -> Iterator[tuple[str, int, Callable[[World], Built]]]:
    """Names, numbers of cases, and how to make one."""
    for name, (_, ability) in mixture.TRAINED.items():
        yield name, PER_ABILITY, lambda world, ability=ability: _after([], ability(world))  # type: ignore[misc]
    for kind in ("one", "all", "many", "unknown"):
        yield f"memory_{kind}", 2 * PER_ABILITY, lambda world, kind=kind: _memory(world, kind)  # type: ignore[misc]
    yield "persona_name", PER_ABILITY, lambda world: _persona(world, True)
    yield "persona_role", PER_ABILITY, lambda world: _persona(world, False)
    for key in ("upper_system", "one_word_system", "json_system"):
        yield key, PER_ABILITY, lambda world, key=key: _style(world, key)  # type: ignore[misc]
    yield "scene_image", PER_ABILITY, lambda world: _scene(world, 1)
    yield "scene_video", PER_ABILITY, lambda world: _scene(world, 2)
    for i in range(len(FAMILIES)):
        make = lambda world, i=i: tools.family_tool(world, i)  # noqa: E731
        yield "tool_family", PER_TOOL_FAMILY, lambda world, make=make: _call(world, make)  # type: ignore[misc]
    yield "tool_composed", 2 * PER_ABILITY, lambda world: _call(world, tools.composed_tool)
    yield "tool_random", 2 * PER_ABILITY, lambda world: _call(world, tools.random_tool)
    yield "two_calls", PER_ABILITY, _two
    yield "tool_missing", PER_ABILITY, lambda world: _beside(world, True)
    yield "not_needed", 2 * PER_ABILITY, lambda world: _beside(world, False)


def cases() -> list[Case]:
    """The dev cases, always the same for the same wordings."""
    world, found = dev_world(20_251), []
    for name, count, build in builders():
        for _ in range(count):
            talk, last = build(world)
            talk.turns = [*talk.turns, *conversations.turns_of(last, False)[:1]]
            is_thinking = world.chance(THINKING_SHARE)
            found.append(Case(name, "dev", talk.messages(), talk.tools, is_thinking, last.answer, list(last.check)))
    return found


def evaluate(parts: Path, device: torch.device, limit: int = 0, limit_s: float = 85) -> Report:
    """Figures of the dev cases, worst abilities first, with examples of wrong answers."""
    chosen = cases()
    chosen = chosen[:: max(1, len(chosen) // limit)] if limit else chosen
    with tempfile.TemporaryDirectory() as folder:
        write_folder(*load_parts(parts), Path(folder))
        report = summarise(chosen, answers_of(Path(folder), chosen, device, limit_s))
    shares = report["shares"].get("dev", {})
    print(f"-- dev wordings: macro {100 * report['macro'].get('dev', 0):.1f}, leaks {report['num_leaks']}")
    print("  ".join(f"{name} {100 * share:.0f}" for name, share in sorted(shares.items(), key=lambda item: item[1])))
    return report
