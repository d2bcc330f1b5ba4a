"""Tests of score differences: closed forms, size under the null, and power."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from saga.evaluation.scoring.comparison import (
    BOTH,
    COMPARED,
    FAMILY,
    PERSON,
    SCHEMA,
    YEAR,
    adjust_holm,
    clustered_test,
    compare_models,
    diebold_mariano_test,
    two_way_test,
    verdict_lines,
)
from saga.evaluation.scoring.gap import CLAIRVOYANT
from saga.evaluation.scoring.metrics import CLUSTER, METRICS, metrics_table
from scipy import stats


def test_one_difference_per_person_gives_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2, 1, 80), rng.gamma(2, 1, 80)
    result, oracle = clustered_test(a - b, np.arange(80)), stats.ttest_rel(a, b)
    assert result is not None
    assert (result["t"], result["p"], result["df"]) == pytest.approx(
        (oracle.statistic, oracle.pvalue, oracle.df)
    )


def test_errors_by_family_equal_the_cluster_robust_formula_of_the_regression_on_a_constant() -> (
    None
):
    """Liang and Zeger (1986): (X'X)^-1 (sum over families of X_f' e_f e_f' X_f) (X'X)^-1."""
    rng = np.random.default_rng(5)
    family = rng.integers(0, 30, 200)
    d = rng.normal(0.1, 1, 30)[family] + rng.normal(0, 0.5, 200)
    x = np.ones((200, 1))
    e = d - d.mean()
    bread = np.linalg.inv(x.T @ x)
    meat = sum(
        np.outer(x[family == f].T @ e[family == f], x[family == f].T @ e[family == f])
        for f in range(30)
    )
    families = len(np.unique(family))
    robust = np.sqrt((bread @ meat @ bread)[0, 0] * families / (families - 1))
    result = clustered_test(d, family)
    assert result is not None
    assert (result["se"], result["df"]) == pytest.approx((robust, families - 1))


def _family_scores(
    rng: np.random.Generator, families: int = 40, size: int = 5
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Scores of two equal models whose differences relatives share, and groups with families."""
    n = families * size
    ids = [f"{i:03d}" for i in range(n)]
    shared = np.repeat(rng.normal(0, 1, families), size)
    score = {"saga": rng.normal(5, 1, n), "rival": np.zeros(n)}
    score["rival"] = score["saga"] + shared + rng.normal(0, 0.5, n)
    parts = [
        pl.DataFrame(
            {
                "model": [model] * n,
                "setting": ["in-time"] * n,
                "draw": pl.Series([None] * n, dtype=pl.Int32),
                "person_id": ids,
                "horizon": pl.Series([1] * n, dtype=pl.Int32),
                "p_zero": pl.Series([0.0] * n, dtype=pl.Float32),
                **{name: values if name == "crps_log" else None for name in METRICS},
            },
            schema_overrides=dict.fromkeys(METRICS, pl.Float64),
        )
        for model, values in score.items()
    ]
    groups = pl.DataFrame(
        {
            "setting": ["in-time"] * n,
            "person_id": ids,
            "year": [2000] * n,
            CLUSTER: [f"f{i // size}" for i in range(n)],
        }
    )
    return pl.concat(parts), groups


def test_with_families_the_tests_say_so_and_count_persons_and_families() -> None:
    scores, groups = _family_scores(np.random.default_rng(7))
    row = compare_models(scores.lazy(), groups).filter(metric="crps_log", group="all")
    assert row.select("test", "n", "clusters", "df").row(0) == (FAMILY, 200, 40, 39)
    metrics = metrics_table(scores.lazy(), groups.drop("year"), [1])
    means = metrics.filter(metric="crps_log", model="rival", group="all")
    values = scores.filter(model="rival")["crps_log"].to_numpy()
    sums = (values - values.mean()).reshape(40, 5).sum(axis=1)
    assert means["n"].to_list() == [200]
    assert means["se"].to_list() == pytest.approx([np.sqrt((sums**2).sum() * 40 / 39) / 200])
    alone = metrics_table(scores.lazy(), groups.drop("year", CLUSTER), [1])
    by_person = alone.filter(metric="crps_log", model="rival", group="all")["se"].to_list()[0]
    assert by_person < 0.8 * means["se"].to_list()[0]


