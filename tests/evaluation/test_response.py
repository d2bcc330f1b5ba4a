"""Responses to the economy: a known slope is found with its error, and a model that knows no recession is exposed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from evaluation.cross_section import EVERYBODY
from evaluation.response import as_markdown, responses, true_unemployment

FUTURES, YEARS = 40, 5
RISE = {"zero": 0.004, "mean": -0.02, "p10_p50": -0.01}  # what a percentage point does; of the mean, in logs


def futures(seed: int, *, knows: bool) -> tuple[list[dict[str, object]], dict[int, np.ndarray]]:
    """Cross-sections of futures in which unemployment has the effects RISE (or none), and noise."""
    rng = np.random.default_rng(seed)
    unemployment = {k: 0.07 + 0.02 * rng.standard_normal(YEARS) for k in range(FUTURES)}
    rows = []
    for k, path in unemployment.items():
        for h in (1, 2, 3, 5):
            points = 100 * path[:h].mean() - 7
            for name, slope in RISE.items():
                value = knows * slope * points + 0.005 * rng.standard_normal()
                level = 250_000 * np.exp(value) if name == "mean" else 0.3 + value
                rows.append({"future": k, "year": h, "group": EVERYBODY, "statistic": name, "value": float(level)})
    return rows, unemployment


def table(*, knows: bool) -> pl.DataFrame:
    (model, drawn), (truth, came) = futures(1, knows=knows), futures(2, knows=True)
    sections = pl.concat(
        [pl.DataFrame(model).with_columns(source=pl.lit("model")), pl.DataFrame(truth).with_columns(source=pl.lit("truth"))]
    )
    return responses(sections, {"model": drawn, "truth": came}, years=(1, 2, 3, 5))


def test_known_slopes_are_found_within_their_errors() -> None:
    found = table(knows=True)
    assert found.height == 12
    for row in found.iter_rows(named=True):
        for suffix in ("", "_true"):
            # 24 slopes: the largest of as many t(38) stays below 4 with probability .99
            assert row[f"slope{suffix}"] == pytest.approx(RISE[row["statistic"]], abs=4 * row[f"se{suffix}"])
            noise = 0.005 / (2 / row["year"] ** 0.5 * FUTURES**0.5)
            assert row[f"se{suffix}"] == pytest.approx(noise, rel=0.5)


def test_a_model_without_recessions_is_exposed() -> None:
    found = table(knows=False)
    apart = (found["slope"] - found["slope_true"]).abs() / (found["se"] ** 2 + found["se_true"] ** 2).sqrt()
    assert apart.filter(found["year"] == 1).min() > 3


def test_true_unemployment_is_read_by_draw_and_the_table_reads(tmp_path: Path) -> None:
    (tmp_path / "future").mkdir()
    rows = {"draw": [1, 1, 0, 0], "year": [2024, 2023, 2023, 2024], "unemployment": [0.04, 0.03, 0.01, 0.02]}
    pl.DataFrame(rows).write_parquet(tmp_path / "future/macro.parquet")
    assert {k: v.tolist() for k, v in true_unemployment(tmp_path).items()} == {0: [0.01, 0.02], 1: [0.03, 0.04]}
    text = as_markdown(table(knows=True))
    assert text.count("\n| ") == 4
    assert "share with zero earnings | +0.00" in text
    assert as_markdown(pl.DataFrame()) == ""
