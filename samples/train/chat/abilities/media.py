"""Prompts for the image and the video model: writing them, understanding them, and little scene ideas around them.

The captions come from samples.train.scenes, so that what the chat model writes is what the media models were trained on.
"""

from samples.train.chat.abilities.phrases import DO, WANT
from samples.train.chat.world import Exchange, World
from samples.train.scenes.vocabulary import (
    SCENERY,
    SOLIDS,
    THINGS,
    TINTS,
    VIDEO_IDS,
    Background,
    Scene,
    article,
    caption,
    named_background,
    noun_phrase,
    sample_clip,
    sample_scene,
)

MOTION_WORDS = {
    "right": "moving to the right", "left": "moving to the left", "up": "moving up", "down": "moving down",
    "up right": "moving diagonally up", "down right": "moving diagonally down",
    "spin clockwise": "spinning clockwise", "spin counterclockwise": "spinning counterclockwise",
    "grow": "getting bigger", "shrink": "getting smaller", "bounce": "bouncing", "wiggle": "wiggling",
    "circle": "moving in a circle", "side to side": "moving from side to side", "still": "standing still",
}  # fmt: skip
MOTION_TALK = {
    "right": ("moves right", "goes to the right", "slides to the right", "drives right", "moving right"),
    "left": ("moves left", "goes to the left", "slides to the left", "moving left"),
    "up": ("goes up", "rises", "moves upwards", "floats up", "rising"),
    "down": ("goes down", "falls", "sinks", "moves downwards", "falling"),
    "spin clockwise": ("spins", "rotates", "turns around", "spins around", "spinning"),
    "grow": ("grows", "gets bigger", "comes closer", "growing"),
    "shrink": ("shrinks", "gets smaller", "goes away", "shrinking"),
    "bounce": ("jumps", "bounces", "hops", "is jumping up and down", "jumping"),
    "wiggle": ("dances", "wiggles", "shakes", "wobbles", "dancing"),
    "circle": ("goes in circles", "flies in a circle", "circles", "moving in a circle"),
    "side to side": ("swings from side to side", "moves left and right", "swinging"),
    "still": ("stands still", "does not move", "stays still", "waits"),
}  # fmt: skip
SCENERY_WORDS = {
    "grass": "on grass", "beach": "on the beach", "snow": "in the snow", "desert": "in the desert", "sunset": "at sunset",
    "night": "at night", "space": "in space", "underwater": "underwater", "sky": "in the sky",
}  # fmt: skip
MOODS: dict[str, tuple[str, str]] = {
    "a happy": ("sun|balloon|cake|dog", "sky"), "a sad": ("cloud|ghost", "solid:gray"),
    "a scary": ("ghost|spider|bat", "night"), "a romantic": ("rose|heart", "sunset"),
    "a cold": ("snowman|snowflake|penguin", "snow"), "a hot": ("cactus|camel|lizard", "desert"),
    "a magical": ("unicorn|crystal ball|star", "night"), "a peaceful": ("dove|duck|sailboat", "sunset"),
    "a summery": ("ice cream|watermelon|umbrella|crab", "beach"), "a wild": ("lion|tiger|elephant", "grass"),
    "a futuristic": ("robot|rocket|spaceship", "space"), "a festive": ("gift|balloon|crown", "solid:red"),
    "a spring-like": ("tulip|butterfly|rabbit", "grass"), "an autumn": ("pumpkin|mushroom|owl", "solid:orange"),
    "a wet": ("fish|whale|octopus", "underwater"), "a fresh": ("lemon|apple|carrot", "solid:light green"),
    "a musical": ("guitar|violin|trumpet", "solid:purple"), "a sporty": ("soccer ball|basketball", "grass"),
    "a sweet": ("cookie|donut|cake", "solid:pink"), "a night-time": ("moon|owl|bat", "night"),
}  # fmt: skip
_NAMES = {thing.name: i for i, thing in enumerate(THINGS)}

