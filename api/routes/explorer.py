"""`GET /`: the explorer, a page for people that calls this service, and the files that it needs."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import PurePath

from fastapi import APIRouter, Response
from saga.api.refusals import refused
from saga.api.service import CurrentService

router = APIRouter(include_in_schema=False)

_FOLDER = files("saga.api.web")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".js": "text/javascript; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
# Scripts and styles are files of this service; the hash is that of the style in each chart of Plot.
# Pictures are written through `blob:`.
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' blob: data:; "
    "style-src 'self' 'sha256-01owqXJVCJ0avR8O3UNBomen5L9BE+Ci8jsmgtwU+2M='; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


def _read_files() -> dict[str, bytes]:
    """Name -> content of each file of the page."""
    entries = [*_FOLDER.iterdir(), *(_FOLDER / "vendor").iterdir()]
    return {e.name: e.read_bytes() for e in entries if PurePath(e.name).suffix in _TYPES}


_FILES = _read_files()


@router.get("/")
async def get_page() -> Response:
    """The page."""
    return _file("explorer.html")


@router.get("/explorer/price_index.json")
async def get_price_index(service: CurrentService) -> Response:
    """Consumer prices by year: the page converts amounts with the same index as the service."""
    prices = json.dumps(dict(service.forecaster.facts.price_index))
    return Response(prices, media_type=_TYPES[".json"])


@router.get("/explorer/{name}")
async def get_file(name: str) -> Response:
    """A script, style, table or licence of the page."""
    return _file(name)


def _file(name: str) -> Response:
    if name not in _FILES:
        raise refused("path")
    headers = {"content-security-policy": _POLICY}
    return Response(_FILES[name], media_type=_TYPES[PurePath(name).suffix], headers=headers)
