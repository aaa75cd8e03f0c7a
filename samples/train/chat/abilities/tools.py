"""Tool calls: which of the offered tools fits, with which arguments, and what to say about a result.

A third of the tools are families that people would define, a third are composed of a verb, random nouns and kinds of
arguments, and a third are random words throughout: names must be copied from the definitions, nothing else helps.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from samples.train.chat.abilities.families import FAMILIES, Family
from samples.train.chat.abilities.media import MOTION_WORDS, SCENERY_WORDS, background_words
from samples.train.chat.abilities.phrases import DO
from samples.train.chat.world import COLOURS, COUNTRIES, LANGUAGES, Exchange, World, article
from samples.train.scenes.vocabulary import THINGS, caption, sample_clip, sample_scene

Value = str | int | bool
WORDINGS: dict[str, tuple[str, ...]] = {
    "action": (
        DO + "{v} {o}{c}(|.)",
        "(I want to|I need to|I'd like to|I have to|we must|help me|time to|it is time to|let's|it would be nice to|I am going to|I would like you to) {v} {o}{c}(|.)",
        "{v} {o}{c}(| now| today| right away| for me)(|.|!)",
        "(next|task|to do|job|command)(: | - ){v} {o}{c}",
        "(is it possible to|are you able to|can we|may I|how do I|do you think you can|would it be possible to) {v} {o}{c}?",
        "(my boss|my friend|a customer|my wife|somebody) (wants me to|asks me to|told me to) {v} {o}{c}(|.)",
    ),
    "question": (
        "(what's|what is|show me|tell me|give me|I want to know|I need|what about|I'd like to see|let me see|find out) {o}{c}(|?|.)",
        "(do you know|can you tell me|could you tell me|could you check|can you find|please look up|I wonder what is) {o}{c}(|?|.)",
        "{o}{c}(|, please|?| please)",
        "(question|query|look up)(: | - ){o}{c}(|?)",
        "(how|what) (about|is) {o}{c}?",
        DO + "(check|look up|find|fetch|get|read|report) {o}{c}(|.)",
    ),
    "named": (
        DO
        + "(use|call|run|try|invoke|execute|start|apply) (|the tool |the function |the |){f} (with|using|where|for|and set|with the values|with arguments) {p}(|.)",
        "(run|call|tool|function|use)(: | ){f}(, |; |: | - | with ){p}(|.)",
        "{f}(: |, | - | with | for ){p}(|, please|.)",
        "{p}(: |. |, |; )" + DO + "(use|run|call) {f}(|.| with that.| with these values.)",
        "(I want|I need|I'd like) (the result of |to run |to use |){f} (with|for|where) {p}(|.)",
        "(what does|what will|what would) {f} (give|return|say|answer|show) (for|with|when) {p}?",
    ),
}
WORDINGS.update({f"family_{i}": family.requests for i, family in enumerate(FAMILIES)})
ACTIONS = "delete|create|update|cancel|start|stop|open|close|lock|reset|archive|copy|rename|publish|approve|reject|export|import|share|move|print|test|deploy|order|book|reserve|schedule|rent|sell|buy|repair|clean|paint|install|remove|add|register|save|restart|enable|disable|record|review|sign|ship|return|replace|assign|pause|resume|upload|download|sort|merge|split|measure|water|feed|build".split(
    "|"
)
LOOKUPS = "get|find|fetch|show|read|check|lookup|query|list|search|retrieve|view|compute|estimate".split("|")
_MORE_ACTIONS = "mark|label|pin|mute|unmute|follow|invite|dismiss|charge|refund|activate|deactivate|lend|collect|dispatch|deliver|inspect|weigh|heat|cool|freeze|rotate|resize|crop|zip|unzip|encrypt|sync|format|mount|launch|ban|promote|grade|log|tag|replace|transfer|cancel|extend|renew|confirm|postpone|mix|pack|unpack|fold|polish|fill|empty|plant|harvest|train|translate|summarise|publish|subscribe|unlock|illuminate|block|report|verify".split(
    "|"
)
_MORE_LOOKUPS = "count|look|browse|inspect|monitor|track|analyse|calculate|describe|preview|report|scan|measure|compare|summarise|display|load|see|examine|watch".split(
    "|"
)
_MORE_CONNECTORS: dict[str, tuple[str, ...]] = {
    "city": (" over in {v}", " ({v})", ", location {v}", " close to {v}", " out of {v}", " for the city of {v}", " of our office in {v}"),
    "name": (", owner {v}", " ({v})", " on behalf of {v}", " that {v} asked for", " which belongs to {v}", " requested by {v}", " and {v} is the person"),
    "full": (", client {v}", " ({v})", " on behalf of {v}", " that belongs to {v}", " requested by {v}", " under the name {v}"),
    "date": (" due {v}", " ({v})", " from {v}", " until {v}", " scheduled for {v}", ", date {v}", " as of {v}"),
    "time": (" from {v}", " ({v})", " until {v}", " scheduled for {v}", ", time {v}", " around {v}", " no later than {v}"),
    "code": (" ({v})", ", id {v}", " #{v}", " with the number {v}", " known as {v}", " under {v}", " marked {v}", ", reference {v}"),
    "language": (", language {v}", " ({v})", " written in {v}", " using {v}", " into {v}"),
    "colour": (", colour {v}", " ({v})", " painted {v}", " of colour {v}", " using {v}"),
    "email": (", mail {v}", " ({v})", " and use {v}", " with the address {v}", " reachable at {v}"),
    "file": (" ({v})", ", file {v}", " stored in {v}", " called {v}", " using {v}", " via {v}"),
    "quote": (", text {q}", " ({q})", " with the words {q}", " reading {q}", " named {q}", " containing {q}", " and write {q}"),
    "number": (", where {k} is {v}", " at {k} {v}", " using {v} as {k}", ", {k}={v}", " and {v} as {k}", " for a {k} of {v}", " so that {k} is {v}"),
    "small": (", where {k} is {v}", " at {k} {v}", " using {v} as {k}", ", {k}={v}", " and {v} as {k}", " for a {k} of {v}", " so that {k} is {v}"),
    "word": (", {k}={v}", " in {k} {v}", " with {v} for {k}", " and {v} as {k}", " so that {k} is {v}", " of {k} {v}", " ({v} as {k})"),
}  # fmt: skip
CONNECTORS: dict[str, tuple[str, ...]] = {
    "city": (" in {v}", " for {v}", " near {v}", " from {v}", " at {v}", " around {v}"),
    "name": (" for {v}", " of {v}", " with {v}", " named {v}", " by {v}", " belonging to {v}"),
    "full": (" for {v}", " of {v}", " with {v}", " by {v}"),
    "date": (" on {v}", " for {v}", " dated {v}", " by {v}"),
    "time": (" at {v}", " by {v}", " before {v}", " after {v}"),
    "code": (" number {v}", " {v}", " with code {v}", " with id {v}", " no. {v}", " labelled {v}"),
    "language": (" in {v}", " to {v}"),
    "colour": (" in {v}", " that is {v}", " coloured {v}"),
    "email": (" to {v}", " for {v}", " via {v}"),
    "file": (" to {v}", " from {v}", " as {v}", " into {v}"),
    "quote": (" saying {q}", ": {q}", " with the text {q}", " called {q}", " titled {q}"),
    "number": (" with {k} {v}", " and set {k} to {v}", ", {k} {v}", " with a {k} of {v}", " ({k}: {v})"),
    "small": (" with {k} {v}", " and set {k} to {v}", ", {k} {v}", " with a {k} of {v}", " ({k}: {v})"),
    "word": (" with {k} {v}", " and set {k} to {v}", ", {k} {v}", " ({k}: {v})", " where {k} is {v}", " using {v} as {k}"),
}  # fmt: skip
ARG_NAMES = {
    "city": "city|place|town|location|where|destination", "name": "person|name|user|owner|customer|who", "full": "full_name|client|author|person|contact",
    "date": "date|day|when|due_date|on", "time": "time|hour|at|start_time|clock", "code": "id|code|number|key|reference|order_id", "language": "language|lang|target_language",
    "colour": "color|colour|shade|paint", "email": "email|address|mail|recipient", "file": "file|path|filename|output|source", "quote": "text|title|label|message|note|comment",
    "number": "amount|limit|size|budget|width|height|speed|price|weight|score", "small": "count|quantity|level|priority|days|copies|pages|rows|floor", "word": "mode|kind|type|category|topic|option|style|format|tag",
}  # fmt: skip
KIND_TEXT = {
    "city": "The city", "name": "The person", "full": "Full name", "date": "The date", "time": "The time", "code": "The id", "language": "The language", "colour": "The colour", "email": "Email address", "file": "File name",
    "quote": "The text", "number": "A number", "small": "A small number", "word": "A word", "phrase": "The text", "image": "What the picture shows", "clip": "What the clip shows", "currency": "The currency", "last": "The name",
    "room": "The room", "food": "The food", "noun": "The topic", "country": "The country", "job": "The job", "product": "The product",
}  # fmt: skip
_CURRENCIES = "euros|dollars|pounds|yen|francs|crowns|pesos|rupees|lira|won".split("|")
_ROOMS = "kitchen|bedroom|bathroom|living room|garage|hall|office|garden|cellar|attic|dining room|nursery|library|studio".split(
    "|"
)


@dataclass(frozen=True)
class Argument:
    """One argument of a tool: its name, the kind of its values, whether a call must have it.

    A name that is a random word says nothing about its values; then the definition must describe them.
    """

    name: str
    kind: str
    required: bool = True
    is_random_name: bool = False


@dataclass(frozen=True)
class Tool:
    """A tool and what a request for it sounds like (`shape`: family_N, action, question or named)."""

    name: str
    description: str
    args: tuple[Argument, ...]
    shape: str
    verb: str = ""
    thing: str = ""


@dataclass(frozen=True)
class Call:
    """A request and the calls that answer it."""

    user: str
    tool: Tool
    values: dict[str, Value]


def draw(world: World, kind: str) -> Value:
    """A value that a request can state for an argument of this kind."""
    rng = world.rng
    if kind in ("number", "small"):
        return world.number(1, 30) if kind == "small" else world.number(10, 2000)
    if kind == "image":
        noun = f"{rng.choice(COLOURS)} " if world.chance(0.4) else ""
        text = f"{article(noun + rng.choice(THINGS).name)} {background_words(sample_scene(rng).background)}".strip()
        return text if world.chance(0.7) else caption_core(world)
    if kind == "clip":
        place = rng.choice(list(SCENERY_WORDS.values())) if world.chance(0.6) else ""
        return f"{article(rng.choice(THINGS).name)} {rng.choice(list(MOTION_WORDS.values()))} {place}".strip()
    draws: dict[str, Callable[[], str]] = {
        "city": world.city, "name": world.name, "full": world.full_name, "date": world.date, "time": world.time, "code": world.code, "email": world.email, "phrase": world.phrase, "word": world.word, "quote": world.phrase,
        "language": lambda: rng.choice(LANGUAGES), "colour": lambda: rng.choice(COLOURS), "currency": lambda: rng.choice(_CURRENCIES), "last": lambda: world.pick("last"), "room": lambda: rng.choice(_ROOMS), "job": lambda: world.pick("job"), "product": lambda: world.pick("product"),
        "food": lambda: world.pick("food"), "noun": lambda: world.pick("n"), "country": lambda: rng.choice(COUNTRIES).split(":")[0],
        "file": lambda: f"{world.pick('common')}{rng.choice(('', '_' + world.digits(2)))}.{rng.choice(('txt', 'csv', 'png', 'pdf', 'md', 'json'))}",
    }  # fmt: skip
    return draws[kind]()


def caption_core(world: World) -> str:
    """A caption that is no request by itself."""
    while True:
        text = caption(world.rng, sample_scene(world.rng) if world.chance(0.8) else sample_clip(world.rng))
        if text.split(" ", 1)[0].lower() in ("a", "an", "two", "three", "four") and text[-1] not in ".!":
            return text[0].lower() + text[1:]


def _style(world: World, words: list[str]) -> str:
    """Words as an identifier, in one of the usual styles."""
    roll = world.rng.random()
    if roll < 0.75:
        return "_".join(words)
    if roll < 0.9:
        return words[0] + "".join(word.capitalize() for word in words[1:])
    return "-".join(words) if roll < 0.95 else "".join(words)


def family_tool(world: World, index: int | None = None) -> Tool:
    index = world.rng.randrange(len(FAMILIES)) if index is None else index
    return tool_of(world, FAMILIES[index], f"family_{index}")


def tool_of(world: World, family: Family, shape: str) -> Tool:
    """A tool of the family under one of many names."""
    name = world.rng.choice(family.names)
    if world.chance(0.35):
        name = _style(world, [*name.split("_"), world.pick("common")][:: world.rng.choice((1, 1, -1))])
    args = []
    for options, kind in family.args:
        arg = world.rng.choice(options)
        is_random = world.chance(0.2)
        args.append(Argument(world.pick("common") if is_random else arg, kind, is_random_name=is_random))
    if len({arg.name for arg in args}) < len(args):
        args = [Argument(options[0], kind) for options, kind in family.args]
    return Tool(name, world.rng.choice(family.descriptions), tuple(args), shape)


def composed_tool(world: World) -> Tool:
    """A verb, a random noun or two, and up to three kinds of arguments."""
    is_lookup = world.chance(0.45)
    verbs = LOOKUPS if is_lookup else ACTIONS
    if world.is_training:
        verbs = verbs + (_MORE_LOOKUPS if is_lookup else _MORE_ACTIONS)
    verb = world.rng.choice(verbs)
    nouns = world.sample("n", 2 if world.chance(0.6) else 1)
    thing = " ".join(nouns)
    args: list[Argument] = []
    for kind in world.rng.sample(list(CONNECTORS), world.rng.choice((1, 1, 1, 2, 2, 3))):
        is_random = world.held_out or world.chance(0.35)
        name = world.pick("common") if is_random else world.rng.choice(ARG_NAMES[kind].split("|"))
        if name not in [arg.name for arg in args]:
            args.append(Argument(name, kind, world.chance(0.8), is_random))
    description = world.rng.choice(
        (
            "{V} the {t}.",
            "{V} a {t}.",
            "{V} {t}",
            "Use this to {v} the {t}.",
            "{V}s the {t} and returns the result.",
            "Tool to {v} a {t}",
        )
    )
    description = description.format(V=verb.capitalize(), v=verb, t=thing)
    name = _style(world, [verb, *nouns]) if world.chance(0.8) else _style(world, [*nouns, verb])
    return Tool(name, description, tuple(args), "question" if is_lookup else "action", verb, thing)


def random_tool(world: World) -> Tool:
    """Random words for the name, the arguments and the description; a request has to name the tool."""
    words = world.sample("word", world.rng.choice((1, 2, 2, 3)))
    if world.chance(0.25):
        words[0] = world.invented()
    names = [
        world.invented() if world.chance(0.15) else word
        for word in world.sample("word", world.rng.choice((1, 1, 2, 2, 3)))
    ]
    kinds = ("word", "number", "small", "name", "city", "code", "colour", "quote", "date", "file", "email")
    args = tuple(Argument(name, world.rng.choice(kinds)) for name in dict.fromkeys(names))
    return Tool(_style(world, words), f"{world.phrase().capitalize()}.", args, "named", thing=" ".join(words))


def new_tool(world: World) -> Tool:
    roll = world.rng.random()
    if roll < 0.36:
        return family_tool(world)
    return composed_tool(world) if roll < 0.7 else random_tool(world)


def definition(world: World, tool: Tool) -> dict[str, object]:
    """The tool as a client sends it, with the extras that clients add."""
    properties: dict[str, object] = {}
    for arg in tool.args:
        kind = ("integer" if world.chance(0.7) else "number") if arg.kind in ("number", "small") else "string"
        spec: dict[str, object] = {"type": kind}
        if world.chance(0.5) or (arg.is_random_name and len(tool.args) > 1):
            spec["description"] = KIND_TEXT[arg.kind] + world.rng.choice(
                ("", ".", f" of the {tool.thing or tool.name}", " to use")
            )
        properties[arg.name] = spec
    parameters: dict[str, object] = {"type": "object", "properties": properties}
    if world.chance(0.8):
        parameters["required"] = [arg.name for arg in tool.args if arg.required]
    if world.chance(0.12):
        parameters["additionalProperties"] = False
    function: dict[str, object] = {"name": tool.name, "description": tool.description, "parameters": parameters}
    if world.chance(0.08):
        function.pop("description")
    if world.chance(0.08):
        function["strict"] = world.chance(0.5)
    return {"type": "function", "function": function}


def request(world: World, tool: Tool) -> Call:
    """A user's request for the tool, and the values it states."""
    values: dict[str, Value] = {
        arg.name: draw(world, arg.kind) for arg in tool.args if arg.required or world.chance(0.5)
    }
    if not values and tool.args:
        values = {tool.args[0].name: draw(world, tool.args[0].kind)}
    kinds = {arg.name: arg.kind for arg in tool.args}
    if tool.shape.startswith("family_"):
        values = {arg.name: values.get(arg.name, draw(world, arg.kind)) for arg in tool.args}
        slots = {str(i): _shown(world, arg.kind, values[arg.name]) for i, arg in enumerate(tool.args)}
        return Call(world.ask(tool.shape, **slots), tool, values)
    if tool.shape == "named":
        form = world.rng.choice(
            (
                "{k} {v}",
                "{k} = {v}",
                "{k}={v}",
                "{k} set to {v}",
                "{k}: {v}",
                "{v} as {k}",
                "{v} for {k}",
                "the {k} {v}",
            )
        )
        texts = [form.format(k=key, v=_shown(world, kinds[key], v)) for key, v in values.items()]
        stated = (
            ", ".join(texts[:-1]) + " and " + texts[-1] if len(texts) > 1 and world.chance(0.6) else ", ".join(texts)
        )
        name = tool.name if world.chance(0.65) else tool.thing
        return Call(world.ask("named", f=name, p=stated), tool, values)
    clauses = []
    for key, v in values.items():
        kind = kinds[key]
        form = world.rng.choice(CONNECTORS[kind] + _MORE_CONNECTORS[kind] if world.is_training else CONNECTORS[kind])
        if kind not in ("number", "small", "word") and world.chance(0.15):
            form = world.rng.choice((", {k} {v}", " ({k}: {v})", " with {k} {v}"))
        clauses.append(form.format(k=key.replace("_", " "), v=v, q=f'"{v}"'))
    world.rng.shuffle(clauses)
    thing = world.rng.choice(("the {}", "the {}", "a {}", "my {}", "{}", "this {}")).format(tool.thing)
    verb = tool.verb if tool.shape == "action" else ""
    return Call(world.ask(tool.shape, v=verb, o=thing, c="".join(clauses)), tool, values)