_PROMPT = "(image prompt|picture prompt|prompt for an image|prompt for a picture|prompt for the image model|prompt|image description|prompt for a drawing|image model prompt)"
_VIDEO = "(video prompt|clip prompt|prompt for a video|prompt for a clip|prompt for the video model|video description|animation prompt|prompt for an animation|video model prompt)"
WORDINGS: dict[str, tuple[str, ...]] = {
    "image_prompt": (
        DO
        + "(write|make|give me|suggest|create|come up with|think of) (a|an|one|a good|a short|a one-line) "
        + _PROMPT
        + " (for|of|about|with|showing|that shows) {d}(|.)",
        WANT + " (a|an|one|a good) " + _PROMPT + " (for|of|about|with|showing) {d}(|.|?)",
        "(image prompt|prompt|picture prompt|a prompt)(: | for: | - ){d}",
        "{d}(: |, | - )(image prompt|write a prompt|write the image prompt|make it an image prompt|as an image prompt|turn it into an image prompt)(|.|?)",
        DO + "(turn|convert|make|change) {d} into (a|an) " + _PROMPT + "(|.)",
        "(I|my friend|we) (want|wants|would like|need|needs) (to see|to draw|to make|to have) (a picture|an image|a drawing) of {d}(. |: |, )(what is the prompt|which prompt do I use|write the prompt|what should the prompt be|give me the prompt)(|?|.)",
        "(what|which) (would be|is|might be) (a|a good|the right|the best) " + _PROMPT + " for {d}?",
        "(how|in what words) (do I|should I|can I|would you) (ask|prompt) (the|an) image (model|generator) (for|to draw) {d}?",
        "(imagine|picture) {d}(. |: |, )(write|give me|what is) (the|a) " + _PROMPT + "(|.|?)",
    ),
    "video_prompt": (
        DO
        + "(write|make|give me|suggest|create|come up with|think of) (a|one|a good|a short|a one-line) "
        + _VIDEO
        + " (for|of|about|with|showing|in which|where) {d}(|.)",
        WANT + " (a|one|a good) " + _VIDEO + " (for|of|about|with|in which|where) {d}(|.|?)",
        "(video prompt|clip prompt|prompt for a video|animation)(: | for: | - ){d}",
        "{d}(: |, | - )(video prompt|write a video prompt|as a video prompt|make it a video prompt|turn it into a video prompt)(|.|?)",
        DO + "(turn|convert|make|change) {d} into (a|one) " + _VIDEO + "(|.)",
        "(I|we) (want|would like|need) (to see|to make|to have) (a video|a clip|an animation) (of|where|in which) {d}(. |: |, )(what is the prompt|which prompt do I use|write the prompt|what should the prompt be)(|?|.)",
        "(what|which) (would be|is|might be) (a|a good|the right|the best) " + _VIDEO + " for {d}?",
        "(how|in what words) (do I|should I|can I|would you) (ask|prompt) (the|a) video (model|generator) (for|to show) {d}?",
        "(imagine|film) {d}(. |: |, )(write|give me|what is) (the|a) " + _VIDEO + "(|.|?)",
    ),
    "mood_prompt": (
        DO
        + "(write|make|give me|suggest|create|come up with|think of|invent) (an image prompt|a picture prompt|a prompt) (for|of|with) {m} (picture|scene|mood|image|drawing|feeling)(|.)",
        WANT
        + " (an image prompt|a picture prompt|a prompt) (for|of|with) {m} (picture|scene|mood|image|feeling)(|.|?)",
        "(what|which) (could|should|can) (I|the model|we) draw for {m} (picture|scene|mood|image|card)?",
        "(suggest|I want|I need|I'd like|give me|propose|invent|surprise me with) {m} (picture|scene|image|drawing)(. |: |, )(what's the prompt|write a prompt|prompt please|write the image prompt|what should I type)(|?|.)",
        "{m} (picture|scene|mood|image)(: |, )(image prompt|prompt|a prompt|write a prompt)(|?|.)",
        "(I feel like|I am in the mood for|make me) {m} (picture|image|scene)(. |, )(what is a good prompt|write an image prompt|write a prompt)(|?|.)",
    ),
    "surprise": (
        DO
        + "(write|invent|make up|give me|suggest|come up with|think of) (a|any|some|one|a random|a new|another|a fun|a nice|a simple|a cool) (image prompt|picture prompt|image prompt idea|idea for an image prompt|idea for a picture)(|.)",
        "(surprise me|surprise me with|show me|I want|I need|I'd like) (a|some|any|a random|a fun|an) (image prompt|picture prompt|image idea|picture idea)(|.|!|?)",
        "(what|which) (picture|image) (should|could|can) (I|we) (draw|make|generate|create)(| today| next)?",
        "(I have no idea what|I don't know what|tell me what|what) to (draw|generate|paint|make a picture of)(| today)(|.|?)",
        "(give|hand) me (inspiration|an idea) for (a picture|an image|a drawing)(|.|!)",
    ),
    "idea": (
        DO
        + "(write|give me|tell me|invent|make up|think of|come up with|suggest) (a|one|a short|a little|a small|a tiny|a nice) (scene|scene idea|story|story idea|idea for a scene|tale|picture story) (about|with|of|for|starring|around) {d}(|.)",
        WANT
        + " (a|one|a short|a little|a small) (scene|scene idea|story|tale|idea for a scene) (about|with|of|for|starring) {d}(|.|?)",
        "(story|scene|scene idea|short story|a story|tale)(: | about | with | - ){d}(|.)",
        "{d}(: |, )(tell me a story|a short story|write a scene|invent a scene|a little scene|write a story about it)(|.)",
        "(what|which) (could|might) happen (to|with) {d}?",
        "(make|create|describe) (a|one|a short) (scene|story) (about|with|for) {d}(|.)",
    ),
    "then_image": (
        "(now |great, now |nice. now |good. |and |ok, |)"
        + DO
        + "(write|give me|make|create) (the|a|an|one) "
        + _PROMPT
        + " (for it|for that|for this|for the scene|for this story|of that|of the scene|from that)(|.)",
        "(and|now|then|next)(, | )(an image prompt|the image prompt|the picture prompt|a prompt for the image|as an image prompt|a prompt for a picture)(|, please|.|?)",
        "(turn|make|convert) (it|that|this|the story|the scene) into an image prompt(|.)",
        "(how|what) (do|should|would) I (prompt|type|write) (to draw it|for a picture of it|to see it as a picture)?",
        "(I want|I'd like) (to see it|to draw it|a picture of it|a picture of that|to see a picture of it)(. |: |, )(what is the prompt|write the prompt|prompt)(|?|.)",
        "(what|which) (is|would be) (a|the|a good) image prompt (for|of) (it|that|this|the scene)?",
    ),
    "then_video": (
        "(now |great, now |nice. now |good. |and |ok, |)"
        + DO
        + "(write|give me|make|create) (the|a|one) "
        + _VIDEO
        + " (for it|for that|for this|for the scene|for this story|of that|of the scene|from that)(|.)",
        "(and|now|then|next)(, | )(a video prompt|the video prompt|a prompt for the video|as a video prompt|a clip prompt|a prompt for a clip)(|, please|.|?)",
        "(turn|make|convert) (it|that|this|the story|the scene) into a video prompt(|.)",
        "(I want|I'd like) (to see it move|a video of it|an animation of that|to animate it|a clip of it)(. |: |, )(what is the prompt|write the prompt|prompt|write the video prompt)(|?|.)",
        "(what|which) (is|would be) (a|the|a good) video prompt (for|of) (it|that|this|the scene)?",
    ),
    "qa_colour": (
        "{c}(: |. | - )(what|which) (color|colour) is the {t}?",
        "(what|which) (color|colour) (is|has) the {t} in(: | the prompt | the picture ){q}(|?)",
        "(in|look at|given|for|with) {q}(, |: )(what|which) (color|colour) (is|does) the {t}(| have)?",
        WANT + " the (color|colour) of the {t} in(: | ){q}(|.|?)",
        "(color|colour) of the {t}(: | in: | in ){q}(|?)",
        "{q}(. |: | - )(tell me the (color|colour) of the {t}|the {t} is what (color|colour)|(color|colour) of the {t})(|.|?)",
    ),
    "qa_object": (
        "(what|which) (object|thing|animal or thing) (is|do we see|can I see|is shown|is drawn) in(: | the prompt | the picture ){q}(|?)",
        "(in|look at|given|for|with) {q}(, |: )(what|which thing|which object) is (shown|drawn|in the picture|the main object|the subject)?",
        "{q}(. |: | - )(what is in the picture|what does it show|what is shown|name the object|what do you see|main object|the subject)(|.|?)",
        WANT + " the (object|subject|main object|thing) (of|in)(: | ){q}(|.|?)",
        "(main object|object|subject)(: | of: | of ){q}(|?)",
    ),
    "qa_background": (
        "(what|which|how) (is|looks) the background (of|in)(: | the prompt | the picture ){q}(|?)",
        "(in|look at|given|for|with) {q}(, |: )(what is the background|what is behind it|what does the background look like|where is it)?",
        "{q}(. |: | - )(what is the background|describe the background|background|the background is what|what is behind)(|.|?)",
        WANT + " the background (of|in)(: | ){q}(|.|?)",
        "(background)(: | of: | of ){q}(|?)",
    ),
    "canonical": (
        DO
        + "(rewrite|rephrase|simplify|clean up|shorten|normalise|restate|put in order) (this prompt|the prompt|this image prompt|this caption|this)(: | - |:\n){q}",
        "(simpler|in plain words|simple form|clean prompt|plain prompt|a cleaner prompt)(: | - ){q}",
        "{q}(: | - |. )(rewrite it|simplify the prompt|say it more simply|in plain words|clean it up|the plain prompt)(|.|?)",
        "(what exactly|what) does (the prompt|this prompt|this) (ask for|describe|show|say)(: | - |\n){q}",
    ),
    "caption_json": (
        DO
        + "(parse|convert|turn|put|analyse|describe|represent|translate) (this prompt|the prompt|this caption|this scene|) {q} (to|into|as|in) JSON(|.)",
        "(as JSON|JSON|prompt to JSON|scene as JSON|JSON for|JSON of)(: | - | this prompt: ){q}",
        "{q}(: | - |. )(as JSON|in JSON|give me JSON|convert it to JSON|JSON please)(|.|?)",
        DO + "(give me|write|make|show) (the|a) JSON (for|of) (|the prompt |the scene ){q}(|.)",
        "(what|how) (does|would) {q} look (like |)(as|in) JSON?",
    ),
}


