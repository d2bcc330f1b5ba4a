"""Responses to the economy: a known slope is found with its error, and a model that knows no recession is exposed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from studies.cross_section import EVERYBODY
from studies.unemployment_response import responses, to_markdown, true_scenarios, true_unemployment

FUTURES, YEARS = 40, 5
RISE = {
    "zero": 0.004,
    "mean": -0.02,
    "p10_p50": -0.01,
}  # what a percentage point does; of the mean, in logs
NOISE = 0.005
RNG = np.random.default_rng(1)
UNEMPLOYMENT = {k: 0.07 + 0.02 * RNG.standard_normal(YEARS) for k in range(FUTURES)}
LUCK = NOISE * RNG.standard_normal(FUTURES)  # of an economy, the same for the model and in truth


def futures(source: str, seed: int, *, knows: bool) -> pl.DataFrame:
    """Cross-sections of futures in which unemployment has the effects RISE (or none), an economy's luck, and noise half its size."""
    rng = np.random.default_rng(seed)
    rows = []
    for k, path in UNEMPLOYMENT.items():
        for h in (1, 2, 3, 5):
            points = 100 * path[:h].mean() - 7
            for name, slope in RISE.items():
                value = knows * slope * points + LUCK[k] + NOISE / 2 * rng.standard_normal()
                level = 250_000 * np.exp(value) if name == "mean" else 0.3 + value
                rows.append(
                    {
                        "source": source,
                        "future": k,
                        "year": h,
                        "group": EVERYBODY,
                        "statistic": name,
                        "value": float(level),
                    }
                )
    return pl.DataFrame(rows).sample(
        fraction=1.0, shuffle=True, seed=seed
    )  # the order of rows says nothing


def table(*, knows: bool) -> pl.DataFrame:
    return responses(
        pl.concat([futures("model", 1, knows=knows), futures("truth", 2, knows=True)]),
        UNEMPLOYMENT,
        years=(1, 2, 3, 5),
    )


def test_known_slopes_are_recovered_within_their_errors() -> None:
    found = table(knows=True)
    assert found.height == 12
    for row in found.iter_rows(named=True):
        # 24 figures: the largest of as many t(38) stays below 4 with probability .99
        assert row["slope_true"] == pytest.approx(RISE[row["statistic"]], abs=4 * row["se_true"])
        assert row["difference"] == pytest.approx(0, abs=4 * row["se_difference"])
        assert row["difference"] == pytest.approx(row["slope"] - row["slope_true"], abs=1e-12)
        points = np.array([100 * path[: row["year"]].mean() for path in UNEMPLOYMENT.values()])
        per_point = 1 / (points.std() * FUTURES**0.5)
        assert row["se_true"] == pytest.approx(NOISE * (1 + 1 / 4) ** 0.5 * per_point, rel=0.5)
        assert row["se_difference"] == pytest.approx(
            NOISE / 2 * 2**0.5 * per_point, rel=0.5
        )  # the luck of the economies is gone


def test_a_model_that_ignores_recessions_has_slopes_of_zero() -> None:
    found = table(knows=False)
    assert (found["difference"] / found["se_difference"]).abs().min() > 3


def test_economies_are_read_by_draw(tmp_path: Path) -> None:
    (tmp_path / "future").mkdir()
    rows = {
        "draw": [1, 1, 0, 0],
        "year": [2024, 2023, 2023, 2024],
        "unemployment": [0.04, 0.03, 0.01, 0.02],
    }
    rows |= {"real_wage_growth": [0.4, 0.3, 0.1, 0.2], "inflation": [0.0, 0.0, 0.0, 0.5]}
    pl.DataFrame(rows).write_parquet(tmp_path / "future/macro.parquet")
    assert {k: v.tolist() for k, v in true_unemployment(tmp_path).items()} == {
        0: [0.01, 0.02],
        1: [0.03, 0.04],
    }
    assert true_scenarios(tmp_path)[0].rows == {2023: (0.01, 0.1, 0.0), 2024: (0.02, 0.2, 0.5)}
    text = to_markdown(table(knows=True))
    assert text.count("\n| ") == 4
    assert "share with zero earnings | +0.00" in text
    assert to_markdown(pl.DataFrame()) == ""
