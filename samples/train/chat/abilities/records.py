"""Records and the texts that state them: many genres, facts in any order, facts that nobody asked for.

The genres lie in ``wordings/genres.records``. How keys and schemas are shown is in `schemas`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from samples.train.chat.world import CATEGORIES, COLOURS, COUNTRIES, DAYS, LANGUAGES, World

Value = str | int | list[str]
FILE = Path(__file__).resolve().parent.parent / "wordings" / "genres.records"
FILLERS = (
    "That is all we know.|Please note this.|Have a nice day!|It was raining.|Call me later.|Best regards|See you soon.|Nobody knows why.|"
    "The coffee was cold.|I hope this helps.|More details will follow.|Please confirm.|Sorry for the delay.|What a day!|Don't forget to smile.|"
    "We are looking forward to it.|The rest is a secret.|My cousin told me so.|This is not important.|Thanks in advance.|Let me know what you think.|"
    "I almost forgot to write this down.|The weather is fine.|Everybody was happy.|So much for today.|It took a while to find out.|As always.|"
    "By the way, the lift is broken.|There were cookies too.|No questions so far.|I read it in a letter.|You will like it.|It could be worse.|"
    "Just so you know.|The office is closed now.|Hope you are well.|Nothing else has changed.|I'll write again.|Talk to you soon!|Greetings from the team."
).split("|")
OPENERS = (
    "Hello,|Hi there,|Dear team,|Good morning!|Note:|FYI:|News:|From my notes:|Dear all,|Update:|Reminder:|Hi,|To whom it may concern,|Entry:|Memo:|"
    "Quick note:|Message:|Status report.|Just in:|Hey!|For the files:"
).split("|")
_CHOICES = {
    "payment": "card|cash|bank transfer|cheque|voucher|phone", "status": "shipped|delivered|pending|cancelled|on hold|lost|packed|returned|delayed",
    "priority": "high|low|medium|urgent|normal|easy|hard|critical", "sky": "cloudy|clear|grey|sunny|stormy|foggy|rainy|windy|snowy",
    "material": "wood|steel|glass|plastic|leather|cotton|paper|stone|wool|rubber|silver|clay", "drink": CATEGORIES["drinks"],
    "event": "conference|summer party|workshop|concert|book fair|exhibition|marathon|wedding|seminar|picnic|auction|open day|film night|market|reunion|trade fair|chess tournament|dance evening",
    "property": "house|flat|cottage|villa|studio|loft|bungalow|farm|office|shop|garage|apartment|cabin", "car": "van|truck|convertible|pickup|sports car|minibus|taxi|jeep|limousine|camper|station wagon",
    "animal": CATEGORIES["animals"] + "|hamster|goldfish|parrot|pony|turtle|goat|sheep|canary",
    "problem": "screen is black|battery is empty|parcel is missing|door is stuck|bill is wrong|colour is wrong|delivery is late|handle is loose|light flickers|manual is missing|sound is bad|lid is broken|password does not work|motor is loud",
    "decision": "buy new chairs|wait until spring|hire two people|cancel the contract|move to another office|ask the lawyer|paint the walls|test the software|call the customer|write a report|lower the price|close the branch|order more paper",
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One kind of fact of a genre."""

    keys: tuple[str, ...]
    kind: str
    ways: tuple[str, ...]


