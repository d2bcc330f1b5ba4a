"""The exact forecasters against closed forms, brute force and the process itself.

A forecaster with wrong parameters is detected.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from saga.evaluation.scoring import ensemble_scores
from saga.evaluation.textbook import PROCESSES, Process
from saga.evaluation.textbook.exact_forecaster import ExactForecaster, earnings_by_age
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from saga.evaluation.textbook.gkos_process import FEW_ZEROS, GkosProcess, Mixture
from saga.evaluation.textbook.kalman_filter import KalmanFilter
from saga.evaluation.textbook.particle_filter import GkosFilter
from saga.evaluation.textbook.textbook_register import Cohort
from scipy.special import expit
from scipy.stats import kstest

from saga.arrays import Floats, Ints
from saga.data.origins import Origins, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.errors import InputError, UsageError
from saga.register import RegisterSettings, generate_register
from saga.scores import pit_uniforms

Records = tuple[Floats, Ints]

BORN = 1950
GAUSSIAN, GKOS = GaussianProcess(), GkosProcess()
# The Gaussian process written as a GKOS process: equal components, no growth heterogeneity, no
# non-employment.
GAUSSIAN_AS_GKOS = GkosProcess(
    profile=GAUSSIAN.profile,
    sd_alpha=GAUSSIAN.sd_alpha,
    sd_beta=0.0,
    correlation=0.0,
    rho=GAUSSIAN.rho,
    sd_z0=GAUSSIAN.sd_z0,
    eta=Mixture(0.5, 0.0, (GAUSSIAN.sd_eta, GAUSSIAN.sd_eta)),
    eps=Mixture(0.5, 0.0, (GAUSSIAN.sd_eps, GAUSSIAN.sd_eps)),
    nonemployment=(-60.0, 0.0, 0.0, 0.0),
)


def simulated_rows(process: Process, persons: int, seed: int) -> pl.DataFrame:
    """Rows of persons born in one year, straight from the process."""
    rng = np.random.default_rng(seed)
    cohort = Cohort.at_start(process, BORN, np.arange(persons), rng)
    return cohort.simulate(BORN + process.last_age, rng)


def panel_of(rows: pl.DataFrame) -> Panel:
    return Panel.of(rows, PanelMeta("textbook"))


def make_irregular(rows: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Remove a quarter of the rows and a tenth of the remaining cells."""
    u = np.random.default_rng(seed).random((2, rows.height))
    with_nulls = rows.with_columns(
        pl.when(pl.Series(u[1] > 0.1)).then("earnings").alias("earnings")
    )
    return with_nulls.filter(pl.Series(u[0] > 0.25))


def person_ids(rows: pl.DataFrame) -> NDArray[np.str_]:
    return rows["person_id"].unique().sort().to_numpy().astype(np.str_)


def random_origins(rows: pl.DataFrame, ages: tuple[int, int], seed: int) -> Origins:
    """One origin per person, its age uniform on `ages`."""
    ids = person_ids(rows)
    return Origins(ids, BORN + np.random.default_rng(seed).integers(*ages, size=len(ids)))


def smallest_pit_p_value(
    forecaster: ExactForecaster, process: Process, persons: int, seed: int
) -> float:
    """Smallest p-value of the randomised PIT at h = 1, 5, 10 for irregular records."""
    rows = simulated_rows(process, persons, seed)
    origins = random_origins(rows, (26, 51), seed)
    paths = forecaster.simulate(
        panel_of(make_irregular(rows, seed)), origins, to_horizon=10, n_paths=199, seed=seed
    )
    outcomes = realised_earnings(panel_of(rows), origins, range(1, 11))
    pit = ensemble_scores.pit(paths.earnings, outcomes, pit_uniforms(paths))
    return min(float(kstest(pit[:, h - 1], "uniform").pvalue) for h in (1, 5, 10))


@pytest.fixture(scope="module")
def gaussian_records() -> Records:
    """Six irregular records (6, 40) of the Gaussian process and their origin ages.

    One origin lies before any record.
    """
    earnings = np.full((6, 40), np.nan)
    earnings[:, :36] = simulated_rows(GAUSSIAN, 6, 1)["earnings"].to_numpy().reshape(6, 36)
    unknown = np.random.default_rng(1).random(earnings.shape) < 0.4
    return np.where(unknown, np.nan, earnings), np.array([24, 25, 31, 40, 52, 60])


@pytest.fixture(scope="module")
def gkos_filter() -> GkosFilter:
    return GkosFilter(GKOS)


