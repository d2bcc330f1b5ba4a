"""A forecast knows its time: early and late origins have no guarantee, backtests are clean.

With the shipped bundle, whose records end in 2022.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.calibration.diagnostics.diagnosis import _late_origins

from saga.conformal.calibrator import Calibrator
from saga.data.facts import read_facts
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest, LifetimeRequest

SHIPPED = Path(__file__).parents[2] / "bundles/small"
REQUEST = ForecastRequest(horizons=(1, 3), coverage=(0.9,))


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return Forecaster.load(SHIPPED, threads=1)


def records(last_year: int, person: str = "a") -> pl.DataFrame:
    years = list(range(min(2012, last_year - 5), last_year + 1))
    return pl.DataFrame(
        {
            "person_id": [person] * len(years),
            "year": years,
            "birth_year": [min(1985, last_year - 30)] * len(years),
            "earnings": [300_000.0 + 4_000 * (year - 2012) for year in years],
        }
    )


def panel_to(last_year: int, **options: Any) -> Panel:
    return read_panel(records(last_year), prices=2022, **options)


def codes(forecaster: Forecaster, panel: Panel) -> set[str]:
    return {warning.code for warning in forecaster.warnings(panel, REQUEST)}


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (2022, set[str]()),
        (1985, {"early-origin"}),
        (2024, {"late-origin"}),
        (2026, {"late-origin", "macro-ends"}),
    ],
)
def test_the_time_of_an_origin_is_named_and_decides_the_guarantee(
    forecaster: Forecaster, origin: int, expected: set[str]
) -> None:
    panel = panel_to(origin)
    about_time = {"early-origin", "late-origin", "macro-ends", "seen-years", "unpublished-prices"}
    assert codes(forecaster, panel) & about_time == expected
    forecasts = forecaster.forecast(panel, REQUEST).table
    lifetimes = forecaster.lifetime(panel, LifetimeRequest(to_age=45), Draws(20, 0)).table
    word = "extrapolated" if expected else "assumption"
    assert set(forecasts["guarantee_90"]) == {word}
    if expected:
        assert set(lifetimes["guarantee_90"]) == {word}


def test_persons_with_an_earlier_origin_keep_their_guarantee(forecaster: Forecaster) -> None:
    both = pl.concat([records(2022, "early"), records(2025, "late")])
    table = forecaster.forecast(read_panel(both, prices=2022), REQUEST).table
    words = dict(table.filter(horizon=1).select("person_id", "guarantee_90").iter_rows())
    assert words == {"early": "assumption", "late": "extrapolated"}


def test_outcomes_of_later_years_restore_the_guarantee_and_no_interval_stays_none(
    forecaster: Forecaster,
) -> None:
    panel = panel_to(2024)
    delivered = forecaster.with_calibrator(forecaster.calibrator, 2024)
    assert set(delivered.forecast(panel, REQUEST).table["guarantee_90"]) == {"assumption"}
    assert "late-origin" not in codes(delivered, panel)
    uncalibrated = forecaster.with_calibrator(Calibrator())
    assert set(uncalibrated.forecast(panel, REQUEST).table["guarantee_90"]) == {"none"}


def test_prices_of_2026_are_converted_and_named(forecaster: Forecaster) -> None:
    rows = records(2022)
    panel = read_panel(rows, prices=2026)
    ratio = panel.frame["earnings"] / rows["earnings"]
    assert ratio[0] == pytest.approx(371.91 / (418.0 * 1.02))
    (warning,) = (w for w in forecaster.warnings(panel, REQUEST) if w.code == "unpublished-prices")
    assert "2026 is assumed" in warning.message
    nominal = read_panel(records(2025))
    assert nominal.meta.unpublished_prices == {2025: "E"}
    with pytest.raises(InputError, match="covers 1980 to 2030 and lacks 2062"):
        read_panel(rows, prices=2062)


def test_own_facts_replace_assumed_prices_and_missing_macro_years(
    forecaster: Forecaster, tmp_path: Path
) -> None:
    (tmp_path / "own.csv").write_text(
        "series,year,value,unit,mark,source\n"
        "consumer_price_index,2026,425,1980 = 100,V,office\n"
        "unemployment,2026,8.0,per cent,V,office\n"
        "real_wage_growth,2026,1.0,per cent,V,office\n"
        "inflation,2026,1.7,per cent,V,office\n"
    )
    facts = read_facts(tmp_path)
    panel = read_panel(records(2026), prices=2026, facts=facts)
    other = Forecaster(forecaster.bundle, threads=1, facts=facts)
    assert not codes(other, panel) & {"macro-ends", "unpublished-prices"}
    assert other.provenance()["facts"] == {"digest": facts.digest, "source": tmp_path.name}


@pytest.mark.parametrize("later", ["other amounts", "faults", "an exit"])
def test_records_after_the_origin_cannot_change_a_backtest(
    forecaster: Forecaster, later: str
) -> None:
    """Whatever is in later rows, the panel and so every number is that of the cut record."""
    cut, rows = panel_to(2018), records(2022).with_columns(pl.col("earnings").cast(pl.String))
    is_later = pl.col("year") > 2018
    if later == "an exit":
        rows = rows.with_columns(exit_year=pl.lit(2021), exit_reason=pl.lit("dead"))
        rows = rows.filter(pl.col("year") < 2021)
    else:
        text = "9999999" if later == "other amounts" else "many"
        rows = rows.with_columns(
            earnings=pl.when(is_later).then(pl.lit(text)).otherwise("earnings"),
            birth_year=pl.when(is_later & pl.lit(later == "faults"))
            .then(1900)
            .otherwise("birth_year"),
        )
    panel = read_panel(rows, prices=2022, origin=2018)
    assert panel.frame.equals(cut.frame)
    assert panel.meta.excluded == {"after-origin": rows.filter(is_later).height}
    assert "seen-years" in codes(forecaster, panel)
    assert forecaster.forecast(panel, REQUEST).table.equals(forecaster.forecast(cut, REQUEST).table)


def test_a_person_without_a_record_up_to_the_origin_is_named() -> None:
    rows = pl.concat([records(2022, "a"), records(2022, "b").filter(pl.col("year") > 2018)])
    lost = read_panel(rows, prices=2022, origin=2018).meta.lost
    assert lost is not None
    assert (lost.person_id, "are after 2018" in lost.message) == ("b", True)


def test_the_calibration_report_counts_forecasts_after_the_bundles_records(
    forecaster: Forecaster,
) -> None:
    origins = Origins(np.array(["a", "b", "c"]), np.array([2022, 2024, 2026]))
    message = _late_origins(forecaster, origins)
    assert message is not None
    assert message.startswith("2 of 3 forecasts start after 2022")
    assert _late_origins(forecaster, origins.take(np.array([0]))) is None
