"""The persons of a request as a panel in the bundle's money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl
from saga.api.refusals import refused

from saga.data import rules
from saga.data.casting import read_column
from saga.data.facts import Facts
from saga.data.mapping import ExtraColumn, SourceMapping
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError, Problem
from saga.features.training_reference import ComparedRecords
from saga.features.transforms import Transforms
from saga.forecast_results import Result
from saga.schema import BY_NAME, EXTRA_PREFIX

PricesOption = int | Literal["nominal"] | None


@dataclass(frozen=True)
class RequestPanel:
    """The panel of a request, and its persons in the order in which they were sent.

    `left_out` are the other persons of the request, who have no usable row. `compared` are the
    records beside those of training, if they were compared together with those of other calls.
    """

    panel: Panel
    person_ids: tuple[str, ...]
    left_out: tuple[Problem, ...] = ()
    compared: ComparedRecords | None = None

    def all_left_out(self, result: Result) -> tuple[Problem, ...]:
        """Every person without a result, by name; the panel counts those without a usable row."""
        lost = self.panel.meta.lost
        return (*self.left_out, *(problem for problem in result.left_out if problem != lost))

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
    raise refused("prices", {"currency": currency, "year": year, "fix": fix})


def request_mapping(transforms: Transforms) -> SourceMapping:
    """How persons are read who are sent in the bundle's money, with its own columns if sent."""
    extra = {
        column.name: ExtraColumn.model_validate(
            {"kind": column.kind, "static": column.static, "lasting": column.lasting}
        )
        for column in transforms.extra
    }
    mapping = SourceMapping(extra=extra)
    if transforms.currency != "SEK":
        mapping = SourceMapping(
            currency=transforms.currency, floor=transforms.floor, macro=None, extra=extra
        )
    return mapping.on_top_of(mapping)


def _require_known(frame: pl.DataFrame, transforms: Transforms) -> None:
    """Raise InputError for a column of a panel's own that the bundle was trained without."""
    known = [column.name for column in transforms.extra]
    sent = [name for name in frame.columns if name.startswith(EXTRA_PREFIX)]
    fix = f"Send {', '.join(known)}" if known else "Leave it out"
    if unknown := [name for name in sent if name not in known]:
        raise InputError(
            "The bundle was trained without a column",
            [Problem("extra", "The bundle does not have it", fix, column=n) for n in unknown],
        )


def with_person_ids(table: pl.DataFrame) -> pl.DataFrame:
    """The rows with person ids as `read_panel` reads them.

    Raises InputError with the same problems as `read_panel`.
    """
    person_ids, is_not_text = read_column(table["person_id"], BY_NAME["person_id"])
    rows = table.with_columns(person_ids).with_row_index("row")
    rule = is_not_text.replace_strict(
        {True: "not-text", False: "missing-value"}, return_dtype=pl.String
    )
    broken = rows.select("row", rule=rule, column=pl.lit("person_id")).filter(person_ids.is_null())
    if broken.height:
        raise InputError("Some rows have no person", rules.describe_violations(broken, rows))
    return rows.drop("row")


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
        InputError: `read_panel` refuses the rows or leaves none, or the bundle lacks a column.
        UsageError: The bundle is not in these prices.
    """
    check_prices(transforms, prices, facts.price_index)
    _require_known(frame, transforms)
    year = None if prices == "nominal" else prices
    if transforms.currency != "SEK":
        year = transforms.price_year
    mapping = request_mapping(transforms)
    panel = read_panel(frame, mapping=mapping, prices=year, facts=facts, origin=origin)
    sent_ids, _ = read_column(frame["person_id"], BY_NAME["person_id"])
    person_ids = tuple(person for person in dict.fromkeys(sent_ids.to_list()) if person is not None)
    if panel.meta.lost is None:
        return RequestPanel(panel, person_ids)
    usable = set(panel.frame["person_id"].to_list())
    left_out = tuple(
        replace(panel.meta.lost, person_id=person, count=1)
        for person in person_ids
        if person not in usable
    )
    return RequestPanel(panel, tuple(p for p in person_ids if p in usable), left_out)
