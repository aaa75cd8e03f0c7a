"""Sums, comparisons, counting and word problems with small numbers."""

from samples.train.chat.abilities.phrases import DO, KNOW, WANT
from samples.train.chat.world import Exchange, World

_ADD = "({a} + {b}|{a}+{b}|{a} plus {b})"
_SUBTRACT = "({a} - {b}|{a}-{b}|{a} minus {b})"
_TIMES = "({a} * {b}|{a} x {b}|{a} times {b}|{a}*{b})"


def _sums(body: str) -> tuple[str, ...]:
    return (
        "(what's|what is|how much is|what does|what do you get for|what equals|how much does) "
        + body
        + "(| equal| make)?",
        DO + "(calculate|solve|evaluate|add up|do the sum|do this sum:|do the maths:|find) " + body + "(|.|?)",
        body + "(| = ?| =|?| is| equals| equals what?| is how much?| makes?)",
        WANT + " the (result|answer|value|sum|total) of " + body + "(|.|?)",
        "(sum|maths|math|calculation|arithmetic|calculator)(: | - )" + body,
        KNOW + " (what|how much) " + body + " is(|.|?)",
        "(if I|when I|if you|suppose I) (calculate|compute|do|type) "
        + body
        + ", what (do I get|do you get|is the result|comes out)?",
    )


WORDINGS: dict[str, tuple[str, ...]] = {
    "add": (
        *_sums(_ADD),
        DO + "add {a} (and|to) {b}(|.)(| what do you get?| what is it?)",
        "(what's|what is|give me|find|calculate) the sum of {a} and {b}(|?|.)",
        "(what do|how much do|what will) {a} and {b} (make|add up to|sum to|give)(| together)?",
        "{a} and {b}(: |, | )(add them|together|the sum|added up|in total)(|?|.)",
    ),
    "subtract": (
        *_sums(_SUBTRACT),
        DO + "(subtract|take away|take|deduct) {b} from {a}(|.)(| what is left?| what remains?)",
        "(what's|what is|give me|calculate) the difference (between|of) {a} and {b}(|?|.)",
        "(what is left|what remains|how much is left) if (I|you|we) (take|subtract|remove) {b} from {a}?",
    ),
    "multiply": (
        *_sums(_TIMES),
        DO + "multiply {a} (by|with|and) {b}(|.)",
        "(what's|what is|give me|calculate) the product of {a} and {b}(|?|.)",
    ),
    "compare": (
        "(which|what) (is|number is|one is) {k}(: |, | - ){a} or {b}?",
        "(is {a}|which one is) {k}(|,) (than {b}|{a} or {b}) or (not|smaller|the other way round)?",
        DO
        + "(tell me|say|pick|choose|name|find) (which is {k}|the {k} (number|one))(: |, | of |, ){a} (or|and) {b}(|.|?)",
        "({a} or {b}|{a} and {b}|{a}, {b})(: |, | - )(which is {k}|the {k} one|which one is {k}|{k})(|?|.)",
        "of {a} and {b}, (which|which one|which number) is {k}?",
        "(between|out of|from) {a} and {b}(|,) (which is|pick|choose|what is) (the |){k}(| one| number)(|?|.)",
        "compare {a} and {b}(: |, |. )(which is|which one is) {k}?",
    ),
    "next": (
        "(what|which) (number |)(comes|is|follows) (after|right after|next after) {a}?",
        "(what's|what is|give me|name|say) the (number after|next number after|successor of) {a}(|?|.)",
        "(count on|continue|go on)(: | from ){a}(|.)",
        "{a}(: |, | )(next|and next|what is next|next number)(|?|.)",
        "(add one to|one more than|increment) {a}(|?|.)",
    ),
    "problem_add": (
        "{n} has {a} {t}(. | and |, then ){he} (gets|finds|buys|receives|picks up|wins|is given) {b} more(. |, )(how many|how many {t}|what number of {t}) does {he} have(| now| in all| in total| altogether)?",
        "there are {a} {t} (on the table|in the box|in the bag|in a room|here)(. | and |, ){n} (adds|puts in|brings|puts down) {b} (more|others)(. |, )how many (are there|{t} are there|are there in total|is that)(| now)?",
        "{n} (has|owns|holds) {a} {t} and {m} (has|owns|holds) {b}(. |, )how many (do they have|{t} do they have|are there)(| together| in total| altogether)?",
        "(if|suppose|imagine) {n} (collects|buys|counts|finds) {a} {t} (and then|in the morning and|on Monday and|first and) {b} (more|later|on Tuesday|in the evening)(, | - |. )how many (is that|{t} is that|does {he} have|are there)(| in total| altogether)?",
        "{a} {t} (are in one box|are in the first bag|lie here) and {b} (in the other|in the second|there)(. |, )(what is the total|how many in total|how many altogether)?",
        "{m} gives {n} {b} {t}(. | and |, but ){n} (had|already had|has already) {a}(. |, )how many (does {n} have|{t} does {n} have)(| now)?",
    ),
    "problem_subtract": (
        "{n} has {a} {t}(. | and |, then |, but ){he} (gives away|loses|sells|eats|breaks|uses|throws away|gives {m}) {b}(| of them)(. |, )(how many|how many {t}) (are left|does {he} have left|does {he} still have|remain|does {he} have now)?",
        "there are {a} {t} (on the table|in the box|in the bag|here)(. | and |, but ){n} (takes|removes|steals|carries off|takes away) {b}(| of them)(. |, )how many (are left|{t} are left|remain|are still there|stay)?",
        "(if|suppose|imagine) {n} (has|owns|starts with|begins with) {a} {t} and (loses|sells|spends|gives away|drops) {b}(, | - |. )how many (are left|{t} are left|remain|does {he} have then)?",
        "(of|out of) {a} {t}(, | ){n} (sold|lost|gave away|broke) {b}(. |, )(how many are left|what is left|how many remain)?",
        "{n} needs {a} {t} (but has only|and has|but only has|and already has) {b}(. |, )how many (are missing|more does {he} need|{t} are missing|more are needed)?",
    ),
    "count_items": (
        "(how many|count the|count how many|tell me how many|what number of) (items|things|entries|elements|words|names)(| are there| are) (in this list|in the list|here|in)(: | - |:\n){l}(|?|.)",
        "{l}(: | - |. )(how many (items|things|are there|is that|entries)|count them|count the items)(|?|.)",
        DO + "count (these|the items|the things|this list|the entries|my list)(: |:\n){l}",
        "(my list|the list|I have|I bought|on the table are|list)(: | ){l}(. | - |; )(how many is that|how many items|how many things|how many things is that|count them)(|?|.)",
        "(number of items|item count|count|list length)(: | in: ){l}",
    ),
}


