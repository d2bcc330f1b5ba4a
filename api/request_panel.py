"""The persons of a request as a panel in the bundle's money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from saga.data.casting import read_column
from saga.data.eligibility import find_ineligible, keep_eligible
from saga.data.facts import Facts
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import Problem, UsageError
from saga.features.transforms import Transforms
from saga.requests import ForecastRequest, LifetimeRequest
from saga.schema import BY_NAME, PRICE_YEAR

PricesOption = int | Literal["nominal"] | None


@dataclass(frozen=True)
class RequestPanel:
    """The panel of a request, and its persons in the order in which they were sent.

    `left_out` are the reasons why other persons of the request cannot be forecast.
    """

    panel: Panel
    person_ids: tuple[str, ...]
    left_out: tuple[Problem, ...] = ()

    def keep_eligible(self, request: ForecastRequest | LifetimeRequest) -> RequestPanel:
        """Without the persons who cannot be forecast, as `saga forecast` and `saga lifetime`.

        Raises InputError if nobody remains.
        """
        if isinstance(request, ForecastRequest):
            ineligible = find_ineligible(self.panel, ahead=request.horizons[0])
        else:
            ineligible = find_ineligible(self.panel, request.to_age)
        if not ineligible:
            return self
        return RequestPanel(
            keep_eligible(self.panel, ineligible),
            tuple(person for person in self.person_ids if person not in ineligible),
            (*self.left_out, *ineligible.values()),
        )

    def provenance(self) -> dict[str, dict[str, int]]:
        """The number of rows that reading left out, by rule; nothing if there are none."""
        excluded = self.panel.meta.excluded
        return {"rows_excluded": dict(excluded)} if excluded else {}


def check_prices(transforms: Transforms, prices: PricesOption, index: Mapping[int, float]) -> None:
    """Raise UsageError for prices that cannot be converted to the bundle's.

    Only SEK can be converted, between years of the price `index`.
    """
    currency, year = transforms.currency, transforms.price_year
    if currency != "SEK" and prices not in (None, year):
        fix = f"Send amounts in prices of {year} and say {year}, or leave prices out"
    elif isinstance(prices, int) and prices not in index:
        real_amounts = f"amounts in prices of {year} and say {year}"
        fix = f"Send nominal amounts and leave prices out, or {real_amounts}"
    else:
        return
    raise UsageError(
        "The amounts cannot be converted",
        [Problem("prices", f"The bundle is in {currency} of {year}", fix, column="prices")],
    )


def read_request_panel(
    transforms: Transforms,
    frame: pl.DataFrame,
    prices: PricesOption,
    *,
    facts: Facts,
    origin: int | None = None,
) -> RequestPanel:
    """Read the person-years of a request, up to the year `origin` if there is one.

    Persons without a usable row are left out.

    SEK are nominal unless `prices` is a year. There is no built-in price index for another
    currency, so its amounts must be in the bundle's money.

    Raises:
        InputError: `read_panel` refuses the rows, or leaves none.
        UsageError: The bundle is not in these prices.
    """
    check_prices(transforms, prices, facts.price_index)
    if transforms.currency == "SEK":
        year = None if prices == "nominal" else prices
        panel = read_panel(frame, prices=year, facts=facts, origin=origin)
    else:
        panel = read_panel(frame, prices=PRICE_YEAR, origin=origin)  # amounts are not converted
        meta = replace(
            panel.meta,
            currency=transforms.currency,
            price_year=transforms.price_year,
            floor=transforms.floor,
            macro=None,
        )
        panel = replace(panel, meta=meta)
    sent_ids, _ = read_column(frame["person_id"], BY_NAME["person_id"])
    person_ids = sent_ids.drop_nulls().unique(maintain_order=True)
    if panel.meta.lost is None:
        return RequestPanel(panel, tuple(person_ids))
    usable = person_ids.is_in(panel.frame["person_id"].unique().implode())
    left_out = (replace(panel.meta.lost, person_id=p, count=1) for p in person_ids.filter(~usable))
    return RequestPanel(panel, tuple(person_ids.filter(usable)), tuple(left_out))
