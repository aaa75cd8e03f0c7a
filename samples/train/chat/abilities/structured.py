"""JSON: extracting fields into a given schema, building objects and lists."""

import json

from samples.train.chat.abilities.knowledge import NUMBERS, members
from samples.train.chat.abilities.phrases import DO, WANT
from samples.train.chat.world import COLOURS, LANGUAGES, Exchange, World

_GET = "(extract|pull out|find|get|pick out|read off|take|collect|identify|list|return|give me|fill in|parse|fetch|spot|grab|detect)"
_FROM = "(from|in|out of|based on|using|given)"
_TEXT = "(this text|the text|this sentence|the sentence|this|the following|the following text|this message|the message below|this note|the description|this passage)"
_JSON = "(as JSON|in JSON|as a JSON object|in JSON format|to JSON|as json|as one JSON object|in a JSON object|as valid JSON)"
_NEST = "(: |:\n|\n| - |:\n\n|. )"
WORDINGS: dict[str, tuple[str, ...]] = {
    "extract": (
        DO
        + _GET
        + " (|the |the fields |the values of |the keys ){k} "
        + _FROM
        + " "
        + _TEXT
        + " "
        + _JSON
        + _NEST
        + "{s}",
        DO + _GET + " (|the |the fields ){k} " + _JSON + _NEST + "{s}",
        DO + _GET + " " + _JSON + " (|the |the fields |these fields: |the keys ){k}" + _NEST + "{s}",
        "{s}(\n| |\n\n)"
        + DO
        + _GET
        + " (|the |the fields |the values of ){k}(| from this| from it| from the text) "
        + _JSON
        + "(|.)",
        "{s}(\n| |\n\n)(JSON with|return JSON with|answer with JSON with|reply in JSON with|give JSON with|make JSON with) (|the fields |the keys |keys ){k}(|.)",
        "(text|input|message|sentence|note): {s}\n(fields|keys|extract|schema|wanted|columns): {k}(|\nformat: JSON|\nJSON:|\noutput: JSON)",
        "(fields|keys|schema|columns|wanted): {k}\n(text|input|message|sentence): {s}(|\nJSON:|\noutput:|\nanswer in JSON.)",
        DO
        + "(convert|turn|transform|change|put|translate|bring) "
        + _TEXT
        + " (into|to) JSON with (|the fields |the keys |keys |the properties |fields named |entries for ){k}"
        + _NEST
        + "{s}",
        WANT
        + " (a JSON object|JSON|a json|one JSON object) with (|the fields |the keys |the values of |fields ){k} (for|from|of|taken from|about|describing) "
        + _TEXT
        + _NEST
        + "{s}",
        "JSON (with|of|containing|for) (|the fields |the keys ){k}" + _NEST + "{s}",
        "(read|look at|here is|take|see|consider|this is) "
        + _TEXT
        + ": {s}(\n| )"
        + "(now |then |)(give me|return|write|output|fill in|produce) (a JSON object with|JSON with|the JSON for) {k}(|.)",
        "(what are|what is) (|the |the values of ){k} in "
        + _TEXT
        + "? (answer|reply|respond) (in|with|as) JSON"
        + "(|.)"
        + _NEST
        + "{s}",
        "(the output|your answer|the answer|the result|your output) (must|should|has to) be JSON with (|the keys |the fields ){k}"
        + "(. |.\n|: |, from this text: )"
        + "{s}",
    ),
    "extract_schema": (
        DO
        + "(fill in|fill|complete|use|follow|fill out) (this|the|this JSON|the following) (schema|template|form|structure|JSON|format)(|:) {j} (|from|with|using|based on|with data from) "
        + _TEXT
        + _NEST
        + "{s}",
        "(schema|template|format|structure|output format): {j}\n(text|input|sentence|message): {s}(|\noutput:|\nJSON:)",
        "{s}(\n| |\n\n)(fill in|answer with|return|use|respond with|answer as|reply in the form|put this into|match this schema:|in this format:|extract into) {j}(|.)",
        "(answer|reply|respond|give JSON) (in|with|using|following|as) (this|the) (schema|format|template|structure)(: | ){j}"
        + _NEST
        + "{s}",
        "(given|with|use|here is) (the|this) (schema|template|JSON schema) {j}(, | - )(extract|read|parse|fill in|process|convert) (the data|the values|the information|it|everything) (from|in)(: | ){s}",
        DO
        + "(extract|parse|convert|read|put|structure|map) "
        + _TEXT
        + " (into|to|using|according to|following|as in|with) (|this schema: |the schema |the form |this format: ){j}"
        + _NEST
        + "{s}",
    ),
    "make_json": (
        DO
        + "(write|make|create|build|give me|generate|produce|output) (a JSON object|a JSON|JSON|an object in JSON|a JSON record) (with|where|in which|having|that has) {p}(|.)",
        WANT + " (a JSON object|JSON|a JSON record) (with|where|in which|having) {p}(|.|?)",
        "(JSON|JSON object|as JSON|make JSON|object)(: | - | with ){p}",
        "{p}(: |, | - |. )(as JSON|in JSON|make it JSON|write it as JSON|put it into JSON)(|.|?)",
        DO + "(put|convert|turn|write|format) {p} (into|as|to|in) (JSON|a JSON object|json)(|.)",
    ),
    "json_list": (
        DO
        + "(name|list|give me|write|write down|think of|tell me|output|return) {n} {c} (as|in|in the form of) (a JSON list|a JSON array|JSON|JSON format|an array)(|.)",
        WANT + " (a JSON list|a JSON array|an array|JSON) (of|with) {n} {c}(|.|?)",
        "(JSON list|JSON array|array|JSON)(: | of: | of | with | - ){n} {c}(|.)",
        "{n} {c}(: |, | - )(as JSON|as a JSON list|in a JSON array|JSON list please|JSON)(|.|?)",
        "(answer|reply|respond) (in JSON|with a JSON list|with a JSON array|with JSON)(: |, )(name|list|which are|give me) {n} {c}(|?|.)",
    ),
    "words_json": (
        DO
        + "(put|convert|turn|write|make|format|place) (these words|the words|these|this list|the items|the list)(: | ){l} (into|as|in|to) (a JSON list|a JSON array|JSON|an array|json)(|.)",
        "(JSON list|JSON array|as JSON|list to JSON|to JSON|array of)(: | - ){l}",
        "{l}(: | - |. )(as a JSON list|as JSON|JSON array please|as an array|make it a JSON list)(|.|?)",
        WANT + " a JSON (list|array) (of|with)(: | ){l}(|.|?)",
    ),
}


