"""Facts that the user states and asks for again, turns or thousands of tokens later; a later statement wins."""

from collections.abc import Callable
from dataclasses import dataclass

from samples.train.chat.abilities.phrases import KNOW
from samples.train.chat.world import COLOURS, DAYS, Exchange, World

_PLEASE = "(|||remember: |remember that |please remember that |note that |please note: |by the way, |keep in mind that |for later: |don't forget: |just so you know, |FYI, |I want you to know that |you should know that |save this: |let me tell you: |important: )"
WORDINGS: dict[str, tuple[str, ...]] = {
    "state_name_of": (
        _PLEASE + "my {k}('s name is| is called| is named| goes by the name of|'s called) {v}(|.|!)",
        _PLEASE + "(I have a|I own a|there is my|I've got a) {k} (called|named|by the name of|whose name is) {v}(|.|!)",
        _PLEASE + "the name of my {k} is {v}(|.)",
        _PLEASE + "{v} is (the name of my {k}|my {k}'s name|what my {k} is called|how my {k} is called|my {k})(|.)",
        _PLEASE + "(we|I) (call|named|have named) (our|my) {k} {v}(|.)",
    ),
    "query_name_of": (
        "(what's|what is|what was|what did I say is) (the name of my {k}|my {k}'s name|my {k} called|my {k} named)(| again)?",
        "(do you (remember|recall|know)|can you (remember|recall)|tell me|remind me of|remind me:|please tell me) (the name of my {k}|my {k}'s name|what my {k} is called|how my {k} is called)(|?|.)",
        "(how|what) (do I call|did I name|did I call|is) my {k}(| called| again)?",
        "my {k}(: |, |'s name: | - )(name|what's the name|what was the name|what is it called|called what)?",
        "(which|what) name (has|does|did) my {k}(| have)?",
        "(I forgot|I forget|I can't remember|I don't remember) (what my {k} is called|the name of my {k}|my {k}'s name)(. |, )(help me|do you know|tell me|what was it|what is it)(|?|.)",
        KNOW + " (what my {k} is called|the name of my {k}|my {k}'s name)(|?|.)",
    ),
    "state": (
        _PLEASE + "my {k} is {v}(|.|!)",
        _PLEASE + "{v} is my {k}(|.|!)",
        _PLEASE + "the {k} (I have|I use|I was given|I got|for me) is {v}(|.)",
        _PLEASE + "(for|as) my {k}(,|:) (it is|I have|I use|put|write|write down|take) {v}(|.)",
        _PLEASE + "my {k}(: | = | - ){v}(|.)",
        _PLEASE + "I have {v} as my {k}(|.)",
        _PLEASE + "when it comes to my {k}, it is {v}(|.)",
    ),
    "query": (
        "(what's|what is|what was|what did I say is|what did you note as|which is) my {k}(| again)?",
        "(do you (remember|recall|know)|can you (remember|recall|tell me)|tell me|remind me of|remind me:|please tell me|give me|say|repeat) (my {k}|what my {k} is|what my {k} was)(|?|.)",
        "my {k}(: |, | - |? )(what is it|what was it|what's that|remind me|again|which one|do you remember)(|?|.)",
        "(which|what) {k} (did I (mention|tell you|give you|name|say)|do I have|have I got)(| before| earlier)?",
        "(I forgot|I forget|I can't remember|I don't remember|I lost) my {k}(. |, )(help me|do you know it|tell me|what was it|what is it)(|?|.)",
        "(what|which) (value|thing) did I (mention|tell you|give you) (as|for) my {k}?",
        KNOW + " my {k}(|?|.)",
        "(and|now) my {k}?",
    ),
    "state_me": (
        _PLEASE + "(my name is|I am|I'm|I am called|call me|you can call me|they call me|people call me|this is|my name's|the name's|here is|it's me,) {v}(|.|!)",
        "(hi|hello|hey|good morning)(, |! )(my name is|I am|I'm|this is|it's) {v}(|.|!)",
        "{v} is my name(|.)", "(my|the) name(: | - ){v}(|.)",
    ),
    "query_me": (
        "(what's|what is|what was|do you know|do you remember|tell me|can you tell me|say|remind me of|do you recall|can you recall) my name(| again)?",
        "(who am I|what am I called|how am I called|what do people call me|what should you call me|who is talking to you|who are you talking to)(|?| again?)",
        "(do you (remember|know|recall)|tell me|can you say) (who I am|what my name is|what I am called|how I am called)(|?|.)",
        "(I forgot|I can't remember) (my name|my own name)(. |, )(what is it|do you know it|help me)(|?|.)",
        "my name(, please|: what is it|? do you remember it|, what was it)?", KNOW + " (my name|what my name is)(|?|.)",
    ),
    "state_live": (
        _PLEASE + "(I live in|I am from|I'm from|I come from|my home is in|I moved to|I just moved to|home for me is|I stay in|I reside in|my home town is|I am based in) {v}(|.|!)",
        _PLEASE + "{v} is (where I live|my home|my home town|the city I live in|where I am from)(|.)",
    ),
    "query_live": (
        "where (do I live|am I from|is my home|do I come from|did I say I live|do I stay)(| again)?",
        "(which|what) (city|town|place) (do I live in|am I from|is my home|did I say I live in|do I come from)(| again)?",
        "(do you (remember|know|recall)|tell me|can you say|remind me) (where I live|where I am from|my home town|which city I live in|what city I live in)(|?|.)",
        "(what's|what is|name) my (city|town|home town|home)(| called)?",
        "(I forgot|I can't remember) where I live(. |, )(do you know|help me|where is it)(|?|.)",
    ),
    "state_like": (
        _PLEASE + "(I like|I love|I really like|I enjoy|I adore|my favourite food is|my favorite food is|I could always eat|the food I like best is|nothing is better than|I prefer) {v}(|.|!)",
        _PLEASE + "{v} is (my favourite food|my favorite food|what I like most|what I like to eat|the food I love)(|.)",
    ),
    "query_like": (
        "(what's|what is|what was|tell me|do you remember|say|do you know) my (favourite|favorite) food(| again)?",
        "(what|which food) do I (like|love|enjoy|prefer|like to eat|like most|like best)(| to eat)(| again)?",
        "(do you (remember|know|recall)|tell me|can you say|remind me) (what I like to eat|which food I like|what food I like best|what I like)(|?|.)",
        "(what|which dish) should I (eat|cook|order) (if|when) I want my favourite food?",
        "(I forgot|I can't remember) which food I like(. |, )(do you know|help me|what was it)(|?|.)",
    ),
    "all_facts": (
        "(what|which things) do you (know|remember) about me(| so far)?",
        "(tell me|list|repeat|say|summarise|sum up|show me) (everything|all|all that|what|all the things) (you know|I told you|you remember|I said) about (me|myself)(|.)",
        "(what|which facts) (did|have) I (tell|told) you about (me|myself)(| so far)?",
        "(give|write) me a (summary|list) of what (I told you|you know) about me(|.)",
    ),
}  # fmt: skip
_BEINGS = "cat|dog|sister|brother|son|daughter|boss|neighbour|teacher|boat|car|parrot|horse|rabbit|hamster|goldfish|friend|best friend|uncle|aunt|band|school|hotel|robot|turtle|cousin|landlord|dentist|plant|company|team|street|village|husband|wife|grandmother|roommate|coach|piano|bike".split(
    "|"
)
_THINGS = {
    "code": "door code|PIN|password|locker code|wifi password|badge number|account code|ticket code|booking code|order number|passport number|member id|bike lock code|safe code|room key code|booking reference",
    "number": "lucky number|house number|room number|seat number|shoe size|age|parking space|bus line|locker number|flat number|favourite number|platform",
    "colour": "favourite colour|favorite color|car's colour|eye colour|team colour|front door's colour|bike's colour",
    "day": "day off|gym day|cleaning day|meeting day|birthday|flight day",
    "city": "destination|birthplace|holiday destination|next stop|departure airport",
    "job": "job|profession|dream job|old job|father's job",
    "product": "gift idea|newest purchase|favourite thing",
    "name": "nickname|username|favourite author|project name|middle name|favourite singer",
    "time": "meeting time|alarm time|train's departure time|dinner time",
}  # fmt: skip


