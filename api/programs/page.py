"""Finished runs as HTML: pieces for notebooks, and whole pages that need no file beside them. Everything is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import exp
from pathlib import Path
from typing import Any

from ..inline import media_tag
from ..results import ImageResult, Picture, Scores, VideoResult
from .record import BranchRecord

_MEDIA = {".png": "image/png", ".jpg": "image/jpeg", ".webp": "image/webp", ".mp4": "video/mp4"}

STYLE = """
.hemiola{font:15px/1.5 system-ui,sans-serif;color:#1d2733;background:#fff;--line:#d9e0e8;--soft:#f4f7fa;--blue:#3b7dd8}
.hemiola h1{font-size:1.5em;margin:0 0 .2em}.hemiola h2{font-size:1.05em;margin:1.4em 0 .5em}
.hemiola p{margin:.3em 0;white-space:pre-wrap;overflow-wrap:anywhere}.hemiola .faint{color:#66727f;font-size:.9em}
.hemiola .turn{border-left:3px solid var(--line);padding:.1em .8em;margin:.5em 0}
.hemiola .turn.assistant{border-color:var(--blue)}.hemiola .turn.tool{border-color:#c79a3b}
.hemiola .who{font-size:.75em;letter-spacing:.05em;text-transform:uppercase;color:#66727f}
.hemiola .values{display:flex;flex-wrap:wrap;gap:.8em;align-items:flex-start;margin:.6em 0}
.hemiola ol{margin:.2em 0;padding-left:1.4em}
.hemiola figure{margin:0;padding:.6em;border:1px solid var(--line);border-radius:8px}
.hemiola figure{max-width:100%;box-sizing:border-box;overflow-x:auto}
.hemiola figcaption{font-size:.8em;color:#66727f;margin-bottom:.3em}
.hemiola .error{border-color:#d66;background:#fdf1f1}
.hemiola .forks{display:grid;grid-template-columns:repeat(auto-fit,minmax(17em,1fr));gap:1em;margin-top:.8em}
.hemiola .fork{border:1px solid var(--line);border-radius:10px;padding:.8em;background:var(--soft);min-width:0}
.hemiola .fork figure{background:#fff}.hemiola .fork figure.error{background:#fdf1f1}
.hemiola .fork meter{width:4em}.hemiola .fork .fork meter{width:2.5em}
.hemiola td{padding:.1em .6em .1em 0}.hemiola meter{width:7em}.hemiola .drawing{overflow-x:auto;margin-top:.6em}
.hemiola details{margin-top:1em}.hemiola summary{cursor:pointer;color:#66727f}
.hemiola section.item{border-top:1px solid var(--line);padding-top:.6em}
"""


def document(title: str, body: str) -> str:
    """A whole page."""
    page = "body{margin:0;background:#eef2f6}main{max-width:60em;margin:2em auto;padding:2em;border-radius:14px}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{page}{STYLE}</style></head>\n'
        f'<body><main class="hemiola">\n<h1>{escape(title)}</h1>\n{body}\n</main></body></html>\n'
    )


def fragment(body: str) -> str:
    """A piece for a notebook, with its style."""
    return f'<style>{STYLE}</style><div class="hemiola">{body}</div>'


def branch_html(record: BranchRecord) -> str:
    """What was said, what was made, and the same of the forks."""
    said = "".join(map(_turn, record.said))
    if not record.said and record.text:
        said = f"<p>{escape(record.text)}</p>"
    text = record.text or "\n".join(str(message.get("content", "")) for message in record.said)
    shown = values_html(_own(record), record.scores, said=text)
    forks = "".join(
        f'<div class="fork"><div class="who">{escape(fork.branch)}</div>{branch_html(fork)}</div>'
        for fork in record.forks
    )
    return f"{said}{shown}" + (f'<div class="forks">{forks}</div>' if forks else "")


def _own(record: BranchRecord) -> dict[str, Any]:
    """Without lists that were gathered from the forks, where one sees what is in them."""
    below = {id(value) for fork in record.forks for value in fork.values.values()}

    def is_gathered(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(id(each) in below for each in value)

    return {name: value for name, value in record.values.items() if not is_gathered(value)}


def values_html(values: Mapping[str, Any], scores: Mapping[str, Scores], said: str = "") -> str:
    """A figure for each variable, but for texts that were read already, in what was said."""
    figures = [
        _figure(name, each, scores.get(name))
        for name, each in values.items()
        if name in scores or not (isinstance(each, str) and each and each in said)
    ]
    return f'<div class="values">{"".join(figures)}</div>' if figures else ""


def value_html(value: Any) -> str:
    """Of any value of a variable."""
    if isinstance(value, ImageResult | Picture | VideoResult):
        return value._repr_html_()
    if isinstance(value, Path):
        return _file(value)
    if isinstance(value, Exception):
        return f"<p>{escape(str(value))}</p>"
    if isinstance(value, list | tuple) and value and not all(isinstance(each, int | float) for each in value):
        return "<ol>" + "".join(f"<li>{value_html(each)}</li>" for each in value) + "</ol>"
    return f"<p>{escape(str(value))}</p>"


def _figure(name: str, value: Any, scores: Scores | None) -> str:
    kind = ' class="error"' if isinstance(value, Exception) else ""
    body = value_html(value) if scores is None else _scores(scores, str(value))
    return f"<figure{kind}><figcaption>{escape(name)}</figcaption>{body}</figure>"


def _scores(scores: Scores, chosen: str) -> str:
    """Every choice with its log probability per token, and how likely that is beside the best.

    Where it was asked how likely they are without the prompt, with what the prompt adds to that.
    """
    is_gain = any(score.unconditional for score in scores)
    worth = [score.gain if is_gain else score.mean for score in scores]
    best = max(worth)
    rows = [
        f"<tr><td>{'&#10003;' if score.choice == chosen else ''}</td><td>{escape(score.choice)}</td>"
        f'<td><meter min="0" max="1" value="{exp(each - best):.3f}"></meter></td>'
        f'<td class="faint">{each:.2f}</td></tr>'
        for score, each in zip(scores, worth, strict=True)
    ]
    what = "log probability per token" + (": what the prompt adds" if is_gain else "")
    return f'<table title="{what}">{"".join(rows)}</table>'


def _turn(message: Mapping[str, Any]) -> str:
    role = str(message["role"])
    calls = "".join(
        f'<p class="faint">{escape(call["function"]["name"])}({escape(call["function"]["arguments"])})</p>'
        for call in message.get("tool_calls", ())
    )
    content = f"<p>{escape(str(message['content']))}</p>" if message.get("content") else ""
    return f'<div class="turn {escape(role)}"><div class="who">{escape(role)}</div>{content}{calls}</div>'


def _file(path: Path) -> str:
    """The file itself, if it is a picture or clip that is there; else where it is."""
    kind = _MEDIA.get(path.suffix)
    if kind is None or not path.is_file():
        return f"<p>{escape(str(path))}</p>"
    return media_tag(path.read_bytes(), kind, path.name)


def sections(parts: Iterable[tuple[str, str]]) -> str:
    """Titles and what stands under each."""
    return "".join(f'<section class="item"><h2>{escape(title)}</h2>{body}</section>\n' for title, body in parts)


def details(title: str, parts: Sequence[str]) -> str:
    """What is shown on a click."""
    return f'<details><summary>{escape(title)}</summary><div class="drawing">{"".join(parts)}</div></details>'
