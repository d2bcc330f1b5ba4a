"""`GET /v1/calibration/report`: the calibration report that the bundle carries, for people to read."""

from __future__ import annotations

from threading import Lock

import anyio.to_thread
from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from api.ledger_access import LedgerAccess
from api.openapi import problems
from api.problems import HTTPProblem
from api.service import CurrentService
from calibration.diagnostics.adaptive_table import with_state
from calibration.diagnostics.report import render, stored_diagnostics
from saga.bundle import Bundle
from saga.errors import UsageError

router = APIRouter(prefix="/v1", tags=["calibration"])

_drawing = Lock()
_drawn: dict[
    tuple[str, str], str
] = {}  # bundle and state of the ledger -> their page: drawing takes seconds and gives the same bytes


@router.get(
    "/calibration/report",
    summary="Can the forecasts be trusted: a page for people",
    response_class=HTMLResponse,
    responses=problems(401, 404, 503),
)
async def report(service: CurrentService) -> HTMLResponse:
    """The report of the diagnostics in the bundle, one self-contained page, with the state of the ledger where the service keeps one; 404
    where the bundle holds none (`saga report --store`)."""
    return HTMLResponse(
        await anyio.to_thread.run_sync(_page, service.forecaster.bundle, service.ledger_access)
    )


def _page(bundle: Bundle, ledger_access: LedgerAccess | None) -> str:
    try:
        found = stored_diagnostics(bundle)
    except UsageError as error:
        raise HTTPProblem(404, "no-diagnostics", error.args[0], error.problems) from None
    if ledger_access is not None:
        found = with_state(
            found, ledger_access.current().state, ledger_access.ledger.counts(bundle.digest)
        )
    key = bundle.digest, str(sorted(found.provenance.items()))
    with _drawing:
        if key not in _drawn:
            _drawn.clear()
            _drawn[key] = render(found, bundle=bundle.digest)
        return _drawn[key]