def background_words(background: Background) -> str:
    """The canonical wording of a background; "" for a plain one."""
    a, b = background.first, background.second
    if background.kind == "plain":
        return ""
    if background.kind == "solid":
        return f"on {article(a)} background"
    if background.kind in SCENERY:
        return SCENERY_WORDS[background.kind]
    turn = {"stripes": "vertical " if background.vertical else "horizontal "}.get(background.kind, "")
    return f"on {a} and {b} {turn}{background.kind}"


def canonical(scene: Scene) -> str:
    """One fixed wording for all that a scene's captions say."""
    items = [noun_phrase(item) for item in scene.items]
    first = scene.items[0] if scene.items else None
    if first is None:
        subject = "nothing"
    elif scene.is_clip:
        subject = " and ".join(f"{noun_phrase(item)} {MOTION_WORDS[item.motion]}" for item in scene.items)
    elif scene.relation == "count":
        words = [first.tint, THINGS[first.thing_id].plural]
        subject = " ".join([("", "one", "two", "three", "four")[len(items)], *filter(None, words)])
    elif scene.relation == "left_right":
        subject = f"{items[0]} on the left and {items[1]} on the right"
    elif scene.relation == "above_below":
        subject = f"{items[0]} above {items[1]}"
    elif scene.relation == "row":
        subject = f"{items[0]} on the left, {items[1]} in the middle and {items[2]} on the right"
    else:
        subject = " ".join(filter(None, [items[0], first.pose, first.place]))
    text = f"{subject} {background_words(scene.background)}".strip()
    return f"{text}, {scene.style}" if scene.style else text