class Field:
    """One kind of fact: names its key may have, how texts state it, and how to draw a value."""

    def __init__(self, keys: str, says: str, kind: str) -> None:
        self.keys, self.says, self.kind = keys.split("|"), says.split("|"), kind


FIELDS = (
    Field(
        "age|years|age_years",
        "is {v} years old|is {v}|is aged {v}|turned {v}|has just turned {v}|, {v},|celebrates birthday number {v}",
        "age",
    ),
    Field(
        "city|town|home|location|place|residence",
        "lives in {v}|comes from {v}|is from {v}|moved to {v}|stays in {v}|resides in {v}|has a flat in {v}|was born in {v}",
        "city",
    ),
    Field(
        "job|profession|occupation|role|work",
        "works as a {v}|is a {v}|has a job as a {v}|earns money as a {v}|became a {v}|is employed as a {v}",
        "job",
    ),
    Field(
        "email|mail|contact|email_address",
        "can be reached at {v}|has the email {v}|uses {v}|writes from {v}|has the address {v}",
        "email",
    ),
    Field(
        "phone|telephone|number|phone_number",
        "has the phone number {v}|can be called at {v}|answers at {v}|has the number {v}",
        "phone",
    ),
    Field(
        "pet|animal|pet_name",
        "has a pet called {v}|owns a dog named {v}|has a cat called {v}|walks with the dog {v}",
        "name",
    ),
    Field(
        "hobby|interest|likes|favourite_food|food",
        "likes {v}|loves {v}|enjoys {v}|is fond of {v}|cannot live without {v}",
        "food",
    ),
    Field(
        "language|speaks|mother_tongue", "speaks {v}|speaks {v} at home|talks in {v}|teaches {v}|knows {v}", "language"
    ),
    Field(
        "colour|color|favourite_colour",
        "wears {v}|has a {v} car|prefers {v}|drives a {v} car|paints everything {v}",
        "colour",
    ),
    Field(
        "children|kids|num_children", "has {v} children|has {v} kids|is a parent of {v}|raises {v} children", "small"
    ),
    Field(
        "date|day|arrival|when",
        "arrives on {v}|leaves on {v}|has an appointment on {v}|comes on {v}|starts on {v}",
        "date",
    ),
    Field("room|seat|desk", "sits in room {v}|is in room {v}|got room {v}|has seat {v}|works in room {v}", "number"),
    Field("id|code|badge|customer_id", "has the id {v}|uses the code {v}|has badge {v}|is registered as {v}", "code"),
)
ITEM_FIELDS = (
    Field(
        "price|cost|amount|price_eur",
        "costs {v} euros|is sold for {v} dollars|has a price of {v} euros|is {v} dollars|goes for {v} euros",
        "number",
    ),
    Field(
        "quantity|count|stock|units|number",
        "we have {v} of them|there are {v} in stock|{v} pieces are left|{v} were ordered|we sold {v} of them",
        "small",
    ),
    Field("colour|color|shade", "it is {v}|it comes in {v}|the colour is {v}|it is painted {v}", "colour"),
    Field("weight|weight_kg|kg", "it weighs {v} kg|its weight is {v} kg|it is {v} kg heavy", "small"),
    Field(
        "store|city|location|warehouse",
        "it is sold in {v}|it is kept in {v}|it ships from {v}|you find it in {v}",
        "city",
    ),
    Field(
        "seller|owner|customer|buyer",
        "it was bought by {v}|the seller is {v}|{v} sells it|it belongs to {v}|{v} ordered it",
        "name",
    ),
    Field(
        "delivery|date|due|ship_date",
        "it is delivered on {v}|it arrives on {v}|it ships on {v}|delivery is on {v}",
        "date",
    ),
    Field("code|sku|order_id|id", "the code is {v}|its number is {v}|the order id is {v}|it has the code {v}", "code"),
)
_SUBJECTS = ("name|person|full_name|who|customer|employee", "product|item|name|article|title")


