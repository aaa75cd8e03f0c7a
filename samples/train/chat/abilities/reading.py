"""Questions about a short text that names people, places, things and numbers."""

from samples.train.chat.abilities.phrases import DO, KNOW
from samples.train.chat.world import Exchange, World

_BEFORE = "(read this|text|here is a text|story|context|passage|note|given|from the diary|)(: |:\n)"
WORDINGS: dict[str, tuple[str, ...]] = {
    "reading": (
        "{s}(\n| |\n\n)(question: |so, |now: |tell me, |please answer: |q: |){q}",
        "(read this|text|here is a text|story|context|passage|note|facts|information)(: |:\n){s}(\n| |\n\n)(question: |q: |and now: |){q}",
        "{q}(\n| |\n\n)(text|context|here is the text|the text says|use this|passage|story|look here)(: |:\n){s}",
        DO + "(answer|reply to) (the question|this question|a question) (about|from|on|based on|with) (the text|this text|this)(: | - |:\n){s}(\n| ){q}",
        "(based on|according to|going by|from) (this|the text|the following|this text)(: |, ){s}(\n| ){q}",
        "(suppose|assume|imagine|we know) that {s}(\n| ){q}",
    ),
    "reading_who": (
        "who {verb} the {thing}?", "(which|what) person {verb} the {thing}?", KNOW + " who {verb} the {thing}(|?|.)",
        "(by whom|who)(:| is it that) {verb} the {thing}?", "who (was it that|is the one who) {verb} the {thing}?",
        "(name|give the name of) the (person|one) who {verb} the {thing}(|.)",
    ),
    "reading_what": (
        "(what|which thing|which object) (was it that|is it that|was the thing that) {n} {verb}?", "tell me what {n} {verb}(|.)",
        "what is it that {n} {verb}?", KNOW + " what {n} {verb}(|?|.)", "(name|give) the thing (that|which) {n} {verb}(|.)",
        "{n} {verb} (what|which thing)?",
    ),
    "reading_where": (
        "where (was|is) {n}?", "(where|in which city|in which town|in what place) (did|has) (this|it) (happen|happened)(| to {n})?",
        KNOW + " where (it happened|{n} was)(|?|.)", "(which|what) (city|town|place) (was|is) {n} in?", "(name|give) the (city|town|place)(|.)",
    ),
    "reading_when": (
        "when (was this|was it|did this happen|did it happen|was that)(|?)", "(on|at) (which|what) (day|date|time) (was|did) (it|this)(| happen)?",
        KNOW + " when (it|this) (was|happened)(|?|.)", "(which|what) day (was it|is named|does the text name)?", "(name|give) the (day|time|date)(|.)",
    ),
}  # fmt: skip
_VERBS = (
    "found",
    "bought",
    "sold",
    "lost",
    "painted",
    "repaired",
    "carried",
    "broke",
    "hid",
    "cleaned",
    "borrowed",
    "ate",
    "wanted",
    "saw",
)


def reading(world: World) -> Exchange:
    """One question about two sentences; the second names another person, so position alone does not answer."""
    (n, m), (thing, other) = (world.name(), world.name()), world.sample("product", 2)
    verb, verb2 = world.rng.sample(_VERBS, 2)
    city, day = world.city(), world.date()
    main = world.rng.choice(
        (
            f"{n} {verb} a {thing} in {city} on {day}.",
            f"On {day}, {n} {verb} the {thing} in {city}.",
            f"In {city}, {n} {verb} a {thing}. That was on {day}.",
            f"{n} was in {city} on {day} and {verb} a {thing}.",
        )
    )
    side = f"{m} {verb2} a {other}."
    text = " ".join(world.rng.sample([main, side], 2)) if world.chance(0.7) else main
    slots = {"n": n, "verb": verb, "thing": thing}
    key, answer = world.rng.choice(
        (("reading_who", n), ("reading_what", thing), ("reading_where", city), ("reading_when", day))
    )
    noisy, world.noisy = world.noisy, False
    question = world.ask(key, **slots)
    world.noisy = noisy
    user = world.ask("reading", s=text, q=question[0].upper() + question[1:])
    full = {
        "reading_who": f"{n} {verb} the {thing}.",
        "reading_what": f"{n} {verb} the {thing}.",
        "reading_where": f"It was in {city}.",
        "reading_when": f"It was on {day}.",
    }[key]
    return Exchange("reading", user, full, f"The text says: {main}", ("contains", answer))