def _background(world: World) -> Background:
    roll = world.rng.random()
    if roll < 0.5:
        return named_background(world.rng, "solid", world.rng.choice(list(SOLIDS)))
    if roll < 0.85:
        return named_background(world.rng, world.rng.choice(SCENERY))
    return named_background(world.rng, "plain")


def _noun(world: World, ids: tuple[int, ...] = ()) -> tuple[str, str]:
    """A thing with a colour or size at times, and the thing's name. Evaluation keeps its own thing and colour pairs."""
    thing = THINGS[world.rng.choice(ids)] if ids else world.rng.choice(THINGS)
    words = [thing.name]
    if world.chance(0.5):
        words.insert(0, world.rng.choice(list(TINTS)))
    if world.chance(0.15):
        words.insert(0, world.rng.choice(("big", "small")))
    return " ".join(words), thing.name


def image_prompt(world: World) -> Exchange:
    noun, _ = _noun(world)
    background = background_words(_background(world))
    text = f"{article(noun)} {background}".strip()
    said = text if world.chance(0.8) else f"{noun} {background}".strip()
    return Exchange("image_prompt", world.ask("image_prompt", d=said), text, f"The subject is {article(noun)}.")


def video_prompt(world: World) -> Exchange:
    noun, _ = _noun(world, VIDEO_IDS)
    motion = world.rng.choice(list(MOTION_TALK))
    background = background_words(_background(world))
    talk = world.rng.choice(MOTION_TALK[motion])
    if talk.endswith("ing"):
        noun_talk = f"{article(noun)} {talk}"
    else:
        noun_talk = f"{article(noun)} that {talk}" if world.chance(0.6) else f"{article(noun)} {talk}"
    text = f"{article(noun)} {MOTION_WORDS[motion]} {background}".strip()
    user = world.ask("video_prompt", d=f"{noun_talk} {background}".strip())
    return Exchange("video_prompt", user, text, f"The motion is {MOTION_WORDS[motion]}.")


