"""The persons of a request as a panel in the bundle's money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from saga.data.casting import read_column
from saga.data.facts import Facts
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError, Problem, UsageError
from saga.features.transforms import Transforms
from saga.schema import BY_NAME, PRICE_YEAR

PricesOption = int | Literal["nominal"] | None


@dataclass(frozen=True)
class RequestPanel:
    """The panel of a request, and its persons in the order in which they were sent."""

    panel: Panel
    person_ids: tuple[str, ...]

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

    SEK are nominal unless `prices` is a year. There is no built-in price index for another
    currency, so its amounts must be in the bundle's money.

    Raises:
        InputError: `read_panel` refuses the rows, or leaves no row of some person.
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
    if panel.meta.lost is not None:
        raise InputError("Some persons have nothing to forecast from", [panel.meta.lost])
    return RequestPanel(panel, tuple(sent_ids.drop_nulls().unique(maintain_order=True)))