_MORE_BEINGS = "girlfriend|boyfriend|mother|father|grandfather|godson|nephew|niece|twin|neighbour's dog|goat|pony|canary|snake|budgie|donkey|gecko|guinea pig|doctor|lawyer|hairdresser|tutor|colleague|assistant|manager|rival|pen pal|classmate|stepsister|grandson|granddaughter|barber|vet|favourite bar|gym|bakery|library|startup|blog|podcast|newspaper|choir|chess club|football team|sailing boat|caravan|motorbike|van|laptop|phone|computer|guitar|violin|teddy bear|doll|avatar|character|house|cabin|garden|island|river|mountain|farm|café|server|printer|drone|vacuum cleaner|car dealer|bus driver|yoga teacher|best man|bridesmaid|guide|host|translator"
_MORE_THINGS = {
    "code": "gate code|student number|tax number|library card|insurance number|alarm code|safe combination|voucher code|licence plate|flight number|case number|customer number|parking ticket|serial number|gift card code|phone code|bank code|reservation number|ticket number|tracking number|username code|laptop password|patient number|device id",
    "number": "row|floor|bib number|jersey number|table number|apartment|score|weight|height|rent|budget|number of books|target|high score|step goal|record|salary|favourite page|phone extension|postcode|best time|number of cousins",
    "colour": "hair colour|bag's colour|wall colour|favourite shade|kitchen's colour|dress colour|coat's colour|helmet's colour|sofa's colour|backpack's colour",
    "day": "market day|lucky day|exam day|wedding day|laundry day|training day|delivery day|deadline|day of departure|choir day|dentist day|payday|bin day",
    "city": "dream city|place of work|parents' home|last stop|favourite city|school's town|arrival airport|next trip|first home|summer residence|university town|place of birth",
    "job": "mother's job|first job|next job|wife's job|side job|sister's job|job title|trade|hobby job",
    "product": "birthday wish|lost item|most used tool|prize|latest buy|present for mum|only luxury|last order|souvenir|wish",
    "name": "stage name|pen name|maiden name|favourite teacher|favourite poet|hero|second name|doctor's name|contact|team captain|gamer tag|code name|best friend's name|idol|supervisor|favourite painter|landlord's name|password hint",
    "time": "bedtime|lunch time|bus time|check-in time|appointment|shift start|call time|flight's departure|breakfast time|closing time|gym time|curfew|tea time",
}  # fmt: skip
_UPDATES = ("Actually, ", "Correction: ", "No, wait: ", "Change of plan: ", "I was wrong, ", "Update: ")
_MORE_UPDATES = (
    "Sorry, I made a mistake: ", "Scratch that, ", "Forget what I said before: ", "It has changed: ", "New information: ", "From now on, ", "As of today, ",
    "I mixed that up: ", "Wait, ", "Oops, ", "Hm, no, ", "That was wrong: ", "Please correct that: ", "Let me correct myself: ", "Things changed: ", "Not any more: ",
    "I have to correct that: ", "Oh, I forgot, it's different now: ", "Please update: ", "Small change: ", "Since yesterday it's different: ", "To be exact, ",
    "I told you something wrong: ", "Replace that: ", "I changed my mind: ", "Edit: ", "Hold on, ", "My mistake, ", "No no, ", "Ignore the last one: ", "Not quite: ",
)  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """A stated fact: its statement, its acknowledgement, its question and what the answer is."""

    kind: str
    key: str
    value: str

    @property
    def sentence(self) -> str:
        """The fact in the second person."""
        return {
            "me": f"your name is {self.value}", "live": f"you live in {self.value}", "like": f"you like {self.value}",
            "name_of": f"your {self.key} is called {self.value}",
        }.get(self.kind, f"your {self.key} is {self.value}")  # fmt: skip


