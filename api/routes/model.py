"""`GET /v1/model` and `GET /v1/variables`: the bundle, and the input columns for a person."""

from __future__ import annotations

from fastapi import APIRouter, Response
from saga.api.negotiation import json_response
from saga.api.openapi import problem_responses
from saga.api.response_models import ModelCard, Variables
from saga.api.service import CurrentService

from saga.conformal.calibration_table import calibration_method

router = APIRouter(prefix="/v1", tags=["model"])


@router.get(
    "/model",
    name="model",
    summary="The model behind the forecasts",
    response_model=ModelCard,
    responses=problem_responses(401, 503),
)
async def get_model(service: CurrentService) -> Response:
    """The bundle: digests, configuration, calibrated coverage, training record, model card."""
    forecaster = service.forecaster
    bundle, transforms = forecaster.bundle, forecaster.transforms
    return json_response(
        {
            "bundle": bundle.digest,
            "calibration": bundle.calibration_digest,
            "method": calibration_method(bundle.calibration),
            "code_version": bundle.code_version,
            "seed": bundle.manifest["seed"],
            "command": bundle.manifest["command"],
            "parameters": bundle.parameters,
            "currency": transforms.currency,
            "price_year": transforms.price_year,
            "trained_on": bundle.trained_on,
            "coverage": list(forecaster.calibrator.coverage),
            "config": bundle.config,
            "metrics": bundle.metrics,
            "card": bundle.card,
        }
    )


@router.get(
    "/variables",
    name="variables",
    summary="The input columns for a person",
    response_model=Variables,
    responses=problem_responses(401),
)
async def get_variables(service: CurrentService) -> Response:
    """Each column with meaning, unit, codes and range; the ages and price year of a panel.

    `extra` has the columns that only the bundle's panel had, if there are any.
    """
    return json_response(service.variables())
