"""The objects' pictures: rendered once from the Noto Color Emoji font into a small file, read by the renderer.

    python -m samples.train.scenes.sprites --font NotoColorEmoji.ttf

rewrites `samples/train/data/sprites.npz`: needed only when the object list changes. Licence: samples/train/NOTICE.md.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from samples.train.scenes.objects import THINGS

SPRITE_SIDE = 128
"""Pixels of a stored sprite; its longer extent fills all but a margin of 3 pixels on each side."""

SPRITE_FILE = Path(__file__).parents[1] / "data" / "sprites.npz"

_FONT_SIZE = 109  # the only size of the font's bitmaps
_MARGIN = 3


def load_sprites() -> np.ndarray:
    """uint8 [objects, 128, 128, 4], straight (not premultiplied) RGBA, in the order of THINGS."""
    with np.load(SPRITE_FILE) as file:
        names, sprites = [str(name) for name in file["names"]], file["sprites"]
    if names != [thing.name for thing in THINGS]:
        raise ValueError("sprites.npz was rendered for another object list; run samples.train.scenes.sprites again")
    result: np.ndarray = sprites
    return result


def _glyph(font: ImageFont.FreeTypeFont, emoji: str) -> Image.Image:
    for text in (emoji, emoji + "\ufe0f"):  # some code points are pictures only with the variation selector
        canvas = Image.new("RGBA", (200, 200))
        ImageDraw.Draw(canvas).text((20, 20), text, font=font, embedded_color=True)
        box = canvas.getbbox()
        if box and len(canvas.crop(box).getcolors(1 << 16) or ()) > 8:
            return canvas.crop(box)
    raise ValueError(f"the font has no colour picture of {emoji!r}")


def render_sprite(font: ImageFont.FreeTypeFont, emoji: str) -> np.ndarray:
    """uint8 [128, 128, 4]: the glyph, scaled so that its longer side fills the square, in the middle."""
    glyph = _glyph(font, emoji).convert("RGBa")  # premultiplied, so that scaling does not darken the rim
    scale = (SPRITE_SIDE - 2 * _MARGIN) / max(glyph.size)
    width, height = (round(side * scale) for side in glyph.size)
    glyph = glyph.resize((width, height), Image.Resampling.LANCZOS)
    square = Image.new("RGBa", (SPRITE_SIDE, SPRITE_SIDE))
    square.paste(glyph, ((SPRITE_SIDE - width) // 2, (SPRITE_SIDE - height) // 2))
    return np.asarray(square.convert("RGBA"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--font", required=True, help="NotoColorEmoji.ttf of Debian's fonts-noto-color-emoji")
    font = ImageFont.truetype(parser.parse_args().font, _FONT_SIZE)
    sprites = np.stack([render_sprite(font, thing.emoji) for thing in THINGS])
    sprites[sprites[..., 3] == 0] = 0  # colour under full transparency only costs bytes
    SPRITE_FILE.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(SPRITE_FILE, names=np.array([thing.name for thing in THINGS]), sprites=sprites)
    print(f"{len(sprites)} sprites, {SPRITE_FILE.stat().st_size / 1e6:.2f} MB: {SPRITE_FILE}")


if __name__ == "__main__":
    main()