def _value(world: World, kind: str) -> str:
    draw: dict[str, Callable[[], str]] = {
        "code": world.code, "city": world.city, "name": world.name, "time": world.time,
        "number": lambda: str(world.number(1, 400)), "colour": lambda: world.rng.choice(COLOURS),
        "day": lambda: world.rng.choice(DAYS), "job": lambda: world.pick("job"), "product": lambda: world.pick("product"),
    }  # fmt: skip
    return draw[kind]()


def new_fact(world: World) -> Fact:
    roll = world.rng.random()
    if roll < 0.14:
        return Fact("me", "name", world.name())
    if roll < 0.24:
        return Fact("live", "home", world.city())
    if roll < 0.32:
        return Fact("like", "food", world.pick("food"))
    if roll < 0.55:
        beings = _BEINGS + _MORE_BEINGS.split("|") if world.is_training else _BEINGS
        being = world.rng.choice(beings) if world.chance(0.75) else world.pick("n")
        return Fact("name_of", being, world.name())
    if roll < 0.85:
        kind = world.rng.choice(list(_THINGS))
        things = _THINGS[kind] + ("|" + _MORE_THINGS[kind] if world.is_training else "")
        return Fact("", world.rng.choice(things.split("|")), _value(world, kind))
    key = f"{world.pick('a')} {world.pick('n')}" if world.chance(0.5) else world.pick("n")
    return Fact("", key, _value(world, world.rng.choice(list(_THINGS))))