def mood_prompt(world: World) -> Exchange:
    mood = world.rng.choice(list(MOODS))
    names, place = MOODS[mood]
    name = world.rng.choice([name for name in names.split("|") if name in _NAMES])
    where = f"on {article(place[6:])} background" if place.startswith("solid:") else SCENERY_WORDS[place]
    think = f"{mood.split(' ', 1)[1].capitalize()} makes me think of {article(name)} {where}."
    answers = tuple(f"{article(n)} {where}" for n in names.split("|") if n in _NAMES)
    return Exchange(
        "mood_prompt", world.ask("mood_prompt", m=mood), f"{article(name)} {where}", think, ("any", *answers)
    )


def surprise(world: World) -> Exchange:
    noun, _ = _noun(world)
    text = f"{article(noun)} {background_words(_background(world))}".strip()
    return Exchange("surprise", world.ask("surprise"), text, "I choose a thing and a background.", ("caption",))


_STORIES = (
    "There is {d} {w}. It looks for {o}. At last it finds {o} and is happy.",
    "{D} {w} waits for {o}. When {o} arrives, they become friends.",
    "One day, {d} {w} meets {o}. They talk until the evening.",
    "{D} is all alone {w}. Then {o} comes by, and the day is saved.",
    "Once there was {d} {w}. It dreamed of {o}. One night the dream came true.",
    "Look, {d} {w}! Nobody knows that it hides {o}.",
)


