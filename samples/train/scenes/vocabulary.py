"""What the demo models can draw and how it is said: the one import for code that needs scenes and captions.

    rng = random.Random(0)
    scene = sample_scene(rng)        # a still; sample_clip(rng) makes a clip with motions
    text = caption(rng, scene)       # "draw a small red car on a blue background"

Pure Python. A Scene names its things by id (`THINGS[id].name`, `.emoji`, `.plural`), its background by kind and colour
names, and for clips each item's motion; `trajectory(motion, u)` is a motion's path. `noun_phrase(item)` and
`background_phrase(rng, background)` are parts of captions.
"""

from samples.train.scenes.captions import article, background_phrase, caption, noun_phrase
from samples.train.scenes.colours import BACKGROUND_KINDS, SCENERY, SOLIDS, STYLES, TINTS, TWO_COLOUR
from samples.train.scenes.motion import MOTIONS, trajectory
from samples.train.scenes.objects import BY_NAME, THINGS, VIDEO_IDS, Thing
from samples.train.scenes.sampling import PLACES, SIZES, named_background, sample_background, sample_clip, sample_scene
from samples.train.scenes.types import Background, Item, Scene

__all__ = [
    "BACKGROUND_KINDS", "BY_NAME", "MOTIONS", "PLACES", "SCENERY", "SIZES", "SOLIDS", "STYLES", "THINGS", "TINTS",
    "TWO_COLOUR", "VIDEO_IDS",
    "Background", "Item", "Scene", "Thing", "article", "background_phrase", "caption", "named_background",
    "noun_phrase",
    "sample_background", "sample_clip", "sample_scene", "trajectory",
]  # fmt: skip
