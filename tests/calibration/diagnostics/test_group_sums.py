"""Sums of groups: a forecaster without fault is right, one that is 10 % too high is found."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from saga.calibration.diagnostics.group_sums import (
    PathSums,
    predict_by_rule,
    sum_paths,
    tabulate_sums,
)
from saga.calibration.diagnostics.person_results import Cases

from saga.conformal.calibrator import Calibrator
from saga.data.origins import Origins
from saga.model_error import ModelError
from saga.paths import Paths
from tests.panels import panel_of

N = 4_000


def _results(
    rng: np.random.Generator, by_year: float, factor: float = 1.0
) -> dict[int, pl.DataFrame]:
    """Persons whose outcomes are 100 times what is common in the year, and their own part."""
    year = 2001 + np.arange(N) % 20
    common = 1 + by_year * rng.standard_normal(20)[year - 2001]
    frame = pl.DataFrame(
        {
            "person_id": [f"{i:04d}" for i in range(N)],
            "year": year,
            "y": 100 * common * (1 + 0.3 * rng.standard_normal(N)),
            "mean": np.full(N, 100.0 * factor),
        }
    )
    return {1: frame}


def _sums(
    results: dict[int, pl.DataFrame], path_sums: PathSums | None = None, error: float | None = None
) -> tuple[pl.DataFrame, str]:
    """The rows of sums, and the status."""
    cases = Cases.of(results, None, Calibrator(), seed=0, min_persons=10)
    deviations = {"mean": {"everybody": {"1": error or 0.0}}}
    model = None if error is None else ModelError([2000], {"1": 1}, deviations)
    rows, verdicts = tabulate_sums(cases, cases, path_sums or {}, None, model)
    return pl.DataFrame(rows, infer_schema_length=None), verdicts[0].status


def test_a_mean_that_is_wrong_by_ten_per_cent_fails_and_a_right_one_holds() -> None:
    rng = np.random.default_rng(1)
    rows, status = _sums(_results(rng, 0.0))
    assert status == "holds"
    assert abs(rows["size"][0]) < rows["reach"][0]
    rows, status = _sums(_results(rng, 0.0, 1.1))
    assert status == "fails"
    assert rows["size"][0] == pytest.approx(1 / 1.1 - 1, abs=0.02)


def test_persons_of_one_year_are_not_independent() -> None:
    """With 10 % that is common in each of 20 years the error is .1 / sqrt(20), not .3 / sqrt(n)."""
    rng = np.random.default_rng(2)
    found = [_sums(_results(rng, 0.1)) for _ in range(100)]
    errors = np.array([rows["size"][0] for rows, _ in found])
    reach = np.array([rows["reach"][0] for rows, _ in found])
    assert np.mean([status in ("watch", "fails") for _, status in found]) <= 0.05
    # `reach` is 2.8 standard errors or more.
    assert np.sqrt((errors**2).mean()) < reach.mean() / 2.5


def test_bands_of_sums_come_from_joint_paths_and_have_the_error_of_the_model() -> None:
    rng = np.random.default_rng(3)
    results = _results(rng, 0.0)
    economy = 0.05 * rng.standard_normal(400)
    sums = {(1, "all", "all"): N * 100 * (1 + economy)}
    (rows, _), (wider, _) = _sums(results, sums), _sums(results, sums, error=0.05)
    width, with_model = (table["upper_90"][0] - table["lower_90"][0] for table in (rows, wider))
    assert width == pytest.approx(2 * 1.645 * 5, rel=0.15)
    assert with_model == pytest.approx(width * 2**0.5, rel=0.05)
    assert rows["inside"][0] == 1


def _with_groups(results: dict[int, pl.DataFrame]) -> Cases:
    """The persons in twenty groups of 200."""
    groups = pl.DataFrame({"person_id": results[1]["person_id"]}).with_columns(
        part=pl.int_range(N).mod(20).cast(pl.String)
    )
    return Cases.of(results, groups, Calibrator(), seed=0, min_persons=10)


@pytest.mark.parametrize(
    ("everybody", "of_groups", "misses", "expected"),
    [
        (0.05, 0.05, 0, "holds"),
        (0.0005, 0.05, 0, "unclear"),  # the mean is right, and its range is far too narrow
        (0.05, 0.05, 12, "unclear"),  # that of everybody holds, those of groups do not
    ],
)
def test_a_right_mean_holds_only_with_ranges_that_contain_it(
    everybody: float, of_groups: float, misses: int, expected: str
) -> None:
    rng = np.random.default_rng(3)
    results = _results(rng, 0.0)
    cases = _with_groups(results)
    spread = {(1, "all", "all"): N * (101 + 100 * everybody * rng.standard_normal(400))}
    for number in range(20):
        around = 100.0 + 30 * (number < misses)
        economy = 100 * of_groups * rng.standard_normal(400)
        spread[1, "part", str(number)] = 200 * (around + economy)
    rows, (verdict,) = tabulate_sums(cases, cases, spread, None, None)
    assert verdict.status == expected
    missed = [row for row in rows if not row["inside"]]
    assert not any(row["status"] == "holds" for row in missed)


def test_ranges_of_a_right_forecaster_seldom_take_a_verdict_away() -> None:
    """All groups have one economy, so all of them miss together in a tenth of the worlds."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(60):
        results = _results(rng, 0.0)
        cases, economy = _with_groups(results), 0.03 * rng.standard_normal(401)
        of_world = results[1].with_columns(
            pl.col("y") * (1 + economy[-1]), mean=100 * (1 + economy[-1])
        )
        cases = _with_groups({1: of_world})
        sums = {(1, "part", str(k)): 200 * 100 * (1 + economy[:-1]) for k in range(20)}
        sums[1, "all", "all"] = N * 100 * (1 + economy[:-1])
        found.append(tabulate_sums(cases, cases, sums, None, None)[1][0].status)
    # Persons' own parts add some: the mean of 200 has an error of 2 %, beside 3 % of the economy.
    assert found.count("unclear") <= 60 * 0.1 + 3 * (60 * 0.1 * 0.9) ** 0.5