def test_two_way_errors_equal_the_formula_written_out() -> None:
    rng = np.random.default_rng(2)
    n, c = 15, 6
    d = rng.normal(size=(n, 1)) + rng.normal(size=(1, c)) + rng.normal(size=(n, c))
    person, future = np.indices((n, c)).reshape(2, -1)
    e = d.ravel() - d.mean()
    total = 0.0
    for same, count in (
        (person[:, None] == person, n),
        (future[:, None] == future, c),
        ((person[:, None] == person) & (future[:, None] == future), -n * c),
    ):
        total += (
            np.sign(count)
            * (np.outer(e, e) * same).sum()
            / d.size**2
            * abs(count)
            / (abs(count) - 1)
        )
    result = two_way_test(d.ravel(), person, future)
    assert result is not None
    assert result["se"] == pytest.approx(np.sqrt(total))
    assert result["df"] == c - 1


def _textbook(series: np.ndarray, horizon: int) -> float:
    """Diebold-Mariano, Newey-West over h - 1 lags, factor of Harvey, Leybourne and Newbold."""
    t, centred = len(series), series - series.mean()
    gamma = [np.sum(centred[k:] * centred[: t - k]) / t for k in range(horizon)]
    variance = gamma[0] + 2 * sum((1 - k / horizon) * gamma[k] for k in range(1, horizon))
    factor = np.sqrt((t + 1 - 2 * horizon + horizon * (horizon - 1) / t) / t)
    return float(factor * series.mean() / np.sqrt(variance / t))


@pytest.mark.parametrize("horizon", [1, 3, 10])
def test_diebold_mariano_equals_the_textbook_for_one_difference_per_year(horizon: int) -> None:
    series = np.random.default_rng(5).normal(0.3, 1, 25).cumsum() / 5
    result = diebold_mariano_test(series, np.arange(1995, 2020), horizon)
    assert result is not None
    assert result["t"] == pytest.approx(_textbook(series, horizon))
    assert result["p"] == pytest.approx(2 * stats.t.sf(abs(result["t"]), 24))


@pytest.mark.parametrize(("horizon", "share"), [(1, 0.01), (2, 0.03), (5, 0.06), (10, 0.09)])
def test_equal_forecasts_whose_errors_overlap_are_rejected_as_often_as_the_page_says(
    horizon: int, share: float
) -> None:
    rng, years = np.random.default_rng(3), np.arange(1990, 2020)
    shocks = rng.standard_normal((2_000, len(years) + horizon - 1))
    rejected = 0
    for row in shocks:
        result = diebold_mariano_test(np.convolve(row, np.ones(horizon), "valid"), years, horizon)
        assert result is not None
        rejected += result["p"] < 0.01
    error = np.sqrt(share * (1 - share) / len(shocks))
    assert rejected / len(shocks) == pytest.approx(share, abs=3 * error)  # docs/how-to/contest.md


def test_too_few_years_give_no_test() -> None:
    d = np.random.default_rng(7).normal(size=19)
    assert diebold_mariano_test(d, np.arange(19), 10) is None
    assert diebold_mariano_test(d, np.arange(19), 9) is not None


def test_holm_adjusts_by_hand_and_rejects_what_the_step_down_procedure_rejects() -> None:
    assert adjust_holm(np.array([0.01, 0.04, 0.03, 0.2])) == pytest.approx([0.04, 0.09, 0.09, 0.2])
    rng = np.random.default_rng(9)
    for _ in range(50):
        p = rng.random(7) ** 3
        for level in (0.01, 0.05, 0.2):
            rejected: set[int] = set()
            for step, i in enumerate(
                np.argsort(p)
            ):  # Holm (1979): stop at the first that is not small enough
                if p[i] > level / (len(p) - step):
                    break
                rejected.add(int(i))
            assert set(np.flatnonzero(adjust_holm(p) <= level).tolist()) == rejected
    with_hole = adjust_holm(np.array([0.01, np.nan, 0.04]))
    assert with_hole[[0, 2]] == pytest.approx([0.02, 0.04])
    assert np.isnan(with_hole[1])


