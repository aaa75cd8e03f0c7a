"""What a system message asks for: a persona, or a style of every answer."""

from samples.train.chat.abilities.phrases import KNOW, WANT
from samples.train.chat.world import Exchange, World

WORDINGS: dict[str, tuple[str, ...]] = {
    "persona": (
        "(you are|act as|your role is|you play|be|pretend to be|you're|from now on you are|take the role of) {n}, (a|the) {r}(|.)(| be friendly.| answer briefly.| help the user.| be kind and short.)",
        "your name is {n}(. | and |, ; )(you are|you work as|you're|your job is|by profession you are) (a|the) {r}(|.)(| be polite.| answer in one sentence.)",
        "(you are|act as) (a|the) {r} (called|named|with the name|who is called) {n}(|.)(| keep answers short.| stay in this role.)",
        "(name|persona name|assistant name)(: | = ){n}(\n|; |, )(role|job|profession)(: | = ){r}(|.)",
        "(the assistant|this assistant|the bot) is (called|named) {n} and (is|works as) a {r}(|.)",
        "{n} is a {r}(. |, )(you are {n}|you play {n}|answer as {n}|speak as {n})(|.)",
        "(in this chat|here|today|for this conversation) you are {n}, (our|a|the) {r}(|.)",
    ),
    "ask_name": (
        "(what's|what is|tell me|say|may I know|give me) your name(|?|.)", "(who|what) are you(| called| exactly)?",
        "(what|how) (should|can|may|do) I call you?", "(do you have|have you got) a name?", KNOW + " (your name|who you are)(|?|.)",
        "(hi|hello|hey)(, |! )(who are you|what is your name|who am I talking to|who is there|your name)?", "(introduce|present) yourself(|.)",
        "who (am I (talking|speaking|chatting) (to|with)|is this|is speaking)?", "(by what|what) name do you go(| by)?",
    ),
    "ask_role": (
        "(what's|what is|tell me) your (job|profession|role|occupation|work)(|?|.)", "what do you do(| for a living| for work| all day)?",
        "(what|as what) do you work(| as)?", "(what kind of|what) (work|job) do you (do|have)?", KNOW + " what you do(| for a living| for work)(|?|.)",
        "(are you|do you) (working|work)? (as what|what as)?", "(how|with what) do you earn (your living|money)?", "what (profession|job) (are you in|is yours)?",
    ),
    "upper_system": (
        "(answer|reply|respond|write|speak|always answer|always write|always reply|you answer|you must write) (in|only in|using|with|only with) (capital letters|upper case|uppercase|capitals|all caps|upper-case letters|big letters)(| only)(|.)",
        "(use|write with|use only|always use) (capital letters|uppercase|capitals|all caps)(| in every answer| for all answers| all the time| only)(|.)",
        "(every|all|each) (answer|reply|response|word)(|s) (must|should|has to|have to) be (in|written in) (uppercase|capital letters|capitals|upper case)(|.)",
        "(shout|you shout|you always shout)(:| -|,) (all caps|only capital letters|capitals only)(| please)(|.)",
        "(style|output style|format|output)(: )(upper case|all caps|uppercase|capitals|capital letters)(|.)",
    ),
    "one_word_system": (
        "(answer|reply|respond|always answer|always reply|you answer|you must answer) (in|with|using|only with|in just|with just) (one word|a single word|exactly one word|one word only|1 word)(| only)(|.)",
        "(every|all|each) (answer|reply|response)(|s) (must|should|has to|have to) be (one word|a single word|one word long|exactly one word)(|.)",
        "(use|write|say|give) (only |just |no more than |)(one word|a single word)(| per answer| in every answer| as an answer| each time)(|.)",
        "(style|answer length|output|length|format)(: )(one word|a single word|1 word)(|.)",
        "(be|you are) (very brief|extremely short|as short as possible)(: |, )(one word only|a single word|one word answers)(|.)",
    ),
    "json_system": (
        '(answer|reply|respond|write|always answer|always reply|you answer) (in|with|only in|as|only with) JSON(: |, like |, in the form | of the form | such as ){j}(|.)',
        '(every|all|each) (answer|reply|response)(|s) (must|should|has to|have to) be JSON(: |, like |, in the form | of the form ){j}(|.)',
        '(use|wrap|put|give) (your answers|every answer|the answer|each answer) (in|into|as) JSON(: |, like | of the form ){j}(|.)',
        '(format|output format|output|style|schema)(: )(JSON |){j}(|.)',
        '(your output|the output|what you write) (is parsed by a program|must be machine readable|goes to a program)(: |, |. )(use|write|answer with) {j}(|.)',
    ),
    "plain_system": (
        "(you are|be) a (helpful|friendly|kind|small|useful|polite) (assistant|chatbot|helper|model)(|.)(| answer briefly.| be concise.| keep it short.)",
        "(answer|reply) (briefly|politely|shortly|in English|to the point)(|.)", "(help|assist) the user(|.)", "be (concise|helpful|brief|kind|nice)(|.)",
        "you are (Hemiola Tiny|Hemiola|a tiny model|a chat model)(|, a helpful assistant)(|.)",
    ),
    "one_word": (
        "(answer|reply|respond) (in|with|using) (one word|a single word|just one word)(: |, ){q}", "{q} (one word|one word only|in one word|a single word)(|.|, please|!)",
        "(one word|in one word|in a single word|one word answer|just one word)(: |, ){q}", "{q} (answer|reply) (in|with) (one word|a single word)(|.)",
        WANT + " (one word|a one-word answer|a single word)(: | for: ){q}",
    ),
    "riddle": (
        "what (colour|color) is {x}?", "(which|what) (colour|color) (has|does) {x}(| have)?", "(tell me|name|say|give me) the (colour|color) of {x}(|.)", KNOW + " the (colour|color) of {x}(|?|.)",
        "(colour|color) of {x}(|?)", "{x}(: |, | - )(what colour|which colour|what color|colour|its colour)(|?)", "{x} (is|are|has) (what|which) (colour|color)?",
    ),
}  # fmt: skip
FACTS = {
    "the sky": "blue", "grass": "green", "snow": "white", "a banana": "yellow", "blood": "red", "coal": "black", "a carrot": "orange",
    "an elephant": "gray", "chocolate": "brown", "milk": "white", "a lemon": "yellow", "a fire truck": "red", "the sea": "blue",
    "a pumpkin": "orange", "a strawberry": "red", "a crow": "black", "a flamingo": "pink", "a frog": "green", "a polar bear": "white",
    "the night": "black", "a tomato": "red", "a leaf": "green", "salt": "white", "a lavender flower": "purple", "an eggplant": "purple",
    "wood": "brown", "a pig": "pink", "a school bus": "yellow", "a cloud": "white", "a cucumber": "green",
}  # fmt: skip


def colour_fact(world: World) -> Exchange:
    thing, colour = world.rng.choice(list(FACTS.items()))
    name = thing.split(" ", 1)[1] if thing.startswith(("a ", "an ")) else thing.removeprefix("the ")
    answer = f"{thing[0].upper()}{thing[1:]} is {colour}."
    return Exchange(
        "colour_fact",
        world.ask("riddle", x=thing),
        answer,
        f"I know the colour of {name}: {colour}.",
        ("contains", colour),
    )


def one_word(world: World) -> Exchange:
    """The same questions, with the answer cut to one word by the user's own wish."""
    thing, colour = world.rng.choice(list(FACTS.items()))
    user = world.ask(
        "one_word",
        q=world.rng.choice((f"What colour is {thing}?", f"Which colour has {thing}?", f"The colour of {thing}?")),
    )
    return Exchange("one_word", user, colour.capitalize(), "One word only.")