class TestKalmanFilter:
    """The Gaussian process."""

    def test_equals_conditioning_of_a_dense_normal(self, gaussian_records: Records) -> None:
        """Oracle: the covariance of all logs at 25-70, conditioned by the textbook formula."""
        earnings, origin_ages = gaussian_records
        p, ages = GAUSSIAN, np.arange(25, 71)
        power = p.rho ** np.abs(np.subtract.outer(ages, ages))
        variances = [p.sd_z0**2]
        for _ in ages:
            variances.append(p.rho**2 * variances[-1] + p.sd_eta**2)
        z = np.array(variances[1:])
        cov = p.sd_alpha**2 + power * np.minimum.outer(z, z) + p.sd_eps**2 * np.eye(len(ages))
        forecast = KalmanFilter(p).forecast(earnings, origin_ages, 10)
        for i, age in enumerate(origin_ages):
            past = np.flatnonzero(~np.isnan(earnings[i]) & (np.arange(25, 65) <= age))
            ahead = np.arange(age - 24, age - 14)
            weights = np.linalg.solve(cov[np.ix_(past, past)], cov[np.ix_(past, ahead)]).T
            surprise = np.log(earnings[i, past]) - p.mean_log(ages[past])
            mean = p.mean_log(ages[ahead]) + weights @ surprise
            covariance = cov[np.ix_(ahead, ahead)] - weights @ cov[np.ix_(past, ahead)]
            np.testing.assert_allclose(forecast.mean[i], mean, rtol=1e-10)
            np.testing.assert_allclose(forecast.covariance[i], covariance, atol=1e-12)

    def test_paths_have_the_distribution_in_closed_form(self, gaussian_records: Records) -> None:
        earnings, age = gaussian_records
        rows = pl.DataFrame(
            [
                {"person_id": str(i), "year": BORN + 25 + a, "birth_year": BORN, "earnings": value}
                for i, record in enumerate(earnings)
                for a, value in enumerate(record)
            ],
            schema_overrides={"year": pl.Int32},
        ).with_columns(pl.col("earnings").fill_nan(None))
        origins, n_paths = Origins(np.array([str(i) for i in range(6)]), BORN + age), 20_000
        paths = ExactForecaster(KalmanFilter(GAUSSIAN)).simulate(
            panel_of(rows), origins, to_horizon=4, n_paths=n_paths, seed=2
        )
        exact = KalmanFilter(GAUSSIAN).forecast(earnings, age, 4)
        logs = np.log(paths.earnings.astype(np.float64))
        assert (np.abs(logs.mean(axis=2) - exact.mean) < 4.5 * exact.sd / np.sqrt(n_paths)).all()
        for i in range(6):
            ratio = np.linalg.solve(exact.covariance[i], np.cov(logs[i]))
            tolerance = 6 * np.sqrt(np.linalg.cond(exact.covariance[i]) / n_paths)
            assert np.abs(ratio - np.eye(4)).max() < tolerance

    def test_pit_is_uniform(self) -> None:
        exact = ExactForecaster(KalmanFilter(GAUSSIAN))
        assert smallest_pit_p_value(exact, GAUSSIAN, 1_500, 3) > 0.001

    @pytest.mark.parametrize("wrong", [{"rho": 0.8}, {"sd_eta": 0.3}, {"sd_eps": 0.05}])
    def test_wrong_parameters_are_detected(self, wrong: dict[str, float]) -> None:
        process = GaussianProcess.from_dict({**vars(GAUSSIAN), **wrong})
        forecaster = ExactForecaster(KalmanFilter(process))
        assert smallest_pit_p_value(forecaster, GAUSSIAN, 1_500, 3) < 0.001


