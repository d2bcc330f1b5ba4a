"""The estimated GKOS process: reference figures, moments, and known parameters recovered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.baselines.gkos.gkos import SLACK, Gkos
from saga.evaluation.baselines.gkos.gkos_moments import AGES, FIRST, RobustMoments
from saga.evaluation.baselines.gkos.gkos_profiles import Profiles
from saga.evaluation.baselines.gkos.gkos_records import (
    MIN_GROUP_SIZE,
    LowEarnings,
    death_hazard,
    education_prospects,
    pool_small_groups,
)
from saga.evaluation.baselines.gkos.gkos_smm import (
    SHOCKS,
    CareerDraws,
    Effort,
    Parameter,
    ProfiledProcess,
    Weights,
    intercepts_for,
    process_of,
    process_values,
    search,
)
from saga.evaluation.baselines.person_states import CODES, known_states
from saga.evaluation.scoring.ensemble_scores import crps_log, pit
from saga.evaluation.textbook.exact_forecaster import ExactForecaster
from saga.evaluation.textbook.gkos_process import FEW_ZEROS, GkosProcess
from saga.evaluation.textbook.particle_filter import GkosFilter
from scipy import stats
from scipy.special import expit

from saga.data.origins import draw_origins, history, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.register import RegisterSettings, generate_register
from saga.scores import pit_uniforms

MINIMUM = 24_150.0
TRUTH = replace(FEW_ZEROS, first_age=FIRST, last_age=64)


def seen(earnings: np.ndarray, seed: int) -> np.ndarray:
    """The records with a third of the years unknown."""
    return np.where(np.random.default_rng(seed).random(earnings.shape) < 1 / 3, np.nan, earnings)


@pytest.fixture(scope="module")
def careers() -> np.ndarray:
    """Records (1500, 45) with gaps."""
    return seen(CareerDraws(1_500, 1).careers(TRUTH), 1)


class TestSimulator:
    def test_a_profiled_process_with_the_quadratic_and_the_line_is_the_process(self) -> None:
        t = TRUTH.time(AGES)
        same = ProfiledProcess.of(
            TRUTH, TRUTH.mean_log(AGES), TRUTH.nonemployment[0] + TRUTH.nonemployment[1] * t
        )
        draws = CareerDraws(200, 4)
        np.testing.assert_allclose(draws.careers(same), draws.careers(TRUTH), rtol=1e-12)
        assert same.mean_log(70) == same.mean_log(64)

    def test_intercepts_solve_their_equation(self) -> None:
        slope = np.random.default_rng(0).normal(0, 3, (4, 7, 100))
        share = np.random.default_rng(1).uniform(0.01, 0.9, (4, 7))
        result = intercepts_for(share, slope)
        np.testing.assert_allclose(expit(result[..., None] + slope).mean(axis=-1), share, atol=1e-9)

    def test_processes_match_the_profiles(self) -> None:
        """Shifted careers have the zeros and mean logs of the profiles, in both groups."""
        draws = CareerDraws(8_000, 5)
        group = np.repeat([0, 1], 4_000)
        record = np.concatenate(
            [
                draws.careers(TRUTH, slice(0, 4_000)),
                3 * draws.careers(GkosProcess(first_age=FIRST), slice(4_000, 8_000)),
            ]
        )
        record = np.where(record < MINIMUM, 0.0, record)
        profiles = Profiles.of(record, group, MINIMUM)
        slices = [slice(0, 4_000), slice(4_000, 8_000)]
        for e, (process, simulated) in enumerate(
            profiles.processes(process_values(TRUTH), CareerDraws(8_000, 6), slices)
        ):
            lifted, levels = profiles.shift(e, simulated)
            again = Profiles.of(lifted, np.zeros(4_000, dtype=int), MINIMUM)
            assert np.abs(again.zeros[0] - profiles.zeros[e]).max() < 6 * np.sqrt(0.25 / 4_000)
            np.testing.assert_allclose(again.level[0], profiles.level[e], atol=0.05)
            assert process.levels == (0.0,) * len(AGES)
            np.testing.assert_allclose(lifted, simulated * np.exp(levels))


class TestMoments:
    def test_the_robust_moments_against_a_direct_computation(self, careers: np.ndarray) -> None:
        """One bin written out: out of work for the second year at 40-49, and levels at 30-34."""
        record = np.tile(
            np.where(careers < MINIMUM, 0.0, careers), (3, 1)
        )  # three times, so that the bin has enough persons
        moments = RobustMoments(record, MINIMUM)
        full = np.full(len(moments.selected), np.nan)
        full[moments.selected] = moments.of(record)
        later = []
        for person in record:
            for age in range(40, 50):
                before, current, then = (person[a - FIRST] for a in (age - 1, age, age + 5))
                if current == 0 and before == 0 and not np.isnan(then):
                    later.append(then)
        outcomes = np.array(later)
        assert len(outcomes) >= 200
        position = ((1 * 4 + 2) * 7 + 0) * 6  # second horizon, third decade, out again
        points = np.quantile(outcomes[outcomes > 0], RobustMoments.QUANTILES)
        direct = [(outcomes == 0).mean(), *((outcomes <= p).mean() for p in points)]
        np.testing.assert_allclose(full[position : position + 6], direct, atol=1.5 / len(outcomes))
        logs = np.log(record[:, 10:15][record[:, 10:15] > 0] / MINIMUM)
        np.testing.assert_allclose(
            full[-18:].reshape(9, 2)[2], [logs.mean(), logs.var()], rtol=1e-9
        )

    def test_sums_of_blocks_add_up_and_do_not_depend_on_the_order_of_persons(
        self, careers: np.ndarray
    ) -> None:
        moments = RobustMoments(careers, MINIMUM)
        block = np.arange(len(careers)) % 7
        np.testing.assert_allclose(
            moments.sums(careers, block, 7).sum(axis=0),
            moments.sums(careers)[0],
            rtol=1e-9,
            atol=1e-9,
        )
        np.testing.assert_allclose(
            moments.of(careers[::-1]), moments.of(careers), rtol=1e-6, atol=1e-9
        )


class TestSearch:
    def test_the_search_finds_the_minimum_of_a_known_problem(self) -> None:
        """Two minima; the better one is found, with the standard errors of linear least squares."""
        data = np.array([2.0, 4.0, 0.5])
        weights = Weights(data, np.full(3, 0.1), np.diag([0.01, 0.01, 0.01]))
        ranges = {"a": Parameter(-3.0, 3.0), "b": Parameter(0.01, 10.0, log=True)}

        def simulate(v: dict[str, float]) -> np.ndarray:
            return np.array([v["a"], v["a"] ** 2, v["b"]])

        fit = search(
            ranges,
            simulate,
            weights,
            starts=[{"a": -2.0, "b": 5.0}],
            ratio=0.0,
            seed=0,
            effort=Effort(sobol=5, polished=4, rounds=30),
        )
        assert fit.values["a"] == pytest.approx(2.0, abs=1e-3)
        assert fit.values["b"] == pytest.approx(0.5, abs=1e-3)
        assert fit.objective < 1e-3
        assert fit.errors["a"] == pytest.approx(0.1 / np.sqrt(1 + 16), rel=0.1)
        assert fit.errors["b"] == pytest.approx(0.1, rel=0.1)

    def test_the_truth_fits_and_a_wrong_process_does_not(self, careers: np.ndarray) -> None:
        """The weighted distance is about the number of moments only at the true parameters."""
        moments = RobustMoments(careers, MINIMUM)
        weights = Weights.bootstrap(moments, careers, 6_000, seed=0, slack=SLACK)
        draws = CareerDraws(6_000, 9)
        mask = np.isfinite(np.resize(careers, (6_000, len(AGES))))

        def distance(process: GkosProcess) -> float:
            return float(
                np.square(
                    (moments.of(np.where(mask, draws.careers(process), np.nan)) - weights.data)
                    / weights.scale
                ).sum()
            )

        true = distance(TRUTH)
        # Moments are correlated, so the spread exceeds that of chi square.
        assert true < 3 * len(weights.data)
        for wrong in ({"rho": 0.8}, {"sd_alpha": 0.9}, {"eps": replace(TRUTH.eps, sd=(0.6, 0.2))}):
            assert distance(replace(TRUTH, **wrong)) > 3 * true

    def test_fractions_of_a_range_are_inverted(self) -> None:
        values = process_values(TRUTH)
        assert process_values(process_of(values, TRUTH.unit)) == values
        for name, parameter in SHOCKS.items():
            inside = parameter.at(0.3)
            assert parameter.fraction(inside) == pytest.approx(0.3), name
        assert process_of(values, TRUTH.unit) == TRUTH


def panel_of(frame: pl.DataFrame) -> Panel:
    return Panel.of(
        frame.with_columns(pl.col("year", "birth_year").cast(pl.Int32)), PanelMeta("small")
    )


class TestSurroundings:
    def test_deaths_are_counted_by_sex_and_age(self) -> None:
        """Ten women of 40-44; one dies at 43, one emigrates."""
        rows = [
            {
                "person_id": str(i), "year": 2000 + k, "birth_year": 1960, "earnings": 1e5,
                "sex": "female", "exit_year": {0: 2003, 1: 2003}.get(i),
                "exit_reason": {0: "dead", 1: "emigrated"}.get(i),
            }
            for i in range(10)
            for k in range(3 if i < 2 else 5)
        ]  # fmt: skip
        panel = panel_of(pl.DataFrame(rows, schema_overrides={"exit_year": pl.Int32}))
        hazard = death_hazard(panel, known_states(panel))
        female = CODES["sex"].index("female") + 1
        np.testing.assert_allclose(hazard[female, 40 - FIRST : 45 - FIRST], 1 / 46)
        assert hazard.sum() == pytest.approx(5 / 46)

    def test_prospects_are_shares_of_final_education(self) -> None:
        rows = [
            {
                "person_id": f"{i:02d}",
                "year": 1980 + age,
                "birth_year": 1980,
                "earnings": 1e5,
                "sex": "male",
                "education_level": level,
            }
            for i in range(10)
            for age, level in (
                (20, "upper_secondary"),
                (30, "long_tertiary" if i < 4 else "upper_secondary"),
            )
        ]
        prospects = education_prospects(known_states(panel_of(pl.DataFrame(rows))))
        male, schools = CODES["sex"].index("male") + 1, CODES["education_level"]
        upper, long = schools.index("upper_secondary") + 1, schools.index("long_tertiary") + 1
        assert prospects[male, 0, upper, long] == pytest.approx(0.4, abs=0.001)
        assert prospects[male, 10, long, long] == pytest.approx(1.0)
        assert prospects[male, 30, long, long] == 1.0
        np.testing.assert_allclose(prospects.sum(axis=-1), 1.0)

    def test_small_earnings_are_as_frequent_and_as_large_as_in_the_panel(self) -> None:
        rng = np.random.default_rng(0)
        earned = np.where(rng.random(4_000) < 0.3, rng.uniform(0, MINIMUM, 4_000), 0.0)
        states = pl.DataFrame({"age": np.full(4_000, 30), "earnings": earned})
        futures = np.zeros((50, 4, 50), dtype=np.float32)
        futures[:, 0] = 1e6
        futures[:, 1] = np.nan
        LowEarnings.of(states, MINIMUM).add_to(
            futures, np.full((50, 4), 30 - FIRST), rng.random(futures.shape)
        )
        assert (futures[:, 0] == 1e6).all()
        assert np.isnan(futures[:, 1]).all()
        out = futures[:, 2:]
        assert (out > 0).mean() == pytest.approx(
            (earned > 0).mean(), abs=4 * np.sqrt(0.21 / out.size)
        )
        assert stats.kstest(out[out > 0], earned[earned > 0]).pvalue > 0.001

    def test_small_groups_join_the_largest(self) -> None:
        codes = np.repeat([0, 1, 2, 3], [MIN_GROUP_SIZE - 1, MIN_GROUP_SIZE, 3 * MIN_GROUP_SIZE, 5])
        groups = pool_small_groups(codes, 5)
        assert groups[1] != groups[2]
        assert groups[0] == groups[2] == groups[3] == groups[4]
        assert set(pool_small_groups(np.zeros(10, dtype=int), 3).tolist()) == {0}


@pytest.fixture(scope="module")
def register(tmp_path_factory: pytest.TempPathFactory) -> Panel:
    """6,000 persons of the process with one zero in ten, in the years 1990-2022."""
    out: Path = tmp_path_factory.mktemp("gkos")
    generate_register(out, RegisterSettings(persons=6_000, seed=3, process=FEW_ZEROS))
    return read_panel(out)


@pytest.fixture(scope="module")
def fitted(register: Panel) -> Gkos:
    return Gkos().fit(register.only(persons_of(register, "train")), seed=0)


def statistics_of(process: GkosProcess) -> dict[str, float]:
    """Statistics of earnings at 40 and of their changes, which data identify well."""
    careers = CareerDraws(40_000, 17).careers(process)
    careers = np.where(careers < MINIMUM, 0.0, careers)
    at = {age: careers[:, age - FIRST] for age in (40, 41, 45, 55)}
    log = {age: np.log(np.where(y > 0, y, np.nan)) for age, y in at.items()}
    change = log[41] - log[40]
    change = change[np.isfinite(change)]
    both = np.isfinite(log[45] + log[55])
    return {
        "zeros at 40": (at[40] == 0).mean(),
        "zeros at 41 after one at 40": (at[41][at[40] == 0] == 0).mean(),
        "zeros at 45 after one at 40": (at[45][at[40] == 0] == 0).mean(),
        "sd of logs at 40": np.nanstd(log[40]),
        "correlation of logs at 45 and 55": np.corrcoef(log[45][both], log[55][both])[0, 1],
        "P90 - P10 of change": np.diff(np.quantile(change, (0.1, 0.9)))[0],
        "P75 - P25 of change": np.diff(np.quantile(change, (0.25, 0.75)))[0],
    }


@pytest.mark.thorough
class TestKnownTruth:
    """The process generates the register: estimates recover it, forecasts are nearly exact."""

    def test_the_estimated_process_has_the_true_distribution(self, fitted: Gkos) -> None:
        """Tolerances: 4 standard errors of 2,500 persons per age, plus the slack of the fit."""
        true, result = (
            statistics_of(TRUTH),
            statistics_of(fitted.processes[1]),
        )  # the process from age 30 on
        for name, value in true.items():
            count = 250 if "after" in name else 2_500
            spread = (
                np.sqrt(value * (1 - value) / count)
                if "zeros" in name
                else value / np.sqrt(2 * count) + 0.01
            )
            assert result[name] == pytest.approx(value, abs=4 * spread + 0.02), name

    def test_forecasts_are_calibrated_and_nearly_exact(self, register: Panel, fitted: Gkos) -> None:
        test = register.only(persons_of(register, "test"))
        origins = draw_origins(test, max_horizon=10, seed=0)
        past, outcomes = history(test, origins), realised_earnings(test, origins, [1, 5, 10])
        columns = [0, 4, 9]
        exact = ExactForecaster(GkosFilter(FEW_ZEROS, 125)).simulate(
            past, origins, to_horizon=10, n_paths=199, seed=0
        )
        forecast = fitted.simulate(past, origins, to_horizon=10, n_paths=199, seed=0)
        u = pit(forecast.earnings[:, columns], outcomes, pit_uniforms(forecast)[:, columns])
        score, bound = (
            crps_log(forecast.earnings[:, columns], outcomes),
            crps_log(exact.earnings[:, columns], outcomes),
        )
        for k in range(3):
            seen_ = np.isfinite(u[:, k])
            assert stats.kstest(u[seen_, k], "uniform").pvalue > 0.001
            worse = (score - bound)[seen_, k]
            assert worse.mean() < 0.05 * bound[seen_, k].mean() + 4 * worse.std() / np.sqrt(
                len(worse)
            )
        # The same forecaster with another process than the register's is not calibrated.
        fitted.forecasters = [
            ExactForecaster(GkosFilter(replace(process, rho=0.6), 125))
            for process in fitted.processes
        ]
        wrong = fitted.simulate(past, origins, to_horizon=10, n_paths=199, seed=0)
        u = pit(wrong.earnings[:, columns], outcomes, pit_uniforms(wrong)[:, columns])
        assert (
            min(stats.kstest(u[np.isfinite(u[:, k]), k], "uniform").pvalue for k in range(3))
            < 0.001
        )
