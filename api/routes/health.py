"""Health and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from saga.api.openapi import problem_responses
from saga.api.refusals import refused
from saga.api.security import CurrentCaller, require_scope
from saga.api.service import CurrentService

open_router = APIRouter(tags=["health"])
router = APIRouter(tags=["health"])


@open_router.get("/livez", summary="The process responds")
async def livez() -> JSONResponse:
    """200 as long as the process responds; it does not depend on the bundle."""
    return JSONResponse({"status": "alive"})


@open_router.get(
    "/readyz", summary="The service is ready to forecast", responses=problem_responses(503)
)
async def readyz(request: Request, service: CurrentService) -> JSONResponse:
    """200 once the bundle is verified, a first forecast is computed and the ledger is open.

    503 before that, while the process ends, and while the key file cannot be read. If one of these
    steps fails, every call returns 503. `ledger` is none, up or down; while it is down, forecasts
    follow the last known state and the log says what is wrong.
    """
    if service.is_draining:
        raise refused("draining")
    if (key_store := request.app.state.key_store) is not None:
        key_store.keys(grace=0)
    bundle, access = service.forecaster.bundle.digest, service.ledger_access
    ledger = "none" if access is None else "up" if access.is_up else "down"
    return JSONResponse({"status": "ready", "bundle": bundle, "ledger": ledger})


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses=problem_responses(401, 403),
    dependencies=[Depends(require_scope("metrics"))],
)
async def metrics(service: CurrentService, caller: CurrentCaller) -> Response:
    """Prometheus text format: calls, seconds, persons, simulated path-years."""
    text = await service.in_turn(caller.holder, service.metrics.text)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