class TestParticleFilter:
    """The GKOS process."""

    def test_equals_the_kalman_filter_if_the_process_is_gaussian(self) -> None:
        """35 years with gaps: an independent closed form at the history lengths that matter."""
        rows = make_irregular(simulated_rows(GAUSSIAN, 8, 4), 4)
        origins = random_origins(rows, (26, 61), 4)
        _, ages, earnings = earnings_by_age(panel_of(rows), origins, GAUSSIAN_AS_GKOS)
        mean, covariance = KalmanFilter(GAUSSIAN).posterior(earnings, ages)
        particle_filter = GkosFilter(GAUSSIAN_AS_GKOS)
        for i, age in enumerate(ages):
            posterior = particle_filter.posterior(earnings[i], int(age))
            weight, density = posterior.weight, posterior.density.astype(np.float64)
            alpha, z = posterior.effects[0], density @ posterior.z
            first = np.array([weight @ alpha, weight @ z])
            across = weight @ (alpha * z)
            z_squared = weight @ (density @ posterior.z**2)
            second = np.array([[weight @ alpha**2, across], [across, z_squared]])
            np.testing.assert_allclose(first, mean[i], atol=2e-3)  # in log points
            np.testing.assert_allclose(
                second - np.outer(first, first), covariance[i], rtol=0.01, atol=1e-4
            )

    @pytest.mark.thorough
    @pytest.mark.parametrize("rate", [GKOS.rate, 0.7])
    def test_equals_importance_sampling_by_brute_force(self, rate: float) -> None:
        """A million histories from the process, weighted by the density of the transitory shock.

        With rate 0.7 there are many short spells. Tolerance: 4.5 standard errors of the ratio
        estimate.
        """
        process, n_draws = replace(GKOS, rate=rate), 1_000_000
        particle_filter, rng = GkosFilter(process), np.random.default_rng(5)

        def uniforms(n: int) -> Floats:
            return np.maximum(rng.random((n, n_draws)), 1e-17)

        state = process.start(uniforms(3))
        records = {
            "works": (30.0, 31.0, np.nan),
            "idle": (20.0, 0.0, 24.0),
            "leaves": (26.0, np.nan, 0.0),
        }
        likelihood = {name: np.ones(n_draws) for name in records}
        for t, age in enumerate((25, 26, 27)):
            state, _ = process.step(state, age, uniforms(6))
            idle = rng.random(n_draws) < expit(process.nonemployment_index(age, state[2]))
            spell = np.where(idle, np.minimum(rng.exponential(1 / rate, n_draws), 1.0), 0.0)
            level = process.mean_log(age) + state[0] + state[1] * process.time(age) + state[2]
            for name, record in records.items():
                if record[t] == 0:
                    likelihood[name] *= spell == 1
                elif record[t] > 0:
                    log_weeks = np.log1p(-np.where(spell < 1, spell, 0.0))
                    residual = np.log(record[t] * process.unit) - level - log_weeks
                    likelihood[name] *= (spell < 1) * process.eps.density(residual)
        idle_ahead = expit(process.nonemployment_index(28, process.rho * state[2]))
        for name, record in records.items():
            posterior = particle_filter.posterior(np.array(record) * process.unit, 27)
            z, weight = posterior.z, posterior.weight @ posterior.density.astype(np.float64)
            filtered = {
                "alpha": posterior.weight @ posterior.effects[0],
                "beta": posterior.weight @ posterior.effects[1],
                "z": weight @ z,
                "z squared": weight @ z**2,
                "idle ahead": weight @ expit(process.nonemployment_index(28, process.rho * z)),
            }
            sampled = {
                "alpha": state[0],
                "beta": state[1],
                "z": state[2],
                "z squared": state[2] ** 2,
                "idle ahead": idle_ahead,
            }
            w = likelihood[name]
            for key, values in sampled.items():
                value = w @ values / w.sum()
                error = np.sqrt(np.sum((w * (values - value)) ** 2)) / w.sum()
                assert abs(filtered[key] - value) < 4.5 * error + 1e-4 * abs(value), (name, key)

    @pytest.mark.thorough
    def test_pit_is_uniform(self) -> None:
        exact = ExactForecaster(GkosFilter(GKOS, 150))
        assert smallest_pit_p_value(exact, GKOS, 500, 7) > 0.001

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        "wrong",
        [
            replace(GKOS, nonemployment=FEW_ZEROS.nonemployment),
            replace(GKOS, eps=replace(GKOS.eps, sd=(0.28, 0.2))),
            replace(GKOS, rho=0.8),
        ],
        ids=["nonemployment", "eps", "rho"],
    )
    def test_wrong_parameters_are_detected(self, wrong: GkosProcess) -> None:
        forecaster = ExactForecaster(GkosFilter(wrong, 100))
        assert smallest_pit_p_value(forecaster, GKOS, 500, 7) < 0.001

    def test_a_record_that_the_process_cannot_produce_has_a_forecast(
        self, gkos_filter: GkosFilter
    ) -> None:
        posterior = gkos_filter.posterior(np.array([1e-3, 1e12, 0.0, 1e-3]), 28)
        assert posterior.weight.sum() == pytest.approx(1)


