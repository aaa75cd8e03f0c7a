"""The things a scene can show: one hand-written row per object, (emoji, name, plural or "" for the regular one).

`_VIDEO_NAMES` is the subset that the video model learns. The file knows names and emoji only; how an object looks
comes from the sprites rendered from the emoji font.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thing:
    """One object: its emoji, its name in captions, its plural, and whether the video model knows it."""

    emoji: str
    name: str
    plural: str
    in_video: bool


_ROWS = """
🐶 dog|🐱 cat|🐭 mouse/mice|🐰 rabbit|🦊 fox|🐻 bear|🐼 panda|🐨 koala|🐯 tiger|🦁 lion|🐮 cow|🐷 pig|🐸 frog
🐵 monkey|🐔 chicken|🐧 penguin|🐦 bird|🐤 chick|🦆 duck|🦅 eagle|🦉 owl|🦇 bat|🐺 wolf/wolves|🐴 horse|🦄 unicorn
🐝 bee|🦋 butterfly|🐌 snail|🐞 ladybug|🕷 spider|🦂 scorpion|🐢 turtle|🐍 snake|🦎 lizard|🦕 dinosaur|🐙 octopus
🦑 squid/squids|🦐 shrimp/shrimps|🦀 crab|🐡 pufferfish/pufferfish|🐟 fish/fish|🐬 dolphin|🐳 whale|🦈 shark
🐊 crocodile|🦓 zebra|🦍 gorilla|🐘 elephant|🦏 rhino|🦛 hippo|🐪 camel|🦒 giraffe|🦘 kangaroo|🐑 sheep/sheep|🐐 goat
🦌 deer/deer|🐓 rooster|🦃 turkey|🦚 peacock|🦜 parrot|🦢 swan|🦩 flamingo|🦔 hedgehog|🐿 squirrel|🦥 sloth|🦨 skunk
🐉 dragon
🍎 apple|🍐 pear|🍊 tangerine|🍋 lemon|🍌 banana|🍉 watermelon|🍓 strawberry|🍒 cherry|🍑 peach|🍍 pineapple
🥥 coconut|🥝 kiwi|🍅 tomato/tomatoes|🥑 avocado|🍆 eggplant|🥕 carrot|🌶 chili|🥒 cucumber|🥔 potato/potatoes
🍄 mushroom|🥐 croissant|🥨 pretzel|🥞 pancake|🧀 cheese|🥚 egg|🍔 hamburger|🍕 pizza|🌭 hot dog|🌮 taco|🥪 sandwich
🍩 donut|🍪 cookie|🎂 cake|🧁 cupcake|🍬 candy|🍭 lollipop|🍦 ice cream|🍿 popcorn/popcorns
🚗 car|🚕 taxi|🚌 bus/buses|🚑 ambulance|🚒 fire truck|🚜 tractor|🚲 bicycle|🛵 scooter|🚂 train|✈ airplane
🚁 helicopter|🚀 rocket|🛸 spaceship|⛵ sailboat|🚢 ship|🛶 canoe
🌞 sun|🌙 moon|⭐ star|☁ cloud|🌈 rainbow|❄ snowflake|⛄ snowman/snowmen|🔥 flame|🌳 tree|🌴 palm tree|🌲 pine tree
🌵 cactus/cactuses|🌻 sunflower|🌹 rose|🌷 tulip|🍁 maple leaf/maple leaves|🍀 clover|🌋 volcano/volcanoes
⚡ lightning bolt|🌍 planet
🏠 house|🏰 castle|⛺ tent|🪑 chair|🛏 bed|🚪 door|🛁 bathtub|⏰ alarm clock|⌚ watch/watches|📱 phone|💻 laptop
📷 camera|📺 television|📻 radio|💡 light bulb|🕯 candle|📕 book|✏ pencil|🔑 key|🔒 lock|🔨 hammer
🔧 wrench/wrenches|🪓 axe|🪜 ladder|🪣 bucket|🧹 broom|☂ umbrella|🎩 top hat|👑 crown|👕 shirt|👗 dress/dresses
👟 shoe|👢 boot|🧣 scarf/scarves|🎒 backpack|💍 ring|🎈 balloon|🎁 gift|⚽ soccer ball|🏀 basketball|🎸 guitar
🥁 drum|🎺 trumpet|🎻 violin|🔔 bell|🏆 trophy|🧸 teddy bear|🪁 kite|🤖 robot|👻 ghost|🎃 pumpkin|☕ coffee|⚓ anchor
🧲 magnet|❤ heart|🫖 teapot
"""

_VIDEO_NAMES = """
dog|cat|mouse|rabbit|fox|bear|panda|tiger|lion|cow|pig|frog|monkey|chicken|penguin|bird|chick|duck|owl|bat|horse
unicorn|bee|butterfly|snail|ladybug|turtle|dinosaur|octopus|crab|fish|dolphin|whale|shark|elephant|giraffe|sheep
flamingo|hedgehog|apple|lemon|banana|watermelon|strawberry|cherry|pineapple|tomato|avocado|carrot|mushroom|cheese|egg
hamburger|pizza|donut|cookie|car|taxi|bus|fire truck|tractor|train|airplane|helicopter|rocket|spaceship|sailboat|sun
moon|star|cloud|snowflake|snowman|tree|cactus|sunflower|rose|house|alarm clock|book|key|umbrella|crown|shirt|balloon
gift|soccer ball|basketball|guitar|bell|robot|ghost|pumpkin|heart
"""


def _regular_plural(name: str) -> str:
    if name.endswith("y") and name[-2] not in "aeiou":
        return name[:-1] + "ies"
    return name + ("es" if name.endswith(("s", "sh", "ch", "x")) else "s")


def _cells(table: str) -> list[str]:
    return table.strip().replace("\n", "|").split("|")


def _read() -> tuple[Thing, ...]:
    things, in_video = [], set(_cells(_VIDEO_NAMES))
    for cell in _cells(_ROWS):
        emoji, words = cell.split(" ", 1)
        name, _, plural = words.partition("/")
        things.append(Thing(emoji, name, plural or _regular_plural(name), name in in_video))
    return tuple(things)


THINGS: tuple[Thing, ...] = _read()
"""Every object of the image model; an object's id is its index here."""

VIDEO_IDS: tuple[int, ...] = tuple(i for i, thing in enumerate(THINGS) if thing.in_video)
"""Ids of the objects that the video model knows."""

BY_NAME: dict[str, int] = {thing.name: i for i, thing in enumerate(THINGS)}
"""Object id by name."""