def _column(a: int, b: int) -> str:
    """Adding with tens and units apart."""
    return f"{a // 10 * 10}+{b // 10 * 10}={a // 10 * 10 + b // 10 * 10}, {a % 10}+{b % 10}={a % 10 + b % 10}."


def _pair(world: World) -> tuple[int, int]:
    """Two numbers below 100 whose hash belongs to this split."""
    while True:
        a, b = world.number(0, 99), world.number(0, 99)
        if ((a * 7919 + b * 104729) % 97 < 12) == world.held_out:
            return a, b


def add(world: World) -> Exchange:
    a, b = _pair(world)
    return Exchange(
        "add", world.ask("add", a=str(a), b=str(b)), f"{a} + {b} = {a + b}", _column(a, b), ("last_number", str(a + b))
    )


def subtract(world: World) -> Exchange:
    a, b = sorted(_pair(world), reverse=True)
    think = f"{b} + {a - b} = {a}."
    return Exchange(
        "subtract",
        world.ask("subtract", a=str(a), b=str(b)),
        f"{a} - {b} = {a - b}",
        think,
        ("last_number", str(a - b)),
    )


def multiply(world: World) -> Exchange:
    a, b = world.number(0, 12), world.number(0, 12)
    answer = f"{a} x {b} = {a * b}"
    return Exchange(
        "multiply",
        world.ask("multiply", a=str(a), b=str(b)),
        answer,
        f"{a} times {b} is {a * b}.",
        ("last_number", str(a * b)),
    )


def compare(world: World) -> Exchange:
    a, b = _pair(world)
    b = b if a != b else b + 1
    if world.chance(0.3):
        a, b = a * world.number(1, 20), b * world.number(1, 20) + 1
    b = b if a != b else b + 1
    wants_large = world.chance(0.5)
    kind = world.rng.choice(("larger", "bigger", "greater", "higher") if wants_large else ("smaller", "less", "lower"))
    best, other = (max(a, b), min(a, b)) if wants_large else (min(a, b), max(a, b))
    answer = f"{best} is {'larger' if wants_large else 'smaller'} than {other}."
    return Exchange(
        "compare", world.ask("compare", a=str(a), b=str(b), k=kind), answer, f"{max(a, b)} is the larger one."
    )


def following(world: World) -> Exchange:
    a = world.number(1, 998)
    return Exchange(
        "next",
        world.ask("next", a=str(a)),
        f"After {a} comes {a + 1}.",
        f"{a} + 1 = {a + 1}.",
        ("last_number", str(a + 1)),
    )


def _slots(world: World, a: int, b: int) -> dict[str, str]:
    names = [world.name(), world.name()]
    pronoun = world.rng.choice(("he", "she"))
    return {"n": names[0], "m": names[1], "he": pronoun, "t": world.pick("counted"), "a": str(a), "b": str(b)}


def problem(world: World) -> Exchange:
    """A story with two numbers."""
    a, b = world.number(1, 50), world.number(1, 50)
    if world.chance(0.5):
        slots = _slots(world, a, b)
        answer, think = f"{a} + {b} = {a + b} {slots['t']}.", f"More come, so I add: {_column(a, b)}"
        return Exchange("problem", world.ask("problem_add", **slots), answer, think, ("last_number", str(a + b)))
    a, b = max(a, b), min(a, b)
    slots = _slots(world, a, b)
    answer, think = f"{a} - {b} = {a - b} {slots['t']}.", f"Some are gone, so I subtract: {b} + {a - b} = {a}."
    return Exchange("problem", world.ask("problem_subtract", **slots), answer, think, ("last_number", str(a - b)))


def count_items(world: World) -> Exchange:
    items = world.sample("common", world.number(2, 9))
    if world.chance(0.3):
        items = [world.name() for _ in items]
    think = " ".join(f"{item}:{i}" for i, item in enumerate(items, 1))
    return Exchange(
        "count_items", world.ask("count_items", l=", ".join(items)), f"There are {len(items)} items.", think
    )