@dataclass(frozen=True)
class Genre:
    """A kind of text: its subject and the facts about it. `leads` stand before the subject; ("@I",) is a first person."""

    kinds: tuple[str, ...]
    keys: tuple[str, ...]
    leads: tuple[str, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Item:
    """A fact with its value; key is the name it is asked by, label another name for it."""

    key: str
    label: str
    value: Value
    ways: tuple[str, ...]


_LISTS = (
    Fact(("guests", "people", "participants", "names", "friends"), "first", ("the guests are $v", "$v took part", "$v were there", "present: $v", "invited are $v", "$v said yes")),
    Fact(("items", "products", "goods", "articles", "things"), "product", ("it includes $v", "the items are $v", "in the box are $v", "$v belong to it", "on the list stand $v")),
    Fact(("cities", "stops", "places", "towns", "locations"), "city", ("the stops are $v", "it leads through $v", "the cities are $v", "$v are on the way", "places: $v")),
    Fact(("dishes", "foods", "menu_items", "meals", "groceries"), "food", ("there is $v to eat", "the menu: $v", "$v are served", "the foods are $v", "to buy: $v")),
    Fact(("colours", "colors", "shades"), "colour", ("the colours are $v", "it comes in $v", "$v are the colours")),
    Fact(("tags", "keywords", "topics"), "noun", ("tags: $v", "the keywords are $v", "it is tagged with $v", "topics are $v")),
    Fact(("languages", "spoken_languages"), "language", ("the languages are $v", "people speak $v there", "you hear $v")),
)  # fmt: skip


@cache
def genres() -> tuple[Genre, ...]:
    found: list[tuple[list[str], list[Fact]]] = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            found.append((line.split(";"), []))
        elif line and not line.startswith("# "):
            keys, kind, ways = line.split(" ; ")
            found[-1][1].append(Fact(tuple(keys.split("/")), kind, tuple(ways.split("|"))))
    return tuple(
        Genre(tuple(kinds.split()), tuple(keys.strip().split("/")), tuple(leads.strip().split("/")), tuple(facts))
        for (_, kinds, keys, leads), facts in found
    )


def draw(world: World, kind: str) -> Value:
    """A random value of a kind."""
    rng = world.rng
    ranges = {
        "age": (5, 95), "number": (10, 900), "small": (1, 30), "money": (5, 9000), "year": (1950, 2030), "percent": (1, 90),
        "rating": (1, 5), "height": (120, 210),
    }  # fmt: skip
    if kind in ranges:
        return world.number(*ranges[kind])
    if kind in _CHOICES:
        return rng.choice(_CHOICES[kind].split("|"))
    draws: dict[str, Callable[[], str]] = {
        "first": world.name, "name": world.name, "full": world.full_name, "last": lambda: world.pick("last"), "city": world.city,
        "email": world.email, "date": world.date, "time": world.time, "code": world.code, "job": lambda: world.pick("job"),
        "food": lambda: world.pick("food"), "product": lambda: world.pick("product"), "language": lambda: rng.choice(LANGUAGES),
        "colour": lambda: rng.choice(COLOURS), "country": lambda: rng.choice(COUNTRIES).split(":")[0], "weekday": lambda: rng.choice(DAYS),
        "phone": lambda: rng.choice((f"{world.digits(3)}-{world.digits(4)}", f"0{world.digits(3)} {world.digits(5)}", f"+{world.digits(2)} {world.digits(6)}")),
        "company": lambda: world.pick("last") + rng.choice((" Ltd", " & Co", " Inc", "", " Group", " Works", " Bros", " Media", " Foods", " GmbH")),
        "street": lambda: f"{world.number(1, 99)} {world.pick('last')} {rng.choice(('Street', 'Road', 'Lane', 'Avenue', 'Square'))}",
        "seat": lambda: f"{world.number(1, 40)}{rng.choice('ABCDEF')}", "match": lambda: f"{world.pick('last')} against {world.pick('last')}",
        "title": lambda: f"The {world.pick('a').capitalize()} {world.pick('n').capitalize()}", "topic": lambda: f"{world.pick('a')} {world.pick('n')}",
        "noun": lambda: world.pick("n"), "word": world.word,
    }  # fmt: skip
    return draws[kind]()


def _random_record(world: World) -> list[Item]:
    """Keys that are random words: they have to be found by name, nothing else tells what they mean."""
    items: dict[str, Item] = {}
    kinds = ("number", "name", "colour", "city", "word", "code", "date", "small", "full", "food")
    for noun in world.sample("n", world.number(2, 5)):
        key = noun if world.chance(0.7) else f"{world.pick('a')}_{noun}"
        name = key.replace("_", " ")
        ways = (
            f"the {name} is $v", f"its {name} is $v", f"{name}: $v", f"the {name} of it is $v", f"$v is the {name}", f"it has the {name} $v",
            f"{name} = $v", f"for {name} we have $v", f"we set the {name} to $v", f"as {name} I wrote $v", f"the value of {name} is $v",
        )  # fmt: skip
        items[key] = Item(key, name, draw(world, world.rng.choice(kinds)), ways)
    return list(items.values())


def _list_item(world: World) -> Item:
    """A fact with several values."""
    fact = world.rng.choice(_LISTS)
    values = list(dict.fromkeys(str(draw(world, fact.kind)) for _ in range(world.number(2, 4))))
    return Item(world.rng.choice(fact.keys), world.rng.choice(fact.keys), values, fact.ways)


def record(world: World) -> tuple[list[Item], list[str]]:
    """Items of a record (subject first), and the sentences that state them."""
    rng = world.rng
    if world.chance(0.16):
        items = _random_record(world)
        sentences = [_say(world, item, "it") for item in items]
        lead = rng.choice(
            ("About", "For", "Data on", "Notes on", "Here is what we know of", "Concerning", "The facts about")
        )
        return items, [f"{lead} the {world.pick('n')}:", *rng.sample(sentences, len(sentences))]
    genre = rng.choice(genres()) if world.chance(0.75) else genres()[0]
    subject = str(draw(world, rng.choice(genre.kinds)))
    key, label = rng.choice(genre.keys), rng.choice(genre.keys)
    items = [Item(key, label, subject, ())]
    for fact in rng.sample(genre.facts, rng.choice((1, 2, 2, 3, 3, 4, 5))):
        key = rng.choice(fact.keys)
        if key not in [item.key for item in items]:
            items.append(Item(key, rng.choice(fact.keys), draw(world, fact.kind), fact.ways))
    if world.chance(0.1):
        items.append(_list_item(world))
    return items, _sentences(world, genre, items)


def said(value: Value) -> str:
    """A value as a text states it."""
    return _enumerated(value) if isinstance(value, list) else str(value)


def _say(world: World, item: Item, subject: str) -> str:
    way = world.rng.choice(item.ways)
    begins_open = way.startswith("$v") or (way.startswith("$S") and subject not in ("he", "she", "they", "it"))
    text = way.replace("$S", subject).replace("$v", said(item.value))
    return (text if begins_open else text[0].upper() + text[1:]) + "."


def _sentences(world: World, genre: Genre, items: list[Item]) -> list[str]:
    rng = world.rng
    subject, facts = str(items[0].value), rng.sample(items[1:], len(items) - 1)
    if genre.leads == ("@I",):
        lines = [_say(world, fact, "") for fact in facts]
        hello = rng.choice(
            (
                "My name is {}.",
                "I am {}.",
                "This is {}.",
                "I'm {}.",
                "Here is {}.",
                "My name's {}.",
                "{} here.",
                "It's {} writing.",
            )
        )
        return (
            [hello.format(subject), *lines]
            if world.chance(0.6)
            else [
                *lines,
                rng.choice(("Yours, {}", "Regards, {}", "{}", "Signed: {}", "Best, {}", "Cheers, {}")).format(subject),
            ]
        )
    if genre.leads != ("",):
        lead = f"{rng.choice(genre.leads)} {subject}"
        ways = [_say(world, fact, "it") for fact in facts]
        if world.chance(0.45):
            first = ways[0][0].lower() + ways[0][1:]
            return [lead + rng.choice((": ", ", ", " - ", ": ", "; ")) + first, *ways[1:]]
        return [lead + rng.choice((".", ":", "!")), *ways]
    joined = _joined(world, subject, facts)
    if joined:
        return [joined]
    pronoun = rng.choice(("he", "she", "they")) if world.chance(0.3) else rng.choice(("he", "she"))
    found = []
    for i, fact in enumerate(facts):
        is_named = i == 0 or pronoun == "they" or world.chance(0.25)
        line = _say(world, fact, subject if is_named else pronoun)
        found.append(line.replace(f"of {pronoun} ", f"of {subject} ").replace(f" {pronoun}.", f" {subject}."))
    return found if any(subject in line for line in found) else [f"{subject}.", *found]


def _joined(world: World, subject: str, facts: list[Item]) -> str:
    """One sentence with all the facts as its verbs, or "" where that does not work or is not wanted."""
    clauses = [[way[3:] for way in fact.ways if way.startswith("$S ") and way.count("$S") == 1] for fact in facts]
    if not all(clauses) or world.chance(0.5):
        return ""
    texts = [world.rng.choice(ways).replace("$v", said(fact.value)) for ways, fact in zip(clauses, facts, strict=True)]
    return f"{subject} {_enumerated(texts)}."


def _enumerated(texts: list[str]) -> str:
    return ", ".join(texts[:-1]) + " and " + texts[-1] if len(texts) > 1 else texts[0]


def as_text(world: World, items: list[Item], sentences: list[str]) -> str:
    """The record as prose, a note with labels, a table row or a few words."""
    rng, roll = world.rng, world.rng.random()
    shown = rng.sample(items, len(items))
    if roll < 0.10:
        mark = rng.choice((": ", " = ", " - ", ":"))
        lines = [_label(world, item) + mark + said(item.value) for item in shown]
        return rng.choice(("\n", "\n", "; ", ", ", " | ")).join(lines)
    if roll < 0.14 and all(item.label for item in items):
        bar = rng.choice((" | ", ",", "\t", "; "))
        return bar.join(item.label for item in shown) + "\n" + bar.join(said(item.value) for item in shown)
    parts = list(sentences)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        parts.insert(world.number(1, len(parts)), rng.choice(FILLERS))
    if world.chance(0.15):
        parts.insert(0, rng.choice(OPENERS))
    return rng.choice((" ", " ", " ", " ", "\n")).join(parts)


def _label(world: World, item: Item) -> str:
    text = item.label.replace("_", " ")
    return text if world.chance(0.5) else text[0].upper() + text[1:]