def value(world: World, kind: str) -> str | int:
    """A random value of a kind of field."""
    if kind in ("age", "number", "small"):
        low, high = {"age": (5, 95), "number": (10, 900), "small": (1, 30)}[kind]
        return world.number(low, high)
    draw = {
        "city": world.city, "email": world.email, "name": world.name, "date": world.date, "code": world.code,
        "phone": lambda: f"{world.digits(3)}-{world.digits(4)}", "job": lambda: world.pick("job"),
        "food": lambda: world.pick("food"), "language": lambda: world.rng.choice(LANGUAGES),
        "colour": lambda: world.rng.choice(COLOURS), "word": world.word,
    }  # fmt: skip
    return draw[kind]()


def _record(world: World) -> tuple[dict[str, str | int], list[str]]:
    """A record and the sentences that state it."""
    roll = world.rng.random()
    if roll < 0.25:  # keys that are random words: nothing to memorise
        subject = f"the {world.pick('n')}"
        record: dict[str, str | int] = {}
        parts = []
        for key in dict.fromkeys(world.sample("n", world.number(2, 4))):
            record[key] = value(world, world.rng.choice(("number", "name", "colour", "city", "word", "code")))
            say = world.rng.choice(
                (
                    "the {k} is {v}",
                    "its {k} is {v}",
                    "{k}: {v}",
                    "the {k} of it is {v}",
                    "{v} is the {k}",
                    "it has the {k} {v}",
                )
            )
            parts.append(say.format(k=key, v=record[key]))
        return record, [f"{world.rng.choice(('about', 'for', 'data on', 'notes on'))} {subject}", *parts]
    is_person = roll < 0.7
    subject_key = world.rng.choice(_SUBJECTS[0 if is_person else 1].split("|"))
    subject = (world.full_name() if world.chance(0.4) else world.name()) if is_person else world.pick("product")
    record = {subject_key: subject}
    parts = [subject]
    for field in world.rng.sample(FIELDS if is_person else ITEM_FIELDS, world.number(1, 4)):
        key = world.rng.choice(field.keys)
        if key in record:
            continue
        record[key] = value(world, field.kind)
        parts.append(world.rng.choice(field.says).format(v=record[key]))
    return record, parts


