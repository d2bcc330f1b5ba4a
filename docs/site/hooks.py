"""MkDocs hooks: pages as GitHub shows them, README first, and nothing fetched from other hosts.

Formulas become MathML when the site is built (latex2mathml); browsers draw it without a script.
The offline search of the theme loads a small script (iframe-worker 1.0.4, MIT) from a public host;
the copy in this folder takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

_README = Path(__file__).resolve().parents[2] / "README.md"
_REMOTE = "https://unpkg.com/iframe-worker/shim"
_LOCAL = "site/iframe-worker.js"
_REFERENCE = ("columns.md", "glossary.md")  # they say what words of other pages mean
_ITEM = re.compile(r"\s*([-*]|\d+\.) ")
_FORMULA = re.compile(
    r'<(?P<tag>div|span) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
_OUTSIDE = re.compile(r'<a href="(?:\.\./)+(?:[^"/]*\.md|examples/[^"]*)">(.*?)</a>', re.DOTALL)
_CODE = re.compile(r"<code>[^<]*</code>")
_DASHES = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_LONG = 60  # characters of a formula in a line
_SCROLLS = "display: inline-block; max-width: 100%; overflow-x: auto; vertical-align: middle"
_WHOLE = r'<span style="white-space: nowrap">\g<0></span>'
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with an empty line before each list, which Python-Markdown needs.

    The first page begins with README up to the section More, whose links leave the site. Pages of
    reference come first in a search: those that use a word more often would come before them.
    """
    if page.file.src_uri in _REFERENCE:
        page.meta["search"] = {"boost": 3}
    if page.file.src_uri == "index.md":
        readme = _README.read_text(encoding="utf-8").partition("\n## More")[0]
        markdown = f"{readme.replace('](docs/', '](')}\n#{markdown}"
    return "\n".join(_with_breaks(markdown.split("\n")))


def _with_breaks(lines: list[str]) -> Iterator[str]:
    in_code, before = False, ""
    for line in lines:
        in_code ^= line.startswith("```")
        begins = _ITEM.match(line) and before.strip() and not before.startswith((" ", "|"))
        if begins and not in_code and not _ITEM.match(before):
            yield ""
        yield line
        before = line


def on_page_content(html: str, **_: Any) -> str:
    """The page with formulas as MathML, and without links to files that the site lacks.

    Names of options in a text stay whole: a line would end between their dashes and the word.
    """
    html = _CODE.sub(lambda code: _DASHES.sub(_WHOLE, code[0]), html)
    return _OUTSIDE.sub(r"\1", _FORMULA.sub(_mathml, html))


def _mathml(formula: re.Match[str]) -> str:
    tex = formula["tex"]
    for entity, character in _ENTITIES.items():
        tex = tex.replace(entity, character)
    # A wide formula scrolls; the page does not.
    if formula["tag"] == "div":
        return f'<div style="overflow-x: auto">{convert(tex.strip(), display="block")}</div>'
    mathml = str(convert(tex.strip()))
    return f'<span style="{_SCROLLS}">{mathml}</span>' if len(tex) > _LONG else mathml


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The page with the local script, and a name for the dialog of the search."""
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
    return output.replace(_REMOTE, "../" * page.url.count("/") + _LOCAL)


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for pages without a source, such as 404.html."""
    return output_content.replace(_REMOTE, _LOCAL)
