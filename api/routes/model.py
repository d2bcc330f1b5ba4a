"""What forecasts, and what it can be told: `GET /v1/model` and `GET /v1/variables`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from api.messages import ModelCard, Variables
from api.openapi import json_response, problems
from api.service import CurrentService
from saga.bundle import describe_schema
from saga.conformal.calibrator import calibration_method

router = APIRouter(prefix="/v1", tags=["model"])


@router.get(
    "/model",
    summary="The model behind the forecasts",
    response_model=ModelCard,
    responses=problems(401, 503),
)
async def model(service: CurrentService) -> Response:
    """The bundle by its digests, its configuration, the coverages it is calibrated for, its training record and its model card."""
    forecaster = service.forecaster
    bundle, transforms = forecaster.bundle, forecaster.transforms
    content: dict[str, Any] = {
        "bundle": bundle.digest,
        "calibration": bundle.calibration_digest,
        "method": calibration_method(bundle.calibration),
        "code_version": bundle.code_version,
        "seed": bundle.manifest["seed"],
        "command": bundle.manifest["command"],
        "parameters": bundle.parameters,
        "currency": transforms.currency,
        "price_year": transforms.price_year,
        "coverage": list(forecaster.calibrator.coverage),
        "config": bundle.config,
        "metrics": bundle.metrics,
        "card": bundle.card,
    }
    return json_response(content)


@router.get(
    "/variables",
    summary="The columns that a person may have",
    response_model=Variables,
    responses=problems(401),
)
async def variables() -> Response:
    """Each column with its meaning, unit, codes and range, from the one column table; and the ages and price year of a panel."""
    return json_response(describe_schema())
