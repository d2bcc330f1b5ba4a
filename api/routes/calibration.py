"""`GET /v1/calibration` and its `/report`: thresholds as JSON, the report as a page."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Depends, Response
from fastapi.responses import HTMLResponse
from saga.api.key_file import Caller
from saga.api.ledger_access import LedgerAccess
from saga.api.negotiation import json_response
from saga.api.openapi import problem_responses
from saga.api.problems import ProblemError
from saga.api.response_models import CalibrationTables
from saga.api.security import CurrentCaller, require_scope
from saga.api.service import CurrentService
from saga.calibration.adaptive.adaptive_state import EXPERTS
from saga.calibration.adaptive.database import LedgerError

from saga.errors import UsageError
from saga.small_groups import MIN_PERSONS

router = APIRouter(prefix="/v1", tags=["calibration"])

_READERS = [Depends(require_scope("forecast", "outcomes"))]


@router.get(
    "/calibration",
    name="calibration",
    summary="The current thresholds",
    response_model=CalibrationTables,
    responses=problem_responses(401, 403, 503),
    dependencies=_READERS,
)
async def get_thresholds(service: CurrentService, caller: CurrentCaller) -> Response:
    """The thresholds of split conformal calibration by horizon, group and coverage.

    If the service has a ledger, the response also has what outcomes add to them, as the forecasts
    of this key follow it.
    """
    bundle, ledger_access = service.forecaster.bundle, service.ledger_access
    cells = [
        {
            "horizon": h,
            "group": group,
            "coverage": coverage,
            "threshold": threshold,
            "persons": cell.n_threshold,
        }
        for (h, group), cell in sorted(service.forecaster.calibrator.cells.items())
        for coverage, threshold in sorted(cell.thresholds.items())
    ]
    adaptive = None
    if ledger_access is not None:
        counts = await _counts(ledger_access, caller, bundle.digest)
        adaptive = _adaptive_json(ledger_access, caller, counts)
    return json_response(
        {
            "bundle": bundle.digest,
            "calibration": bundle.calibration_digest,
            "cells": cells,
            "adaptive": adaptive,
        }
    )


@router.get(
    "/calibration/report",
    name="report",
    summary="Can the forecasts be trusted? The calibration report, an HTML page",
    response_class=HTMLResponse,
    responses=problem_responses(401, 403, 404, 503),
    dependencies=_READERS,
)
async def get_report(service: CurrentService) -> HTMLResponse:
    """The calibration report of the bundle's diagnostics, one self-contained page.

    404 if the bundle has no diagnostics (`saga report --store` adds them).
    """
    try:
        return HTMLResponse(await service.report_page())
    except UsageError as error:
        raise ProblemError(404, "no-diagnostics", error.args[0], error.problems) from None


async def _counts(access: LedgerAccess, caller: Caller, bundle: str) -> dict[str, int]:
    """Numbers of issued intervals of a holder; none if the ledger cannot be read."""
    try:
        return await access.read(caller, lambda ledger: ledger.counts(bundle))
    except LedgerError:
        return {}


def _adaptive_json(
    ledger_access: LedgerAccess, caller: Caller, counts: Mapping[str, int]
) -> dict[str, object]:
    adapted = ledger_access.current(caller.holder)
    cells = [
        {
            "horizon": h,
            "group": group,
            "coverage": coverage,
            "offset": cell.offset,
            "persons": cell.persons,
            "missed": cell.missed,
            "through": cell.last_year,
            "experts": dict(zip(EXPERTS, cell.experts, strict=True)),
        }
        for (group, h, coverage), cell in sorted(adapted.state.cells.items())
        if cell.persons >= MIN_PERSONS
    ]
    known = {"settled": counts.get("settled"), "waiting": counts.get("waiting")}
    return ledger_access.identity(caller.holder) | known | {"cells": cells}
