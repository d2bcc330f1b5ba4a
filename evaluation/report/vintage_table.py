"""Vintages in words: how wrong forecasts of groups were, by years ahead, beside a simple rule."""

from __future__ import annotations

import numpy as np
import polars as pl

from saga.model_error import EVERYBODY, GROUPS, ModelError, scale_of
from saga.pages.format import markdown_table, percent

_SHOWN = {
    ("mean", EVERYBODY): "Mean earnings of everybody",
    ("mean", GROUPS): "Mean earnings of groups",
    ("zero_share", EVERYBODY): "Share without earnings, everybody",
    ("zero_share", GROUPS): "Share without earnings, groups",
    ("gini", EVERYBODY): "Gini coefficient of everybody",
    ("mean_ratio", GROUPS): "Mean earnings of one group over those of another",
}
_COLUMNS = (
    "years ahead",
    "vintages",
    "without overlap",
    "mean error",
    "typical error",
    "by persons being few",
    "of the model itself",
    "inside 90 %",
    "rule: mean error",
    "rule: typical error",
)


def describe_vintages(errors: pl.DataFrame) -> str:
    """A text in Markdown with a table for each statistic; `errors` are those of all vintages."""
    model = ModelError.fit(errors)
    years = ", ".join(map(str, model.cutoffs))
    subject = (
        f"{len(model.cutoffs)} models, trained and calibrated on records up to {years}, forecast "
        "the later earnings of persons that they were not trained on. "
        if model.histories == 1
        else f"The model forecasts persons of {model.histories} drawn histories from records up to "
        f"{years}, told the economy that follows. "
    )
    parts = [
        "# Vintages",
        f"{subject}Errors are outcome less "
        "forecast, in per cent of the forecast for amounts and ratios and in points for shares and "
        "Gini coefficients; a typical error is the root of the mean square. Vintages that overlap, "
        "and groups of one year, have errors in common: only those without overlap count as "
        "separate. The band (persons' own futures, economy) should have 90 % of outcomes inside. "
        "The simple rule: what persons of the age and group had in the last five years, grown as "
        "mean earnings did before.",
    ]
    of = pl.when(pl.col("grouping") == "total").then(pl.lit(EVERYBODY)).otherwise(pl.lit(GROUPS))
    for (name, group), rows in errors.group_by("statistic", of.alias("of"), maintain_order=True):
        if heading := _SHOWN.get((str(name), str(group))):
            of_horizons = rows.sort("horizon").partition_by("horizon", maintain_order=True)
            cells = [_row(part, model, str(name), str(group)) for part in of_horizons]
            parts += [f"## {heading}", markdown_table(_COLUMNS, cells)]
    return "\n\n".join(parts) + "\n"


def _row(rows: pl.DataFrame, model: ModelError, name: str, of: str) -> list[str]:
    """The texts of one horizon."""
    horizon, scale = rows["horizon"][0], [scale_of(name, value) for value in rows["forecast"]]
    of_rule = ((rows["outcome"] - rows["rule"]) / pl.Series(scale)).drop_nulls().drop_nans()
    inside = (rows["lower_90"] <= rows["outcome"]) & (rows["outcome"] <= rows["upper_90"])
    figures = [rows["error"].to_numpy(), rows["se"].to_numpy(), of_rule.to_numpy()]
    means = [percent(float(part.mean()) if len(part) else None) for part in figures]
    typical = [percent(float(np.sqrt((part**2).mean())) if len(part) else None) for part in figures]
    of_model = model.sd(name, of, {horizon: 1.0}, 1.0)
    return [
        str(horizon),
        str(rows.select({"history", "cutoff"} & set(rows.columns)).n_unique()),
        str(model.separate[str(horizon)]),
        means[0],
        typical[0],
        typical[1],
        percent(of_model),
        percent(float(inside.to_numpy().mean())),
        means[2],
        typical[2],
    ]