@pytest.mark.parametrize("process", [GAUSSIAN, GKOS], ids=["gaussian", "gkos"])
class TestExactForecaster:
    """Properties of both forecasters."""

    @pytest.fixture
    def forecaster(self, process: Process) -> ExactForecaster:
        if isinstance(process, GaussianProcess):
            return ExactForecaster(KalmanFilter(process))
        return ExactForecaster(GkosFilter(process, 64))

    @pytest.fixture
    def rows(self, process: Process) -> pl.DataFrame:
        return make_irregular(simulated_rows(process, 70, 8), 8)

    def test_numbers_of_a_person_do_not_depend_on_other_persons(
        self, forecaster: ExactForecaster, rows: pl.DataFrame
    ) -> None:
        panel, origins = panel_of(rows), random_origins(rows, (26, 59), 8)
        paths = forecaster.simulate(panel, origins, to_horizon=7, n_paths=20, seed=3)
        selected = np.array([66, 3, 41])
        few = forecaster.simulate(
            panel.only(origins.person_id[selected].tolist()),
            origins.take(selected),
            to_horizon=7,
            n_paths=20,
            seed=3,
        )
        np.testing.assert_array_equal(few.earnings, paths.earnings[selected])
        shorter = forecaster.simulate(panel, origins, to_horizon=4, n_paths=9, seed=3)
        np.testing.assert_array_equal(shorter.earnings, paths.earnings[:, :4, :9])
        other_seed = forecaster.simulate(panel, origins, to_horizon=7, n_paths=20, seed=4)
        assert (other_seed.earnings != paths.earnings).mean() > 0.5

    def test_rows_after_the_origin_are_not_used(
        self, forecaster: ExactForecaster, rows: pl.DataFrame
    ) -> None:
        origins = random_origins(rows, (26, 59), 8)
        before_origin = (
            rows.join(origins.frame(), on="person_id")
            .filter(pl.col("year") <= pl.col("origin"))
            .drop("origin")
        )
        first_rows = rows.group_by("person_id", maintain_order=True).first()
        # A person may have no row before the origin.
        rest = first_rows.join(before_origin, on="person_id", how="anti")
        first, second = (
            forecaster.simulate(panel_of(r), origins, to_horizon=3, n_paths=5, seed=1).earnings
            for r in (rows, pl.concat([before_origin, rest]))
        )
        np.testing.assert_array_equal(first, second)

    def test_errors_name_the_person_and_no_value(
        self, forecaster: ExactForecaster, rows: pl.DataFrame
    ) -> None:
        first_person = rows["person_id"][0]

        def simulate(rows: pl.DataFrame, year: int, person: str = first_person) -> None:
            origins = Origins(np.array([person]), np.array([year]))
            forecaster.simulate(panel_of(rows), origins, to_horizon=1, n_paths=2, seed=0)

        with pytest.raises(InputError, match=f"person {first_person}.*age 24 or later"):
            simulate(rows, BORN + 23)
        with pytest.raises(InputError, match="person unknown"):
            simulate(rows, BORN + 30, "unknown")
        with pytest.raises(InputError, match=f"person {first_person}, year") as error:
            simulate(rows.with_columns(earnings=pl.lit(-123.0)), BORN + 60)
        assert "123" not in str(error.value).replace(first_person, "")


def test_zero_earnings_are_refused_by_a_process_without_zeros() -> None:
    rows = simulated_rows(GAUSSIAN, 1, 1).with_columns(earnings=pl.lit(0.0))
    origins = Origins(np.array([rows["person_id"][0]]), np.array([BORN + 30]))
    forecaster = ExactForecaster(KalmanFilter(GAUSSIAN))
    with pytest.raises(InputError, match="no such earnings"):
        forecaster.simulate(panel_of(rows), origins, to_horizon=1, n_paths=2, seed=0)


def test_the_forecaster_of_a_register_follows_from_its_process(tmp_path: Path) -> None:
    register, process = tmp_path / "gkos", PROCESSES["gkos-few-zeros"]
    generate_register(
        register, RegisterSettings(persons=70, seed=1, first_year=2022, process=process)
    )
    assert ExactForecaster.open(register, particles=16).filter.process == process
    (register / "register.json").write_text(json.dumps({"process": "full"}))
    with pytest.raises(UsageError, match="oracle"):
        ExactForecaster.open(register)
    with pytest.raises(InputError, match="no register"):
        ExactForecaster.open(tmp_path)