def _key(stem: str, fact: Fact) -> str:
    return f"{stem}_{fact.kind}" if fact.kind else stem


def state(world: World, fact: Fact, is_update: bool = False) -> Exchange:
    text = world.ask(_key("state", fact), k=fact.key, v=fact.value)
    if is_update:
        is_name_first = world.is_training and text.startswith(fact.value)
        rest = text if is_name_first else text[0].lower() + text[1:]
        text = world.rng.choice(_UPDATES + _MORE_UPDATES if world.is_training else _UPDATES) + rest
    sentence = fact.sentence
    return Exchange(
        "state", text, f"Got it, {sentence}.", "The user tells me a fact. I remember it.", ("contains", fact.value)
    )


def recall(world: World, fact: Fact) -> Exchange:
    text = world.ask(_key("query", fact), k=fact.key)
    sentence = fact.sentence
    return Exchange(
        "memory",
        text,
        recalled(fact),
        f"Earlier the user said that {sentence.replace('your', 'the', 1)}.",
        ("contains", fact.value),
    )


def recall_many(world: World, facts: list[Fact]) -> Exchange:
    """Several questions in one turn, answered in their order."""
    questions = [world.ask(_key("query", fact), k=fact.key).rstrip(".?! ") for fact in facts]
    joint = world.rng.choice(
        (" and ", "? And ", ", and ", "? ", "\n", "; ", " plus ", "? Also, ", ". Then, ", " and then ")
    )
    text = joint.join(questions) + world.rng.choice(("?", "", "."))
    answer = " ".join(recalled(fact) for fact in facts)
    return Exchange(
        "memory", text, answer, f"I was asked for {len(facts)} facts.", ("contains", *(f.value for f in facts))
    )


def recalled(fact: Fact) -> str:
    """The answer to a question for the fact."""
    return fact.sentence[0].upper() + fact.sentence[1:] + "."


def recall_all(world: World, facts: list[Fact]) -> Exchange:
    listed = "\n".join("- " + f.sentence[0].upper() + f.sentence[1:] + "." for f in facts)
    return Exchange(
        "memory_all", world.ask("all_facts"), listed, "I list all facts.", ("contains", *(f.value for f in facts))
    )


def unknown(world: World, fact: Fact) -> Exchange:
    """A question for a fact that was never stated."""
    text = world.ask(_key("query", fact), k=fact.key)
    return Exchange("memory_unknown", text, "You have not told me that yet.", "I find no such fact in our talk.")


def new_value_like(world: World, fact: Fact) -> str:
    """Another value for a fact of the same key."""
    if fact.kind in ("me", "name_of"):
        return world.name()
    if fact.kind == "live":
        return world.city()
    if fact.kind == "like":
        return world.pick("food")
    for kind, keys in _THINGS.items():
        if fact.key in (keys + ("|" + _MORE_THINGS[kind] if world.is_training else "")).split("|"):
            return _value(world, kind)
    return _value(world, "code")