def _sentence(world: World, parts: list[str]) -> str:
    subject, *facts = parts
    if subject.split(" ")[0] in ("about", "for", "data", "notes"):
        return f"{subject.capitalize()}: {'; '.join(facts)}."
    if any(fact.startswith(("it ", "its ", "the ", "we ", "there ")) or "it" in fact.split() for fact in facts):
        rest = ". ".join(fact[0].upper() + fact[1:] for fact in facts)
        return f"{world.rng.choice(('The', 'This', 'A', 'Our'))} {subject}. {rest}."
    style = world.rng.random()
    if style < 0.5:
        joined = " and ".join(facts) if len(facts) < 3 else ", ".join(facts[:-1]) + " and " + facts[-1]
        return f"{subject} {joined}.".replace(" , ", ", ")
    pronoun = world.rng.choice(("He", "She"))
    rest = "".join(f" {pronoun} {fact}." for fact in facts[1:])
    return f"{subject} {facts[0]}.{rest}".replace(" , ", ", ").replace(",.", ".")


def _keys(world: World, keys: list[str]) -> str:
    shown = keys if world.chance(0.7) else [f'"{key}"' for key in keys]
    if len(shown) == 1:
        return shown[0]
    if world.chance(0.6):
        return ", ".join(shown[:-1]) + " and " + shown[-1]
    return ", ".join(shown)


def _schema(world: World, record: dict[str, str | int]) -> str:
    kinds = {key: "integer" if isinstance(v, int) else "string" for key, v in record.items()}
    roll = world.rng.random()
    if roll < 0.35:
        properties = {key: {"type": kind} for key, kind in kinds.items()}
        schema: dict[str, object] = {"type": "object", "properties": properties}
        if world.chance(0.5):
            schema["required"] = list(kinds)
        return json.dumps(schema)
    empty = {"string": ("", "...", "string", "text"), "integer": (0, "...", "integer", "number")}
    at = world.number(0, 3)
    return json.dumps({key: empty[kind][at] for key, kind in kinds.items()})


def extract(world: World) -> Exchange:
    """Fields of a short text as JSON, in the order in which they were asked for."""
    record, parts = _record(world)
    text = _sentence(world, parts)
    if world.chance(0.2):
        text += " " + world.rng.choice(
            ("That is all we know.", "Please note this.", "Have a nice day!", "It was raining.", "Call me later.")
        )
    keys = list(record)
    if world.chance(0.5):
        world.rng.shuffle(keys)
    if len(keys) > 2 and world.chance(0.35):
        keys = keys[: world.number(1, len(keys) - 1)]
    wanted: dict[str, str | int | None] = {key: record[key] for key in keys}
    if world.chance(0.08):
        wanted[world.rng.choice(("height", "website", "nickname", "country", "salary"))] = None
    if world.chance(0.3):
        user = world.ask("extract_schema", j=_schema(world, {key: v or "" for key, v in wanted.items()}), s=text)
    else:
        user = world.ask("extract", k=_keys(world, list(wanted)), s=text)
    think = " ".join(f"{key}: {v}." for key, v in wanted.items())
    return Exchange("extract", user, json.dumps(wanted, ensure_ascii=False), think, ("json",))


def make_json(world: World) -> Exchange:
    record: dict[str, str | int] = {}
    for key in dict.fromkeys(world.sample("n", world.number(1, 3))):
        record[key] = value(world, world.rng.choice(("number", "name", "word", "colour", "city")))
    form = world.rng.choice(("{k} = {v}", "{k} {v}", "{k}: {v}", "the {k} is {v}", "{k} set to {v}"))
    text = world.rng.choice((", ", " and ")).join(form.format(k=k, v=v) for k, v in record.items())
    user = world.ask("make_json", p=text)
    return Exchange(
        "make_json", user, json.dumps(record, ensure_ascii=False), f"The keys are {', '.join(record)}.", ("json",)
    )


def json_list(world: World) -> Exchange:
    """A list of a category's members, or of given words, as a JSON array."""
    if world.chance(0.5):
        words = world.sample("common", world.number(2, 6))
        user = world.ask("words_json", l=", ".join(words))
        return Exchange("json_list", user, json.dumps(words), "A JSON list of the words.", ("json",))
    category, count, found = members(world)
    user = world.ask("json_list", n=NUMBERS[count] if world.chance(0.6) else str(count), c=category)
    return Exchange(
        "json_list", user, json.dumps(found[:count]), f"I list {count} {category}.", ("members", str(count), *found)
    )
