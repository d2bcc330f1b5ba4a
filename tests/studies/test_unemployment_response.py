"""Responses to unemployment: known slopes are recovered, and their absence is detected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from studies.cross_section import EVERYBODY
from studies.unemployment_response import responses, to_markdown, true_scenarios, true_unemployment

FUTURES, YEARS = 40, 5
# The effect of a percentage point of unemployment; of the mean, in logs.
RISE = {"zero": 0.004, "mean": -0.02, "p10_p50": -0.01}
NOISE = 0.005
RNG = np.random.default_rng(1)
UNEMPLOYMENT = {k: 0.07 + 0.02 * RNG.standard_normal(YEARS) for k in range(FUTURES)}
LUCK = NOISE * RNG.standard_normal(FUTURES)  # of a future, the same in the model and in truth


def futures(source: str, seed: int, *, responds: bool) -> pl.DataFrame:
    """Cross-sections of futures: effects RISE (or none), LUCK, and noise of half its size."""
    rng = np.random.default_rng(seed)
    rows = []
    for k, path in UNEMPLOYMENT.items():
        for h in (1, 2, 3, 5):
            points = 100 * path[:h].mean() - 7
            for name, slope in RISE.items():
                value = responds * slope * points + LUCK[k] + NOISE / 2 * rng.standard_normal()
                statistic = 250_000 * np.exp(value) if name == "mean" else 0.3 + value
                rows.append(
                    {
                        "source": source,
                        "future": k,
                        "year": h,
                        "group": EVERYBODY,
                        "statistic": name,
                        "value": float(statistic),
                    }
                )
    # The order of rows must not matter.
    return pl.DataFrame(rows).sample(fraction=1.0, shuffle=True, seed=seed)


def table(*, responds: bool) -> pl.DataFrame:
    return responses(
        pl.concat([futures("model", 1, responds=responds), futures("truth", 2, responds=True)]),
        UNEMPLOYMENT,
        years=(1, 2, 3, 5),
    )


def test_known_slopes_are_recovered_within_their_errors() -> None:
    slopes = table(responds=True)
    assert slopes.height == 12
    for row in slopes.iter_rows(named=True):
        # 24 figures: the largest of 24 t(38) is below 4 with probability .99
        assert row["slope_true"] == pytest.approx(RISE[row["statistic"]], abs=4 * row["se_true"])
        assert row["difference"] == pytest.approx(0, abs=4 * row["se_difference"])
        assert row["difference"] == pytest.approx(row["slope"] - row["slope_true"], abs=1e-12)
        points = np.array([100 * path[: row["year"]].mean() for path in UNEMPLOYMENT.values()])
        per_point = 1 / (points.std() * FUTURES**0.5)
        assert row["se_true"] == pytest.approx(NOISE * (1 + 1 / 4) ** 0.5 * per_point, rel=0.5)
        # LUCK cancels in the difference.
        assert row["se_difference"] == pytest.approx(NOISE / 2 * 2**0.5 * per_point, rel=0.5)


def test_a_model_that_ignores_recessions_has_slopes_of_zero() -> None:
    slopes = table(responds=False)
    smallest = (slopes["difference"] / slopes["se_difference"]).abs().min()
    assert isinstance(smallest, float)
    assert smallest > 3


def test_macro_futures_are_read_by_draw(tmp_path: Path) -> None:
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
    text = to_markdown(table(responds=True))
    assert text.count("\n| ") == 4
    assert "share with zero earnings | +0.00" in text
    assert to_markdown(pl.DataFrame()) == ""