def _scores(gap: float, persons: int = 400) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Scores of saga, a rival `gap` worse and the bound, in-time and forward in six futures."""
    rng = np.random.default_rng(10)
    ids = [f"{i:03d}" for i in range(persons)]
    parts = []
    for setting, draw in [("in-time", None), *(("forward", k) for k in range(6))]:
        for horizon in (1, 5):
            hard = rng.gamma(2, 0.2, persons)  # what makes a person's outcome hard for everybody
            for model, worse in (("saga", 0.0), ("rival", gap), (CLAIRVOYANT, -0.1)):
                values = hard + worse + rng.normal(0, 0.1, persons)
                keys = {
                    "model": model,
                    "setting": setting,
                    "draw": draw,
                    "person_id": ids,
                    "horizon": horizon,
                }
                parts.append(
                    pl.DataFrame(
                        {**keys, **dict.fromkeys(COMPARED, values)},
                        schema_overrides={"draw": pl.Int32},
                    )
                )
    years = rng.integers(1993, 2015, persons)
    groups = [
        pl.DataFrame(
            {
                "setting": setting,
                "person_id": ids,
                "year": year,
                "sex": np.where(np.arange(persons) % 2, "male", "female"),
            }
        )
        for setting, year in (("in-time", years), ("forward", np.full(persons, 2022)))
    ]
    return pl.concat(parts), pl.concat(groups)


def test_the_table_pairs_the_same_persons_and_outcomes() -> None:
    scores, groups = _scores(0.05)
    shuffled = scores.sample(fraction=1, shuffle=True, seed=1)
    table = compare_models(shuffled.lazy(), groups)
    assert table.schema == pl.Schema(SCHEMA)
    assert set(table["model"]) == {"rival", CLAIRVOYANT}
    assert set(table.select("setting", "test").iter_rows()) == {
        ("in-time", PERSON),
        ("in-time", YEAR),
        ("forward", BOTH),
    }
    row = table.filter(
        model="rival",
        setting="in-time",
        horizon=5,
        group="sex=male",
        metric="crps_log",
        test=PERSON,
    ).row(0, named=True)
    wide = scores.filter(setting="in-time", horizon=5).pivot(
        "model", index="person_id", values="crps_log"
    )
    male = wide.join(groups.filter(setting="in-time", sex="male"), on="person_id")
    oracle = stats.ttest_rel(male["rival"], male["saga"])
    assert (row["t"], row["p"], row["n"]) == pytest.approx((oracle.statistic, oracle.pvalue, 200))
    assert row["relative"] == pytest.approx(
        1 - male["saga"].to_numpy().mean() / male["rival"].to_numpy().mean()
    )
    pair = table.filter(
        model="rival", setting="in-time", group="all", metric="crps_log", test=PERSON
    )
    assert pair["p_holm"].to_list() == pytest.approx(adjust_holm(pair["p"].to_numpy()).tolist())


def test_a_score_that_is_missing_on_one_side_does_not_count() -> None:
    scores, groups = _scores(0.05)
    holed = scores.with_columns(
        crps_log=pl.when(pl.col("model") == "rival", pl.col("person_id") < "100")
        .then(None)
        .otherwise("crps_log")
    )
    table = compare_models(holed.lazy(), groups).filter(
        model="rival", metric="crps_log", group="all", test=PERSON
    )
    assert table["n"].to_list() == [300, 300]


def test_verdicts_name_who_is_better_and_leave_the_bound_out() -> None:
    better, same, worse = (
        list(verdict_lines(compare_models(scores.lazy(), groups)).values())
        for scores, groups in map(_scores, (0.05, 0.0, -0.05))
    )
    assert len(better) == 3
    assert all(
        "significantly better (p < .01, Holm) at every horizon than rival." in line
        for line in better
    )
    assert all("saga has no significant lead over rival." in line for line in same)
    assert all("over rival; significantly better than it: rival (h = " in line for line in worse)
    assert not any(CLAIRVOYANT in line for line in better + same)


def test_a_verdict_names_the_horizons_of_a_lead() -> None:
    scores, groups = _scores(0.05)
    table = compare_models(scores.lazy(), groups)
    first = 1
    some = table.with_columns(
        p_holm=pl.when(pl.col("horizon") == first).then("p_holm").otherwise(1.0)
    )
    assert all(
        line.endswith(f"Holm) at some horizons than rival (h = {first}).")
        for line in verdict_lines(some).values()
    )
