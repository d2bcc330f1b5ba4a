"""The cross-section: statistics equal brute force, true paths hold, and drifting paths fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from saga.evaluation.textbook import PROCESSES
from saga.evaluation.textbook.exact_forecaster import ExactForecaster
from scipy.stats import spearmanr

from saga.data.reading import read_panel
from saga.errors import InputError
from saga.macro.history import log_wage_index, sweden
from saga.macro.process import MacroProcess
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from studies.cross_section import (
    EVERYBODY,
    MOBILITY,
    FollowedPersons,
    compare,
    cross_sections,
    differences_markdown,
    follow_persons,
    gini,
    judge,
    simulated_sections,
    true_sections,
    true_wages,
)
from studies.unemployment_response import (
    conditioned_sections,
    responses,
    true_scenarios,
    true_unemployment,
)

YEARS, DRAWS, PATHS = 6, 10, 16


@pytest.fixture(scope="module")
def register(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Gaussian register with true futures; its exact forecaster is the truth itself."""
    out = tmp_path_factory.mktemp("cross") / "register"
    generate_register(
        out,
        RegisterSettings(
            persons=1_500,
            seed=3,
            future_to=2022 + YEARS,
            future_draws=DRAWS,
            process=replace(PROCESSES["gaussian"], last_age=64),
        ),
    )
    return out


@pytest.fixture(scope="module")
def persons(register: Path) -> FollowedPersons:
    return follow_persons(read_panel(register), trained_on=None, n_persons=500)


@pytest.fixture(scope="module")
def paths(register: Path, persons: FollowedPersons) -> NDArray[np.float32]:
    return (
        ExactForecaster.open(register)
        .simulate(persons.past, persons.origins, to_horizon=YEARS, n_paths=PATHS, seed=1)
        .earnings
    )


@pytest.fixture(scope="module")
def truth(register: Path, persons: FollowedPersons) -> pl.DataFrame:
    return true_sections(persons, register, YEARS)


def test_gini_is_half_the_mean_difference_over_the_mean() -> None:
    x = np.random.default_rng(0).lognormal(size=200)
    assert gini(x) == pytest.approx(np.abs(x[:, None] - x).mean() / (2 * x.mean()))
    assert gini(np.full(5, 3.0)) == pytest.approx(0.0)
    assert gini(np.array([0.0, 0.0, 0.0, 1.0])) == pytest.approx(0.75)
    assert np.isnan(gini(np.zeros(3)))


@pytest.mark.thorough
def test_a_cross_section_counts_the_right_persons(persons: FollowedPersons) -> None:
    rng = np.random.default_rng(1)
    future = rng.lognormal(12.5, 0.5, (len(persons.origins), MOBILITY + 1))
    future[:100] = 0.0
    future[100:150] = np.nan
    statistics = {
        (row["year"], row["statistic"]): row["value"]
        for row in cross_sections(persons, future)
        if row["group"] == EVERYBODY
    }
    young = persons.origins.year - persons.born + MOBILITY <= 64
    y = future[young, MOBILITY - 1]
    observed = np.isfinite(y)
    assert statistics[MOBILITY, "zero"] == pytest.approx((y[observed] == 0).mean())
    assert statistics[MOBILITY, "p50"] == pytest.approx(np.median(y[y > 0]))
    both = observed & np.isfinite(persons.origin_earnings[young])
    assert statistics[MOBILITY, "mobility"] == pytest.approx(
        spearmanr(y[both], persons.origin_earnings[young][both]).statistic
    )
    assert (MOBILITY - 1, "mobility") not in statistics
    assert (MOBILITY, "zero_women_20_34") not in statistics, "the textbook register has no sexes"
    two = future[np.flatnonzero(persons.origins.year - persons.born + 2 <= 64), :2]
    working = two[(np.nan_to_num(two) >= 24_150).all(axis=1)]
    assert statistics[2, "volatility"] == pytest.approx(np.log(working[:, 1] / working[:, 0]).std())


@pytest.mark.thorough
def test_the_true_process_does_not_drift(
    truth: pl.DataFrame, persons: FollowedPersons, paths: NDArray[np.float32]
) -> None:
    table = compare(pl.concat([simulated_sections(persons, paths), truth]))
    assert table["year"].max() == YEARS
    # Over a hundred differences, t-distributed with some ten degrees of freedom.
    assert (table["difference"].abs() <= 4.5 * table["se"]).all()
    judged = judge(table)
    assert set(judged["verdict"]) <= {"holds", "unclear"}
    assert (judged["verdict"] == "holds").sum() >= judged.height - 2
    assert (
        ((judged["sd_ratio"] > 0.6) & (judged["sd_ratio"] < 1.6))
        .filter(judged["statistic"] != "zero")
        .all()
    )


def _too_high(x: NDArray[np.float64]) -> NDArray[np.float64]:
    grown: NDArray[np.float64] = x * np.exp(0.04 * np.arange(1, YEARS + 1))[:, None]
    return grown


def _too_wide(x: NDArray[np.float64]) -> NDArray[np.float64]:
    centre = np.nanmean(np.log(x), axis=0, keepdims=True)
    wider: NDArray[np.float64] = np.exp(
        centre + (np.log(x) - centre) * np.linspace(1, 1.6, YEARS)[:, None]
    )
    return wider