def test_sums_on_paths_are_those_of_persons_with_an_outcome() -> None:
    earnings = np.arange(24.0, dtype=np.float32).reshape(4, 2, 3)
    ids, years = np.array(["a", "b", "c", "d"]), np.full(4, 2000)
    paths = Paths(ids, years - 40, years, earnings, recalibrated=True)
    outcomes = np.array([[1, np.nan], [1, 1], [np.nan, 1], [1, 1.0]])
    groups = pl.DataFrame({"person_id": ids.tolist(), "sex": ["x", "x", "y", None]})
    sums = sum_paths(groups, paths, outcomes, [1, 2, 5])
    assert set(sums) == {(h, "all", "all") for h in (1, 2)} | {
        (1, "sex", "x"),
        (1, "sex", ""),
        (2, "sex", "x"),
        (2, "sex", "y"),
        (2, "sex", ""),
    }
    assert sums[1, "all", "all"].tolist() == (earnings[[0, 1, 3], 0]).sum(0).tolist()
    assert sums[2, "sex", "x"].tolist() == earnings[1, 1].tolist()


def test_the_rule_knows_nothing_after_an_origin() -> None:
    rows = [
        (f"{i:02d}", year, 1960, 100.0 if year <= 2004 else 1e6, "male")
        for i in range(20)
        for year in range(2000, 2010)
    ]
    panel = panel_of(rows, "sex")
    origins = Origins(np.array(["00", "01"]), np.array([2004, 2003]))
    ruled = predict_by_rule(panel, origins, [1, 2])
    assert ruled.sort("person_id")["person_id"].to_list() == ["00", "01"]
    assert ruled.select("1", "2").to_numpy() == pytest.approx(100)