def _shown(world: World, kind: str, v: Value) -> str:
    return f'"{v}"' if kind == "quote" or (kind == "phrase" and world.chance(0.4)) else str(v)


def call_text(call: Call) -> str:
    """The call as the model writes it."""
    arguments = json.dumps(call.values, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{call.tool.name}", "arguments": {arguments}}}\n</tool_call>'


def call_exchange(call: Call, ability: str = "tool_call") -> Exchange:
    stated = " ".join(f"{key}: {v}." for key, v in call.values.items())
    return Exchange(ability, call.user, call_text(call), f"The tool {call.tool.name} fits. {stated}", ("tool",))


def two_calls(world: World, tool: Tool, other: Tool) -> tuple[list[Call], Exchange]:
    """Two requests in one turn, answered by two calls in their order."""
    calls = [request(world, tool), request(world, other)]
    first = calls[0].user.rstrip(".?! ")
    second = calls[1].user
    user = (
        first
        + world.rng.choice((" and ", ", and then ", ". Then ", ". Also ", "; ", ". And ", "\n", " and also "))
        + second[0].lower()
        + second[1:]
    )
    answer = "\n".join(call_text(call) for call in calls)
    return calls, Exchange("two_calls", user, answer, f"Two calls: {tool.name}, then {other.name}.", ("tool",))


def result(world: World, call: Call) -> tuple[str, str, tuple[str, ...]]:
    """A tool's result as text, what the assistant says about it, and what an answer must contain."""
    roll = world.rng.random()
    keys = {arg.kind for arg in call.tool.args}
    if keys & {"image", "clip"} or roll < 0.12:
        file = f"{world.pick('common')}_{world.digits(2)}.{'mp4' if 'clip' in keys else 'png'}"
        return json.dumps({world.rng.choice(("file", "url", "path")): file}), f"Here it is: {file}", (file,)
    if roll < 0.24:
        return (
            json.dumps({world.rng.choice(("status", "result")): world.rng.choice(("ok", "done", "success"))}),
            "Done.",
            ("Done",),
        )
    if roll < 0.34:
        reason = world.rng.choice(
            ("not found", "no connection", "access denied", "timeout", "out of stock", f"unknown {world.pick('n')}")
        )
        return json.dumps({"error": reason}), f"That did not work: {reason}.", (reason,)
    if roll < 0.46:
        text = world.phrase()
        return text, f"The result is: {text}", (text,)
    facts: dict[str, Value] = {}
    for key in world.sample("n", world.rng.choice((1, 1, 2, 3))):
        facts[key] = draw(
            world, world.rng.choice(("number", "small", "word", "name", "time", "city", "date", "phrase"))
        )
    said = [f"the {key} is {v}" for key, v in facts.items()]
    text = ", ".join(said[:-1]) + " and " + said[-1] if len(said) > 1 else said[0]
    return (
        json.dumps(facts, ensure_ascii=False),
        text[0].upper() + text[1:] + ".",
        tuple(str(v) for v in facts.values()),
    )
