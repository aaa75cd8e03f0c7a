"""The entities that conversations are about, split by a hash into trained ones and ones kept for evaluation.

A `World` holds one random stream, one split and one set of wordings; abilities draw everything from it. Facts that
must be memorised (definitions, emoji, capitals) are not split: for them only the wording can be new.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import ClassVar

from samples.train.chat.grammar import expand, noise

DATA = Path(__file__).resolve().parent.parent / "data"
HELD_OUT_IN = 8

CITIES = (
    "Paris|London|Oslo|Rome|Berlin|Madrid|Lisbon|Vienna|Prague|Dublin|Athens|Cairo|Tokyo|Kyoto|Osaka|Seoul|Delhi|Mumbai|"
    "Sydney|Melbourne|Boston|Chicago|Houston|Denver|Seattle|Dallas|Miami|Toronto|Montreal|Lima|Bogota|Quito|Helsinki|"
    "Stockholm|Copenhagen|Warsaw|Budapest|Zurich|Geneva|Milan|Naples|Venice|Munich|Hamburg|Cologne|Lyon|Nice|Porto|"
    "Seville|Valencia|Bilbao|Istanbul|Ankara|Tunis|Nairobi|Lagos|Accra|Dakar|Hanoi|Bangkok|Jakarta|Manila|Singapore|"
    "Shanghai|Beijing|Taipei|Perth|Auckland|Wellington|Havana|Santiago|Brussels|Antwerp|Rotterdam|Utrecht|Bergen|"
    "Malmo|Riga|Vilnius|Tallinn|Krakow|Gdansk|Bratislava|Zagreb|Sofia|Bucharest|Belgrade|Skopje|Tirana|Turin|"
    "Palermo|Florence|Bologna|Leeds|York|Bristol|Glasgow|Edinburgh|Cardiff|Belfast|Cork|Galway|Austin|Portland|Phoenix|"
    "Atlanta|Detroit|Omaha|Tulsa|Memphis|Nashville|Orlando|Tampa|Calgary|Ottawa|Quebec|Halifax|Winnipeg|New York|"
    "Los Angeles|San Diego|Las Vegas|Cape Town|Hong Kong|Buenos Aires|Mexico City|Rio de Janeiro|Abu Dhabi|Tel Aviv"
).split("|")
COUNTRIES = (
    "France:Paris|Italy:Rome|Spain:Madrid|Germany:Berlin|Portugal:Lisbon|Austria:Vienna|Norway:Oslo|Sweden:Stockholm|"
    "Finland:Helsinki|Denmark:Copenhagen|Poland:Warsaw|Hungary:Budapest|Greece:Athens|Ireland:Dublin|Egypt:Cairo|"
    "Japan:Tokyo|China:Beijing|Thailand:Bangkok|Vietnam:Hanoi|Peru:Lima|Cuba:Havana|Chile:Santiago|Canada:Ottawa|"
    "Australia:Canberra|Kenya:Nairobi|Turkey:Ankara|Croatia:Zagreb|Bulgaria:Sofia|Romania:Bucharest|Serbia:Belgrade|"
    "Belgium:Brussels|Estonia:Tallinn|Latvia:Riga|Lithuania:Vilnius|Indonesia:Jakarta|Ghana:Accra|Senegal:Dakar|"
    "Colombia:Bogota|Ecuador:Quito|Argentina:Buenos Aires"
).split("|")
COLOURS = "red|blue|green|yellow|orange|purple|pink|brown|black|white|gray|silver|golden|violet|beige|crimson".split(
    "|"
)
JOBS = (
    "baker|teacher|doctor|nurse|pilot|farmer|painter|writer|plumber|lawyer|chef|driver|singer|dancer|engineer|carpenter|"
    "gardener|librarian|photographer|mechanic|dentist|architect|waiter|barber|tailor|sailor|judge|actor|florist|vet|"
    "scientist|programmer|designer|translator|journalist|musician|butcher|fisherman|firefighter|cashier"
).split("|")
LANGUAGES = "French|German|Spanish|Italian|Dutch|Polish|Greek|Swedish|Danish|Finnish|Turkish|Arabic|Hindi|Japanese|Korean|Chinese|Russian|Czech|Latin|Welsh".split(
    "|"
)
PRODUCTS = (
    "lamp|chair|table|laptop|phone|bicycle|backpack|jacket|kettle|blender|keyboard|monitor|camera|printer|sofa|mirror|"
    "carpet|clock|tent|guitar|drone|router|helmet|toaster|vase|desk|mug|scarf|wallet|watch|pen|notebook|candle|ladder|"
    "hammer|drill|speaker|tablet|charger|pillow|blanket|basket|kite|umbrella|suitcase|violin|scooter|fridge"
).split("|")
FOODS = "bread|rice|soup|pasta|salad|cheese|honey|butter|milk|tea|coffee|juice|sugar|flour|pepper|garlic|yogurt|chocolate|pancakes|noodles|curry|tacos|sushi|waffles|porridge|lentils|olives|salmon|tuna|shrimp|bacon|ham|sausages|dumplings|lasagna|pizza|burgers|muffins|pretzels|popcorn|cereal|oatmeal|jam|mustard|ketchup|beans|corn|peas|cabbage|spinach|broccoli|peanuts|almonds|raisins|figs|dates|ravioli|risotto|goulash|stew|kebab|falafel|hummus|omelettes".split(
    "|"
)
THINGS_COUNTED = "apples|pears|books|coins|stamps|marbles|cards|eggs|pencils|cookies|flowers|shells|stickers|tickets|balloons|oranges|keys|cups|plates|buttons|toys|candles|lemons|stones|boxes|bottles|chairs|photos|songs|cakes".split(
    "|"
)
DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday".split("|")
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December".split("|")
CATEGORIES = {
    "fruits": "apple|banana|cherry|lemon|mango|orange|peach|pear|plum|grape",
    "vegetables": "carrot|potato|onion|tomato|pepper|cabbage|spinach|pea|bean|corn",
    "animals": "dog|cat|horse|cow|lion|tiger|bear|wolf|fox|rabbit",
    "birds": "owl|eagle|duck|swan|robin|crow|parrot|penguin|dove|hawk",
    "colours": "red|blue|green|yellow|orange|purple|pink|brown|black|white",
    "planets": "Mercury|Venus|Earth|Mars|Jupiter|Saturn|Uranus|Neptune",
    "seasons": "spring|summer|autumn|winter",
    "sports": "football|tennis|golf|hockey|rugby|cricket|boxing|rowing|judo|skiing",
    "instruments": "piano|guitar|violin|drum|flute|trumpet|harp|cello|organ|oboe",
    "vehicles": "car|bus|train|bike|truck|boat|plane|tram|taxi|van",
    "drinks": "water|tea|coffee|milk|juice|cocoa|soda|cider|lemonade|smoothie",
    "flowers": "rose|tulip|daisy|lily|orchid|poppy|violet|iris|lotus|sunflower",
    "tools": "hammer|saw|drill|wrench|axe|pliers|shovel|rake|ladder|chisel",
    "countries": "France|Italy|Spain|Japan|Egypt|Peru|Kenya|Canada|Norway|Poland",
    "shapes": "circle|square|triangle|star|oval|cube|cone|sphere|hexagon|rectangle",
    "metals": "iron|gold|silver|copper|tin|zinc|lead|nickel|steel|bronze",
}  # fmt: skip
SYLLABLES = "ba be bo da de do fa fi ga go ka ke ko la le li lo ma mi mo na ne no pa pe po ra ri ro sa se so ta te ti to va vi vo za zo lu mu nu ru tu dra kri plo sta tri bel dor fen gar hol jin kor lum mar nor pel quin ros sel tor ulm ven wil yan zel".split()


@cache
def lines(name: str) -> tuple[str, ...]:
    return tuple((DATA / name).read_text(encoding="utf-8").splitlines())


@cache
def table(name: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(line.split("\t")) for line in lines(name))


def is_held_out(text: str) -> bool:
    return zlib.crc32(text.encode()) % HELD_OUT_IN == 0


@cache
def split(pool: str, held_out: bool) -> tuple[str, ...]:
    """The half of a pool that belongs to training or to evaluation."""
    items: tuple[str, ...] | list[str]
    if pool in ("n", "v", "a"):
        items = [word for word, pos in table("chat_words.tsv") if pos == pool]
    elif pool == "word":
        items = [word for word, _ in table("chat_words.tsv")]
    elif pool == "common":
        items = [word for word, _ in table("chat_words.tsv")[:3000]]
    elif pool == "first":
        items = lines("chat_first_names.txt")
    elif pool == "last":
        items = lines("chat_surnames.txt")
    else:
        items = {"city": CITIES, "job": JOBS, "product": PRODUCTS, "food": FOODS, "counted": THINGS_COUNTED}[pool]
    found = tuple(item for item in items if is_held_out(item) == held_out)
    return found if len(found) > 2 else tuple(items)


@dataclass(frozen=True)
class Exchange:
    """One user turn with its answer; `check` says how an evaluation judges an answer (see evaluate)."""

    ability: str
    user: str
    answer: str
    think: str = ""
    check: tuple[str, ...] = ("exact",)


class Abilities:
    """Named abilities with weights, to be drawn from."""

    def __init__(self, weighted: dict[str, tuple[float, "Ability"]]) -> None:
        self.by_name = {name: ability for name, (_, ability) in weighted.items()}
        self.functions = list(self.by_name.values())
        self.weights = [weight for weight, _ in weighted.values()]


@dataclass
class World:
    """One random stream over one split of the entities. `wordings` maps a key to patterns.

    The committed evaluation set was drawn from this class, draw by draw; what only the training has is in TrainingWorld.
    """

    is_training: ClassVar[bool] = False
    rng: Random
    wordings: dict[str, tuple[str, ...]]
    held_out: bool = False
    noisy: bool = True
    asked: str = field(default="", init=False)
    abilities: Abilities | None = field(default=None, init=False)
    """Whose exchanges fill conversations; None: the ones of the evaluation."""

    def ask(self, key: str, **slots: str) -> str:
        """A user's text for `key`, with surface noise."""
        self.asked = self.rng.choice(self.wordings[key])
        text = expand(self.rng, self.asked, slots)
        return noise(self.rng, text) if self.noisy else text

    def pick(self, pool: str) -> str:
        return self.rng.choice(split(pool, self.held_out))

    def sample(self, pool: str, count: int) -> list[str]:
        return self.rng.sample(split(pool, self.held_out), count)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def invented(self) -> str:
        """A random name that exists nowhere, so that copying it cannot be memorised."""
        return "".join(self.rng.choice(SYLLABLES) for _ in range(self.rng.randint(2, 3)))

    def name(self) -> str:
        return self.invented().capitalize() if self.chance(0.12) else self.pick("first")

    def full_name(self) -> str:
        return f"{self.name()} {self.pick('last')}"

    def city(self) -> str:
        roll = self.rng.random()
        if roll < 0.15:
            return self.invented().capitalize()
        return self.pick("last") if roll < 0.35 else self.pick("city")

    def word(self) -> str:
        return self.invented() if self.chance(0.08) else self.pick("word")

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def digits(self, count: int) -> str:
        return "".join(self.rng.choice("0123456789") for _ in range(count))

    def code(self) -> str:
        letters = "".join(self.rng.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(self.rng.randint(1, 3)))
        return letters + self.rng.choice(("-", "")) + self.digits(self.rng.randint(2, 5))

    def time(self) -> str:
        if self.chance(0.5):
            return f"{self.number(1, 12)} {self.rng.choice(('am', 'pm'))}"
        return f"{self.number(0, 23):02d}:{self.rng.choice(('00', '15', '30', '45', '10', '20'))}"

    def date(self) -> str:
        if self.chance(0.35):
            return f"{self.number(2019, 2032)}-{self.number(1, 12):02d}-{self.number(1, 28):02d}"
        if self.chance(0.5):
            return f"{self.number(1, 28)} {self.rng.choice(MONTHS)}"
        return self.rng.choice(DAYS)

    def email(self) -> str:
        return f"{self.name().lower()}{self.rng.choice(('', '.', '_'))}{self.rng.choice((self.pick('last').lower(), self.digits(2)))}@{self.pick('word')}.{self.rng.choice(('com', 'org', 'net', 'io'))}"

    def phrase(self) -> str:
        """Two to five words without meaning together."""
        return " ".join(self.sample("common", self.number(2, 5)))


Ability = Callable[[World], Exchange]


def article(noun: str) -> str:
    """The noun phrase with a or an."""
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun
