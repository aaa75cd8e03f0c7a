"""The drawing of a graph is a picture that can be read: boxes apart, arrows forward, colours by time, text escaped."""

import re
from itertools import combinations
from xml.etree import ElementTree

from hemiola.api.programs.drawing import Box, draw

SVG = "{http://www.w3.org/2000/svg}"


def diamond() -> list[Box]:
    """0 -> 1, 2 -> 3; 3 also names 0, which it reaches anyway."""
    return [
        Box("a <story> & more than fits into one box", "", "line 1", (), heat=0.0),
        Box("b", "10 ms", "", (0,), heat=0.5, share=0.25),
        Box("c", "20 ms", "", (0,), heat=1.0, share=1.0),
        Box("d", "failed", "no <luck>", (0, 1, 2), is_failed=True),
    ]


def boxes_of(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom."""
    rects = [group.find(f"{SVG}rect") for group in ElementTree.fromstring(svg).iter(f"{SVG}g")]
    found = [[float(rect.attrib[key]) for key in ("x", "y", "width", "height")] for rect in rects if rect is not None]
    return [(x, y, x + width, y + height) for x, y, width, height in found]


def test_boxes_stand_apart_and_inside_the_picture() -> None:
    svg = draw(diamond(), heat="0 to 20 ms", share="cached")
    root, places = ElementTree.fromstring(svg), boxes_of(svg)
    assert len(places) == 4
    for (x0, y0, x1, y1), (u0, v0, u1, v1) in combinations(places, 2):
        assert x1 <= u0 or u1 <= x0 or y1 <= v0 or v1 <= y0
    assert max(place[2] for place in places) < float(root.attrib["width"])
    assert max(place[3] for place in places) < float(root.attrib["height"])


def test_arrows_go_from_left_to_right_and_only_where_no_other_way_leads() -> None:
    svg = draw(diamond())
    places = boxes_of(svg)
    paths = [path.attrib["d"] for path in ElementTree.fromstring(svg).iter(f"{SVG}path")]
    assert len(paths) == 4, "0-1, 0-2, 1-3, 2-3, and not 0-3"
    for path in paths:
        x0, y0, *_, x1, y1 = map(float, re.findall(r"[\d.]+", path))
        assert x0 < x1
        assert any(place[2] == x0 and place[1] < y0 < place[3] for place in places)
        assert any(place[0] == x1 and place[1] < y1 < place[3] for place in places)


def test_longer_is_warmer_and_bars_are_as_long_as_their_share() -> None:
    groups = list(ElementTree.fromstring(draw(diamond())).iter(f"{SVG}g"))
    fills = [rects[0].attrib["fill"] for rects in (group.findall(f"{SVG}rect") for group in groups)]
    blues = [int(fill.removesuffix(")").split(",")[2]) for fill in fills[:3]]
    assert blues[0] > blues[1] > blues[2] and fills[3].startswith("#")
    bars = [float(group.findall(f"{SVG}rect")[1].attrib["width"]) for group in groups]
    assert bars[0] == 0 and bars[2] == 4 * bars[1] > 0


def test_texts_are_escaped_and_cut_and_a_legend_is_drawn_on_request() -> None:
    plain, explained = draw(diamond()), draw(diamond(), heat="0 to 20 ms", share="cached <part>")
    texts = [text.text for text in ElementTree.fromstring(explained).iter(f"{SVG}text")]
    assert "a <story> & more than f…" in texts and {"0 to 20 ms", "cached <part>"} <= set(texts)
    assert [title.text for title in ElementTree.fromstring(plain).iter(f"{SVG}title")][3] == "no <luck>"
    assert "0 to 20 ms" not in plain


def test_the_legend_fits_below_a_single_box() -> None:
    """Its last words were cut off where the picture was only one box wide."""
    root = ElementTree.fromstring(draw(diamond()[:1], heat="0 to 2 s", share="part of the prompt that was cached"))
    last = [text for text in root.iter(f"{SVG}text")][-1]
    assert float(last.attrib["x"]) + 6.2 * len(last.text or "") < float(root.attrib["width"])


def test_a_long_detail_is_squeezed_into_its_box() -> None:
    """DejaVu Sans, the widest of the usual fonts, takes 6.6 pixels for a character of size 11."""
    details = ["select, 118 ms, 84 of 104 cached", "select, 12.3 s, 12345 of 23456 cached", "gen, failed"]
    root = ElementTree.fromstring(draw([Box("a", detail, "", ()) for detail in details]))
    (left, _, right, _), *_ = boxes_of(ElementTree.tostring(root, encoding="unicode"))
    for detail in details:
        (text,) = (each for each in root.iter(f"{SVG}text") if each.text == detail)
        length = float(text.attrib.get("textLength", 6.6 * len(detail)))
        assert float(text.attrib["x"]) + length < right and float(text.attrib["x"]) > left


def test_nothing_is_a_picture_too() -> None:
    assert ElementTree.fromstring(draw([])).tag == f"{SVG}svg"
