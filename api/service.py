"""One running service: its settings, the forecaster once it is ready, the compute slot, the counters and the log."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TextIO

import anyio.to_thread
from fastapi import Depends, Request

from api.budget import ComputeSlot
from api.codecs import Call, parse_json
from api.example import example_persons
from api.ledger_access import LedgerAccess
from api.logs import error_location, make_logger
from api.messages import ForecastRequest
from api.problems import HTTPProblem, SetupError, unready
from api.service_metrics import Metrics
from api.settings import Settings
from saga import requests
from saga.data.casting import read_column
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError, Problem, SagaError, UsageError
from saga.forecaster import Forecaster
from saga.schema import BY_NAME, PRICE_YEAR


class Service:
    """Holds what the endpoints share. `start` makes it ready; until then endpoints that compute answer 503."""

    def __init__(self, settings: Settings, log: TextIO) -> None:
        self.settings = settings
        self.log = make_logger(log)
        self.metrics = Metrics()
        self.slot = ComputeSlot(
            queue=settings.queue, seconds=settings.queue_seconds, most=settings.max_work
        )
        self.metrics.waiting.set_function(lambda: self.slot.waiting)
        self._forecaster: Forecaster | None = None
        self.ledger_access: LedgerAccess | None = None
        self._failure: SagaError | None = None

    async def start(self, announce: Callable[[Forecaster], None]) -> None:
        """Load and verify the bundle, forecast once, then be ready. What keeps it from that goes into the log, and its kind to /readyz."""
        try:
            self._forecaster = await anyio.to_thread.run_sync(self._load)
        except SagaError as error:
            self._failure = unready(error)
            self.log.error(
                "not_ready",
                title=error.title,
                wrong=error.args[0],
                problems=[str(problem) for problem in error.problems],
            )
            return
        except Exception as error:
            self._failure = SetupError("The service failed while it started; its log says where")
            self.log.error("not_ready", **error_location(error))
            return
        self.metrics.ready.set(1)
        self.log.info("ready")
        announce(self._forecaster)

    def _load(self) -> Forecaster:
        given = self.settings
        forecaster = Forecaster.load(
            given.bundle, threads=given.threads, rollout=given.rollout, precision=given.precision
        )
        # The first forecast of a process is slow; a client's should not be.
        body = json.dumps({"persons": example_persons(example_scale(forecaster))}).encode()
        forecaster.forecast(
            read_request_panel(forecaster, parse_json(body, ForecastRequest, 1)).panel,
            requests.ForecastRequest(horizons=[1]),
            requests.Draws(n_paths=2),
        )
        if self.settings.database is not None:
            self.ledger_access = LedgerAccess.open(
                self.settings.database.get_secret_value(), self.settings.database_key, forecaster
            )
        return forecaster

    def computed(self, product: str, persons: int, paths: int, years: int) -> None:
        """Count and log one finished call by its size."""
        self.metrics.computed(product, persons, persons * paths * years)
        self.log.info("computed", product=product, persons=persons, paths=paths, years=years)

    @property
    def forecaster(self) -> Forecaster:
        """The forecaster. Raises HTTPProblem 503 while it loads, and what `start` failed with, 503 too."""
        if self._failure is not None:
            raise self._failure
        if self._forecaster is None:
            problem = Problem(
                "loading", "The bundle is being loaded and checked", "Try again in a few seconds"
            )
            raise HTTPProblem(
                503,
                "loading",
                "The service is not ready yet",
                [problem],
                headers={"Retry-After": "5"},
            )
        return self._forecaster


def example_scale(forecaster: Forecaster) -> float:
    """What the example's SEK are multiplied by, so that they are ordinary earnings in the bundle's money."""
    transforms = forecaster.transforms
    return 1.0 if transforms.currency == "SEK" else math.exp(transforms.centre) / 300_000


@dataclass(frozen=True)
class RequestPanel:
    """The panel of a request and its persons in the order they were sent."""

    panel: Panel
    person_ids: tuple[str, ...]

    def account(self) -> dict[str, Any]:
        """What reading set aside, for the provenance: nothing disappears without being named."""
        return {"rows_excluded": dict(self.panel.meta.excluded)} if self.panel.meta.excluded else {}


def check_prices(forecaster: Forecaster, prices: int | Literal["nominal"] | None) -> None:
    """Raise UsageError for prices that the bundle is not in; only SEK can be converted."""
    currency, year = forecaster.transforms.currency, forecaster.transforms.price_year
    if prices not in (None, "nominal", year) or (prices == "nominal" and currency != "SEK"):
        own = f"amounts in prices of {year} and say {year}"
        fix = (
            f"Send nominal amounts and leave prices out, or {own}"
            if currency == "SEK"
            else f"Send {own}, or leave prices out"
        )
        raise UsageError(
            "The amounts cannot be converted",
            [Problem("prices", f"The bundle is in {currency} of {year}", fix, column="prices")],
        )


def read_request_panel(forecaster: Forecaster, call: Call[Any]) -> RequestPanel:
    """Person-years of a request as a panel in the bundle's money.

    SEK are nominal unless `prices` names the price year. For another currency there is no built-in price index, so amounts must be in the
    bundle's money. Raises InputError as `read_panel` does, UsageError for prices that the bundle is not in.
    """
    prices = call.options.prices
    check_prices(forecaster, prices)
    currency, year = forecaster.transforms.currency, forecaster.transforms.price_year
    if currency == "SEK":
        panel = read_panel(call.frame, prices=None if prices == "nominal" else prices)
    else:
        panel = read_panel(call.frame, prices=PRICE_YEAR)  # as they are
        panel = replace(
            panel,
            meta=replace(
                panel.meta,
                currency=currency,
                price_year=year,
                floor=forecaster.transforms.floor,
                macro=None,
            ),
        )
    sent, _ = read_column(call.frame["person_id"], BY_NAME["person_id"])
    person_ids = tuple(sent.drop_nulls().unique(maintain_order=True))
    if panel.meta.lost is not None:
        raise InputError("Some persons have nothing to forecast from", [panel.meta.lost])
    return RequestPanel(panel, person_ids)


def service_of(request: Request) -> Service:
    """The service that this request reached."""
    service: Service = request.app.state.service
    return service


CurrentService = Annotated[Service, Depends(service_of)]
