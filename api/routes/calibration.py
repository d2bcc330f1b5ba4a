"""`GET /v1/calibration/report`: the calibration report that the bundle carries, for people to read."""

from __future__ import annotations

from threading import Lock

import anyio.to_thread
from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from api.problems import HTTPProblem
from api.routes.responses import problems
from api.service import Served
from calibration.report import render, stored_diagnostics
from saga.bundle import Bundle
from saga.errors import UsageError

router = APIRouter(prefix="/v1", tags=["calibration"])

_drawing = Lock()
_drawn: dict[str, str] = {}  # digest of the bundle -> its page: drawing takes seconds and gives the same bytes


@router.get(
    "/calibration/report",
    summary="Can the forecasts be trusted: a page for people",
    response_class=HTMLResponse,
    responses=problems(401, 404, 503),
)
async def report(service: Served) -> HTMLResponse:
    """The report of the diagnostics in the bundle, one self-contained page; 404 where it holds none (`saga report --store`)."""
    return HTMLResponse(await anyio.to_thread.run_sync(_page, service.forecaster.bundle))


def _page(bundle: Bundle) -> str:
    try:
        found = stored_diagnostics(bundle)
    except UsageError as error:
        raise HTTPProblem(404, "no-diagnostics", error.args[0], error.problems) from None
    with _drawing:
        if bundle.digest not in _drawn:
            _drawn.clear()
            _drawn[bundle.digest] = render(found, bundle=bundle.digest)
        return _drawn[bundle.digest]