def scene_talk(world: World) -> list[Exchange]:
    """A little scene, then its image prompt, then its video prompt."""
    noun, name = _noun(world, VIDEO_IDS)
    other = article(world.rng.choice(THINGS).name)
    place = SCENERY_WORDS[world.rng.choice(SCENERY)]
    story = world.rng.choice(_STORIES).format(d=article(noun), D=article(noun).capitalize(), w=place, o=other)
    motion = MOTION_WORDS[world.rng.choice(("right", "left", "bounce", "wiggle", "circle", "grow"))]
    image = f"{article(noun)} {place}"
    video = f"{article(noun)} {motion} {place}"
    talk = [
        Exchange(
            "idea", world.ask("idea", d=article(noun)), story, f"The hero is {article(noun)}.", ("contains", name)
        ),
        Exchange("then_image", world.ask("then_image"), image, f"The scene shows {article(noun)} {place}."),
        Exchange(
            "then_video", world.ask("then_video"), video, f"Now {article(noun)} moves.", ("contains", noun, place)
        ),
    ]
    if world.chance(0.2):
        talk.pop(1)
    return talk if world.chance(0.8) else talk[:2]


def _single(world: World) -> Scene:
    while True:
        scene = sample_scene(world.rng)
        if scene.relation == "single" and not scene.style:
            return scene


def _quoted(world: World, text: str) -> str:
    return text if world.chance(0.3) else f'"{text}"'


def caption_qa(world: World) -> Exchange:
    """The colour, the object or the background of a caption."""
    scene = _single(world)
    item, text = scene.items[0], caption(world.rng, scene)
    name, where = THINGS[item.thing_id].name, background_words(scene.background)
    slots = {"q": _quoted(world, text), "c": text, "t": name}
    if item.tint and world.chance(0.5):
        return Exchange(
            "caption_qa", world.ask("qa_colour", **slots), f"The {name} is {item.tint}.", f"It says {item.tint}."
        )
    if where and world.chance(0.5):
        return Exchange(
            "caption_qa", world.ask("qa_background", **slots), f"The background: {where}.", f"It says {where}."
        )
    return Exchange(
        "caption_qa", world.ask("qa_object", **slots), f"It shows {article(name)}.", f"The thing is {article(name)}."
    )


def plain_words(world: World) -> Exchange:
    """Any caption, rewritten in the canonical wording."""
    scene = sample_clip(world.rng) if world.chance(0.3) else sample_scene(world.rng)
    user = world.ask("canonical", q=_quoted(world, caption(world.rng, scene)))
    return Exchange("plain_words", user, canonical(scene), "I say each thing, its place and the background.")


def draw_request(world: World) -> Exchange:
    """A bare caption as the user's turn, as the image model's text encoder sees it."""
    is_clip = world.chance(0.3)
    scene = sample_clip(world.rng) if is_clip else sample_scene(world.rng)
    answer = f"Good idea! {'Video' if is_clip else 'Image'} prompt: {canonical(scene)}"
    return Exchange("draw", caption(world.rng, scene), answer, "The user describes a scene.")


def caption_json(world: World) -> Exchange:
    scene = _single(world)
    item = scene.items[0]
    colour = f'"{item.tint}"' if item.tint else "null"
    where = background_words(scene.background)
    place = f'"{where}"' if where else "null"
    answer = f'{{"object": "{THINGS[item.thing_id].name}", "color": {colour}, "background": {place}}}'
    user = world.ask("caption_json", q=_quoted(world, caption(world.rng, scene)))
    return Exchange("caption_json", user, answer, "The keys are object, color and background.", ("json",))
