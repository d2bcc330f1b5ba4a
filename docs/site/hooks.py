"""MkDocs hooks: the site fetches nothing from other hosts.

The offline search of the theme loads a small script (iframe-worker 1.0.4, MIT) from a public host;
the copy in this folder takes its place.
"""

from __future__ import annotations

from typing import Any

_REMOTE = "https://unpkg.com/iframe-worker/shim"
_LOCAL = "site/iframe-worker.js"


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The page with the local script."""
    return output.replace(_REMOTE, "../" * page.url.count("/") + _LOCAL)


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for pages without a source, such as 404.html."""
    return output_content.replace(_REMOTE, _LOCAL)