def _shuffled(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Earnings shuffled among living persons each year: cross-sections stay the same."""
    rng, mixed = np.random.default_rng(0), x.copy()
    for h in range(x.shape[1]):
        inside = np.flatnonzero(np.isfinite(x[:, h, 0]))
        mixed[inside, h] = x[rng.permutation(inside), h]
    return mixed


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("broken", "exposed"),
    [
        (_too_high, {"mean", "p50"}),
        (_too_wide, {"gini", "p90_p50"}),
        (_shuffled, {"volatility", "mobility"}),
    ],
)
def test_drifting_paths_fail(
    truth: pl.DataFrame,
    persons: FollowedPersons,
    paths: NDArray[np.float32],
    broken: Any,
    exposed: set[str],
) -> None:
    judged = judge(
        compare(pl.concat([simulated_sections(persons, broken(paths.astype(np.float64))), truth]))
    )
    failed = set(judged.filter(verdict="fails")["statistic"])
    assert exposed <= failed
    if broken is _shuffled:
        assert not {"gini", "p50", "zero"} & failed


@pytest.mark.thorough
def test_the_wage_index_is_compared_with_the_true_one(
    register: Path, truth: pl.DataFrame, persons: FollowedPersons, paths: NDArray[np.float32]
) -> None:
    macro = (
        pl.read_parquet(register / "future" / "macro.parquet")
        .filter(pl.col("draw") == 1)
        .sort("year")
    )
    assert true_wages(register)[1] == pytest.approx(
        np.cumprod(1 + macro["real_wage_growth"].to_numpy())
    )
    growth = MacroProcess.fit(sweden()).draw(0, PATHS, 2022, 2022 + YEARS)[..., 1]
    table = compare(
        pl.concat([simulated_sections(persons, paths, wages=np.exp(log_wage_index(growth))), truth])
    ).filter(statistic="wages")
    assert table["year"].to_list() == list(range(1, YEARS + 1))
    assert (table["mean"] > 0.7).all()


@pytest.mark.thorough
def test_responses_to_unemployment_are_compared_with_the_truth(
    register: Path, truth: pl.DataFrame, persons: FollowedPersons, paths: NDArray[np.float32]
) -> None:
    """A textbook process ignores macro, so model and truth have no response."""
    sections = conditioned_sections(persons, dict.fromkeys(true_scenarios(register), paths))
    assert sections["future"].unique().to_list() == sorted(true_scenarios(register))
    table = responses(
        pl.concat([sections, truth.select(sections.columns)]),
        true_unemployment(register),
        years=(1, 2),
    )
    assert table.height == 6
    assert (table["slope"].abs() < 1e-12).all()  # the same paths in every macro future
    # t with 8 degrees of freedom; nobody has zeros
    assert ((table["difference"] / table["se_difference"]).fill_nan(0.0).abs() < 6).all()


@pytest.mark.thorough
def test_a_paired_difference_has_no_error_of_the_shared_macro_future(
    truth: pl.DataFrame, persons: FollowedPersons, paths: NDArray[np.float32]
) -> None:
    """The same error in each future has no standard error, however different the futures are."""
    gini = pl.col("statistic") == "gini"
    model = truth.with_columns(
        source=pl.lit("model"),
        value=pl.when(gini).then(pl.col("value") + 0.1).otherwise(pl.col("value")),
    )
    paired, apart = (
        compare(pl.concat([model, truth]), paired=pair).filter(gini) for pair in (True, False)
    )
    assert paired["difference"].to_numpy() == pytest.approx(0.1)
    assert paired["se"].to_numpy() == pytest.approx(0.0, abs=1e-12)
    assert apart["se"].to_numpy() == pytest.approx(
        apart["sd_true"].to_numpy() * np.sqrt(2 / apart["futures"].to_numpy())
    )
    assert "+0.100 ± 0.000" in differences_markdown(judge(paired), paired, (1, 2))
    # Futures of another process share nothing with the true ones: pairs change nothing.
    other = simulated_sections(persons, paths).filter(pl.col("future") < truth["future"].n_unique())
    both = pl.concat([other.with_columns(future=pl.col("future") + truth["future"].min()), truth])
    median = pl.col("statistic") == "p50"  # nobody has zeros here
    ratio = compare(both, paired=True).filter(median)["se"] / compare(both).filter(median)["se"]
    assert ratio.mean() == pytest.approx(1.0, abs=0.35)


@pytest.mark.thorough
def test_only_test_persons_are_followed_on_the_training_register(register: Path) -> None:
    panel = read_panel(register)
    everybody, test_persons = (
        follow_persons(panel, trained_on=name).origins.person_id
        for name in (None, panel.meta.panel_id)
    )
    assert set(test_persons) < set(everybody)
    assert len(test_persons) == pytest.approx(0.1 * len(everybody), rel=0.4)
    with pytest.raises(InputError, match="nobody to follow"):
        follow_persons(
            panel.with_frame(panel.frame.filter(pl.col("year") - pl.col("birth_year") > 60)),
            trained_on=None,
        )
