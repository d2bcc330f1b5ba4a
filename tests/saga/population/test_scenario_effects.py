"""What a scenario changes: the difference on each path, whose range is that of the difference."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scored_folder import path_rows, write_scored

from saga.arrays import Floats
from saga.pages.format import percent, short, unit_of
from saga.request_warnings import NO_YEAR_FORECAST
from tests.command_line import done, refusal

PERSONS, YEARS, PATHS = 120, 2, 60
EXACT = "--round-persons 1 --round-amounts 1 --transition-years 1"
RNG = np.random.default_rng(3)
BASE = RNG.lognormal(12, 0.6, (PERSONS, YEARS, PATHS)).round()
LOSS = RNG.uniform(0.05, 0.15, PATHS)  # of everybody, on each path
RECESSION = (BASE * (1 - LOSS)).round()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_scored(tmp_path / "base", path_rows(BASE))


def effects(scored: Path, reference: Path, out: Path, *more: str) -> pl.DataFrame:
    done("tables", scored, "--reference", reference, "--out", out, EXACT, *more)
    return pl.read_csv(out / "statistics.csv", infer_schema_length=None)


def limits(differences: Floats) -> Floats:
    return np.quantile(differences, (0.05, 0.95), method="weibull")


def test_an_effect_is_the_mean_difference_and_its_range_that_of_the_difference(
    base: Path, tmp_path: Path
) -> None:
    scored = write_scored(tmp_path / "scored", path_rows(RECESSION))
    table = effects(scored, base, tmp_path / "out")
    before = effects(base, base, tmp_path / "same")
    for year in range(YEARS):
        of_year = {row["statistic"]: row for row in table.filter(year=2023 + year).to_dicts()}
        totals = (RECESSION - BASE)[:, year].sum(0)
        row = of_year["total"]
        assert row["effect"] == pytest.approx(totals.mean(), abs=1)
        lower, upper = row["effect_lower_90"], row["effect_upper_90"]
        np.testing.assert_allclose([lower, upper], limits(totals), atol=1)
        for statistic in ("total", "p10"):  # the median of quantiles is no sum
            of_it, alone = of_year[statistic], before.filter(statistic=statistic, year=2023 + year)
            assert of_it["reference"] == alone["value"].item()
        assert row["value"] - row["effect"] == pytest.approx(row["reference"], abs=2)
        # Everybody loses the same share of a path, so shares and inequality do not move.
        assert of_year["zero_share"]["effect"] == 0
        assert of_year["gini"]["effect"] == pytest.approx(0, abs=1e-4)
        assert of_year["persons"]["effect"] == 0
    lifetime = table.filter(pl.col("statistic") == "lifetime_mean").to_dicts()[0]
    sums = ((RECESSION - BASE) / 1.02 ** np.arange(1, 1 + YEARS)[:, None]).sum(1).mean(0)
    assert lifetime["effect"] == pytest.approx(sums.mean(), abs=1)
    # The range of a value has the spread of all persons' own futures, that of an effect has not.
    assert upper - lower < 0.5 * (row["upper_90"] - row["lower_90"])
    page = (tmp_path / "out" / "tables.html").read_text()
    scale, _ = unit_of(table.filter(statistic="total")["upper_90"].max())  # type: ignore[arg-type]
    change, low, high = (short(amount / scale) for amount in (row["effect"], lower, upper))
    share = percent(row["effect"] / row["reference"])
    assert f"change {change} ({low} to {high}), {share}" in page
    line = ("tables", scored, "--reference", base, "--out", tmp_path / "again", EXACT)
    assert re.search(f"Per cent.*{share}", done(*line).output, re.DOTALL)
    assert "effect" not in effects_of_nothing(scored, tmp_path / "alone").columns


def effects_of_nothing(scored: Path, out: Path) -> pl.DataFrame:
    done("tables", scored, "--out", out, EXACT)
    return pl.read_csv(out / "statistics.csv", infer_schema_length=None)


def test_a_cell_that_is_unsafe_on_either_side_shows_no_effect(base: Path, tmp_path: Path) -> None:
    """In the other scenario nearly all of the earnings are those of one person."""
    one = RECESSION.copy()
    one[1:] = 1
    scored = write_scored(tmp_path / "one", path_rows(one))
    for pair in ((scored, base), (base, scored)):
        table = effects(*pair, tmp_path / f"out-{pair[0].name}")
        assert table["suppressed"].all()
        assert table.select("value", "effect", "effect_lower_90").null_count().row(0) == (
            *(table.height,) * 3,
        )


def test_only_the_same_persons_and_random_numbers_are_a_reference(
    base: Path, tmp_path: Path
) -> None:
    rows = path_rows(BASE)
    past = [{"code": "no-effect", "message": NO_YEAR_FORECAST, "count": PERSONS}]
    for reference, difference in (
        (write_scored(tmp_path / "fewer", path_rows(BASE[1:])), "other persons or years"),
        (write_scored(tmp_path / "later", path_rows(BASE, 2024)), "other persons or years"),
        (write_scored(tmp_path / "seed", rows, stated={"seed": 1}), "differ in seed"),
        (write_scored(tmp_path / "input", rows, source="other amounts"), "differ in input"),
        (write_scored(tmp_path / "aligned", rows, stated={"aligned": {}}), "Aligned paths"),
        (write_scored(tmp_path / "past", rows, warnings=past), "An effect of 0 would say nothing"),
    ):
        error = refusal("tables", base, "--reference", reference, "--out", tmp_path / "out")
        assert re.search(difference, error)
        assert not (tmp_path / "out").exists()
    for number, mapping in enumerate(({"scale": 1}, {"scale": 1000})):  # edited between the runs
        source = {"files": {"people.csv": "digest"}, "mapping": mapping}
        write_scored(tmp_path / f"mapped-{number}", rows, source=source)
    paths, reference = (tmp_path / f"mapped-{number}" for number in range(2))
    line = ("tables", paths, "--reference", reference, "--out", tmp_path / "out")
    assert "differ in mapping, so" in refusal(*line)
    inflow = tmp_path / "inflow.csv"
    inflow.write_text("year,age,persons\n2024,30,100\n")
    joined = ("--reference", base, "--inflow", inflow, "--out", tmp_path / "out")
    assert "at another time" in refusal("tables", base, *joined)
