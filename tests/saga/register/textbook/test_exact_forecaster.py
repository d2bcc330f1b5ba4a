"""The exact forecasters against closed forms, brute force and the process itself; a wrong one is found out."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from scipy.stats import kstest

from evaluation.contest import Contest, ContestOptions
from evaluation.contestants import BaselineContestant
from evaluation.protocol import Baseline
from saga import scores
from saga.data.origins import Origins, realised_earnings
from saga.data.panel import Panel, PanelMeta
from saga.data.reading import read_panel
from saga.errors import InputError, UsageError
from saga.register import RegisterSettings, generate_register
from saga.register.textbook.exact_forecaster import ExactForecaster, exact_forecaster, records
from saga.register.textbook.gaussian_ar1 import GaussianProcess
from saga.register.textbook.gkos_process import GkosProcess, Mixture
from saga.register.textbook.kalman_filter import KalmanFilter
from saga.register.textbook.particle_filter import GkosFilter
from saga.register.textbook.textbook_register import PROCESSES, Cohort, Process

BORN = 1950
GAUSSIAN, GKOS = GaussianProcess(), GkosProcess()
# The Gaussian process written as a GKOS process: equal components, no growth heterogeneity, no non-employment.
SAME = GkosProcess(
    profile=GAUSSIAN.profile, sd_alpha=GAUSSIAN.sd_alpha, sd_beta=0.0, correlation=0.0, rho=GAUSSIAN.rho, sd_z0=GAUSSIAN.sd_z0,
    eta=Mixture(0.5, 0.0, (GAUSSIAN.sd_eta, GAUSSIAN.sd_eta)), eps=Mixture(0.5, 0.0, (GAUSSIAN.sd_eps, GAUSSIAN.sd_eps)),
    nonemployment=(-60.0, 0.0, 0.0, 0.0),
)  # fmt: skip


def people(process: Process, persons: int, seed: int) -> pl.DataFrame:
    """Rows of persons born in one year, straight from the law."""
    rng = np.random.default_rng(seed)
    return Cohort.found(process, BORN, np.arange(persons), rng).live(BORN + process.last_age, rng)


def panel_of(rows: pl.DataFrame) -> Panel:
    return Panel.of(rows, PanelMeta("textbook"))


def irregular(rows: pl.DataFrame, seed: int) -> pl.DataFrame:
    """A quarter of the rows gone and a tenth of the remaining cells unknown."""
    u = np.random.default_rng(seed).random((2, rows.height))
    kept = rows.with_columns(pl.when(pl.Series(u[1] > 0.1)).then("earnings").alias("earnings"))
    return kept.filter(pl.Series(u[0] > 0.25))


def ages_drawn(rows: pl.DataFrame, ages: tuple[int, int], seed: int) -> Origins:
    """An origin a person, its age uniform on `ages`."""
    ids = rows["person_id"].unique().sort().to_list()
    return Origins(np.array(ids), BORN + np.random.default_rng(seed).integers(*ages, size=len(ids)))


def pit_p_values(
    forecaster: ExactForecaster, process: Process, persons: int, seed: int
) -> list[float]:
    """p-values of the randomised PIT at h = 1, 5, 10 for irregular records of `process`."""
    rows = people(process, persons, seed)
    origins = ages_drawn(rows, (26, 51), seed)
    paths = forecaster.simulate(
        panel_of(irregular(rows, seed)), origins, to_horizon=10, n_paths=199, seed=seed
    )
    pit = scores.pit(
        paths.earnings,
        realised_earnings(panel_of(rows), origins, range(1, 11)),
        scores.pit_uniforms(paths),
    )
    return [float(kstest(pit[:, h - 1], "uniform").pvalue) for h in (1, 5, 10)]


@pytest.fixture(scope="module")
def seen() -> tuple[np.ndarray, np.ndarray]:
    """Six irregular records (6, 40) of the Gaussian process and their origin ages, one before any record."""
    earnings = np.full((6, 40), np.nan)
    earnings[:, :36] = people(GAUSSIAN, 6, 1)["earnings"].to_numpy().reshape(6, 36)
    hidden = np.random.default_rng(1).random(earnings.shape) < 0.4
    return np.where(hidden, np.nan, earnings), np.array([24, 25, 31, 40, 52, 60])


@pytest.fixture(scope="module")
def filter_() -> GkosFilter:
    return GkosFilter(GKOS)


class TestKalman:
    """The Gaussian process."""

    def test_equals_conditioning_a_dense_normal(self, seen):
        """Oracle: the covariance of all logs, ages 25-70, conditioned by the textbook formula."""
        earnings, age = seen
        p, ages = GAUSSIAN, np.arange(25, 71)
        power = p.rho ** np.abs(np.subtract.outer(ages, ages))
        z = [p.sd_z0**2]
        for _ in ages:
            z.append(p.rho**2 * z[-1] + p.sd_eta**2)
        cov = (
            p.sd_alpha**2
            + power * np.minimum.outer(np.array(z[1:]), np.array(z[1:]))
            + p.sd_eps**2 * np.eye(len(ages))
        )
        law = KalmanFilter(p).forecast(earnings, age, 10)
        for i, at in enumerate(age):
            known = [a - 25 for a in range(25, at + 1) if not np.isnan(earnings[i, a - 25])]
            ahead = np.arange(at - 24, at - 14)
            weights = np.linalg.solve(cov[np.ix_(known, known)], cov[np.ix_(known, ahead)]).T
            mean = p.mean_log(ages[ahead]) + weights @ (
                np.log(earnings[i, known]) - p.mean_log(ages[known])
            )
            np.testing.assert_allclose(law.mean[i], mean, rtol=1e-10)
            np.testing.assert_allclose(
                law.covariance[i],
                cov[np.ix_(ahead, ahead)] - weights @ cov[np.ix_(known, ahead)],
                atol=1e-12,
            )

    def test_its_paths_have_the_law_in_closed_form(self, seen):
        earnings, age = seen
        rows = pl.DataFrame(
            [
                {"person_id": str(i), "year": BORN + 25 + a, "birth_year": BORN, "earnings": value}
                for i, record in enumerate(earnings)
                for a, value in enumerate(record)
            ],
            schema_overrides={"year": pl.Int32},
        ).with_columns(pl.col("earnings").fill_nan(None))
        origins, count = Origins(np.array([str(i) for i in range(6)]), BORN + age), 20_000
        paths = ExactForecaster(KalmanFilter(GAUSSIAN)).simulate(
            panel_of(rows), origins, to_horizon=4, n_paths=count, seed=2
        )
        law = KalmanFilter(GAUSSIAN).forecast(earnings, age, 4)
        logs = np.log(paths.earnings.astype(np.float64))
        assert (np.abs(logs.mean(axis=2) - law.mean) < 4.5 * law.sd / np.sqrt(count)).all()
        for i in range(6):
            ratio = np.linalg.solve(law.covariance[i], np.cov(logs[i]))
            assert np.abs(ratio - np.eye(4)).max() < 6 * np.sqrt(
                np.linalg.cond(law.covariance[i]) / count
            )

    def test_its_score_is_what_the_closed_law_expects(self):
        """The CRPS of a normal forecast that is true has mean sd / sqrt(pi)."""
        rows = people(GAUSSIAN, 2_000, 9)
        origins = Origins(rows["person_id"].unique().sort().to_numpy(), np.full(2_000, BORN + 40))
        kalman, panel = KalmanFilter(GAUSSIAN), panel_of(rows)
        paths = ExactForecaster(kalman).simulate(panel, origins, to_horizon=10, n_paths=100, seed=9)
        crps = scores.crps_log(
            paths.earnings, realised_earnings(panel, origins, range(1, 11)), floor=None
        )
        _, age, earnings = records(panel, origins, GAUSSIAN)
        expected = kalman.forecast(earnings, age, 10).sd.mean(axis=0) / np.sqrt(np.pi)
        assert (
            np.abs(crps.mean(axis=0) - expected) < 4 * crps.std(axis=0) / np.sqrt(len(crps))
        ).all()

    def test_pit_is_uniform(self):
        assert (
            min(pit_p_values(ExactForecaster(KalmanFilter(GAUSSIAN)), GAUSSIAN, 1_500, 3)) > 0.001
        )

    @pytest.mark.parametrize("wrong", [{"rho": 0.8}, {"sd_eta": 0.3}, {"sd_eps": 0.05}])
    def test_wrong_parameters_are_found_out(self, wrong):
        assert (
            min(
                pit_p_values(
                    ExactForecaster(KalmanFilter(replace(GAUSSIAN, **wrong))), GAUSSIAN, 1_500, 3
                )
            )
            < 0.001
        )


class TestParticles:
    """The GKOS process."""

    def test_equals_the_kalman_filter_where_the_process_is_gaussian(self):
        """35 years with gaps: an independent closed form at the history lengths that matter."""
        rows = irregular(people(GAUSSIAN, 8, 4), 4)
        _, age, earnings = records(panel_of(rows), ages_drawn(rows, (26, 61), 4), SAME)
        mean, covariance = KalmanFilter(GAUSSIAN).posterior(earnings, age)
        filter_ = GkosFilter(SAME)
        for i, at in enumerate(age):
            law = filter_.posterior(earnings[i], int(at))
            alpha, z = law.effects[0], law.density.astype(np.float64) @ law.z
            second = law.density.astype(np.float64) @ law.z**2
            found = np.array([law.weight @ alpha, law.weight @ z])
            moments = np.array(
                [
                    [law.weight @ alpha**2, law.weight @ (alpha * z)],
                    [law.weight @ (alpha * z), law.weight @ second],
                ]
            )
            np.testing.assert_allclose(found, mean[i], atol=2e-3)  # in log points
            np.testing.assert_allclose(
                moments - np.outer(found, found), covariance[i], rtol=0.01, atol=1e-4
            )

    @pytest.mark.parametrize("rate", [GKOS.rate, 0.7])
    def test_equals_importance_sampling_by_brute_force(self, rate):
        """A million histories from the law itself, weighted by the density of the transitory shock; rate 0.7 has many short spells.

        Tolerance: 4.5 standard errors of the ratio estimate.
        """
        process, draws = replace(GKOS, rate=rate), 1_000_000
        filter_, rng = GkosFilter(process), np.random.default_rng(5)
        u = lambda n: np.maximum(rng.random((n, draws)), 1e-17)  # noqa: E731
        state = process.start(u(3))
        records_ = {
            "works": (30.0, 31.0, np.nan),
            "idle": (20.0, 0.0, 24.0),
            "leaves": (26.0, np.nan, 0.0),
        }
        likelihood = {name: np.ones(draws) for name in records_}
        for t, age in enumerate((25, 26, 27)):
            state, _ = process.step(state, age, u(6))
            idle = rng.random(draws) < expit(process.nonemployment_index(age, state[2]))
            spell = np.where(idle, np.minimum(rng.exponential(1 / rate, draws), 1.0), 0.0)
            level = process.mean_log(age) + state[0] + state[1] * process.time(age) + state[2]
            for name, record in records_.items():
                if record[t] == 0:
                    likelihood[name] *= spell == 1
                elif record[t] > 0:
                    residual = (
                        np.log(record[t] * process.unit)
                        - level
                        - np.log1p(-np.where(spell < 1, spell, 0.0))
                    )
                    likelihood[name] *= (spell < 1) * process.eps.density(residual)
        ahead = expit(process.nonemployment_index(28, process.rho * state[2]))
        for name, record in records_.items():
            law = filter_.posterior(np.array(record) * process.unit, 27)
            density = law.density.astype(np.float64)
            found = {
                **{str(k): law.weight @ law.effects[k] for k in range(2)},
                "z": law.weight @ density @ law.z,
                "z squared": law.weight @ density @ law.z**2,
                "ahead": law.weight
                @ density
                @ expit(process.nonemployment_index(28, process.rho * law.z)),
            }
            w = likelihood[name]
            truth = {
                "0": state[0],
                "1": state[1],
                "z": state[2],
                "z squared": state[2] ** 2,
                "ahead": ahead,
            }
            for key, values in truth.items():
                value = w @ values / w.sum()
                error = np.sqrt(np.sum((w * (values - value)) ** 2)) / w.sum()
                assert abs(found[key] - value) < 4.5 * error + 1e-4 * abs(value), (name, key)

    def test_twice_the_particles_do_not_move_it(self, filter_):
        """25 years of history: posterior means and CRPS agree far within their spread."""
        rows, double = people(GKOS, 40, 6), GkosFilter(GKOS, 1_000)
        origins = Origins(
            rows["person_id"].unique(maintain_order=True).to_numpy(), np.full(40, BORN + 49)
        )
        earnings = records(panel_of(rows), origins, GKOS)[2]
        for record in earnings[:15]:
            a, b = (f.posterior(record, 49) for f in (filter_, double))
            assert a.effective > 8
            assert np.abs(a.effects @ a.weight - b.effects @ b.weight).max() < 2e-3
            assert abs(a.weight @ a.density @ a.z - b.weight @ b.density @ b.z) < 2e-3
        outcomes = realised_earnings(panel_of(rows), origins, range(1, 11))
        crps = [
            scores.crps_log(
                ExactForecaster(f)
                .simulate(panel_of(rows), origins, to_horizon=10, n_paths=300, seed=seed)
                .earnings,
                outcomes,
            )
            for seed, f in enumerate((filter_, double))
        ]
        for h in (1, 5, 10):
            change = (crps[0] - crps[1])[:, h - 1]
            assert abs(change.mean()) < 3.5 * change.std() / np.sqrt(len(change))

    def test_pit_is_uniform(self):
        assert min(pit_p_values(ExactForecaster(GkosFilter(GKOS, 150)), GKOS, 500, 7)) > 0.001

    @pytest.mark.parametrize(
        "wrong",
        [
            {"nonemployment": PROCESSES["gkos-few-zeros"].nonemployment},
            {"eps": replace(GKOS.eps, sd=(0.28, 0.2))},
            {"rho": 0.8},
        ],
    )
    def test_wrong_parameters_are_found_out(self, wrong):
        assert (
            min(
                pit_p_values(ExactForecaster(GkosFilter(replace(GKOS, **wrong), 100)), GKOS, 500, 7)
            )
            < 0.001
        )

    def test_a_record_that_the_process_cannot_produce_still_has_a_forecast(self, filter_):
        law = filter_.posterior(np.array([1e-3, 1e12, 0.0, 1e-3]), 28)
        assert law.weight.sum() == pytest.approx(1)


@pytest.mark.parametrize("process", [GAUSSIAN, GKOS], ids=["gaussian", "gkos"])
class TestForecaster:
    """What both share."""

    @pytest.fixture
    def forecaster(self, process) -> ExactForecaster:
        return ExactForecaster(
            KalmanFilter(process) if process is GAUSSIAN else GkosFilter(process, 64)
        )

    @pytest.fixture
    def rows(self, process) -> pl.DataFrame:
        return irregular(people(process, 70, 8), 8)

    def test_a_person_s_numbers_depend_on_nobody_else(self, forecaster, rows):
        origins = ages_drawn(rows, (26, 59), 8)
        every = forecaster.simulate(panel_of(rows), origins, to_horizon=7, n_paths=20, seed=3)
        some = np.array([66, 3, 41])
        few = forecaster.simulate(
            panel_of(rows).only(origins.person_id[some].tolist()),
            origins.take(some),
            to_horizon=7,
            n_paths=20,
            seed=3,
        )
        np.testing.assert_array_equal(few.earnings, every.earnings[some])
        shorter = forecaster.simulate(panel_of(rows), origins, to_horizon=4, n_paths=9, seed=3)
        np.testing.assert_array_equal(shorter.earnings, every.earnings[:, :4, :9])
        other = forecaster.simulate(panel_of(rows), origins, to_horizon=7, n_paths=20, seed=4)
        assert (other.earnings != every.earnings).mean() > 0.5

    def test_nothing_after_the_origin_is_used(self, forecaster, rows):
        origins = ages_drawn(rows, (26, 59), 8)
        known = (
            rows.join(origins.frame(), on="person_id")
            .filter(pl.col("year") <= pl.col("origin"))
            .drop("origin")
        )
        first = rows.group_by("person_id", maintain_order=True).first()
        known = pl.concat(
            [known, first.join(known, on="person_id", how="anti")]
        )  # someone may have no row before the origin
        both = [
            forecaster.simulate(panel_of(r), origins, to_horizon=3, n_paths=5, seed=1).earnings
            for r in (rows, known)
        ]
        np.testing.assert_array_equal(*both)

    def test_a_missing_row_and_an_unknown_cell_say_the_same(self, forecaster, rows):
        origins = ages_drawn(rows, (26, 59), 8)
        rows = pl.concat(
            [rows, people(forecaster.filter.process, 70, 8).filter(pl.col("year") == BORN + 60)]
        ).unique(["person_id", "year"])
        paths = [
            forecaster.simulate(panel_of(r), origins, to_horizon=3, n_paths=5, seed=1).earnings
            for r in (rows, rows.filter(pl.col("earnings").is_not_null()))
        ]
        np.testing.assert_array_equal(*paths)

    def test_nothing_is_forecast_beyond_64(self, forecaster, process, rows):
        origins = Origins(
            rows["person_id"].unique(maintain_order=True).to_numpy()[:2], np.full(2, BORN + 60)
        )
        earnings = forecaster.simulate(
            panel_of(rows), origins, to_horizon=30, n_paths=3, seed=1
        ).earnings
        assert not np.isnan(earnings[:, :4]).any()
        assert np.isnan(earnings[:, 4:]).all()

    def test_what_cannot_be_forecast_names_the_person_and_no_value(self, forecaster, process, rows):
        who = rows["person_id"][0]
        at = lambda year, person=who: Origins(np.array([person]), np.array([year]))  # noqa: E731
        with pytest.raises(InputError, match=f"person {who}.*age 24 or later"):
            forecaster.simulate(panel_of(rows), at(BORN + 23), to_horizon=1, n_paths=2, seed=0)
        with pytest.raises(InputError, match="person nobody"):
            forecaster.simulate(
                panel_of(rows), at(BORN + 30, "nobody"), to_horizon=1, n_paths=2, seed=0
            )
        broken = rows.with_columns(earnings=pl.lit(-123.0))
        with pytest.raises(InputError, match=f"person {who}, year") as error:
            forecaster.simulate(panel_of(broken), at(BORN + 60), to_horizon=1, n_paths=2, seed=0)
        assert "123" not in str(error.value).replace(who, "")


def test_zero_earnings_are_refused_by_a_process_without_zeros():
    rows = people(GAUSSIAN, 1, 1).with_columns(earnings=pl.lit(0.0))
    origins = Origins(np.array([rows["person_id"][0]]), np.array([BORN + 30]))
    with pytest.raises(InputError, match="no such earnings"):
        ExactForecaster(KalmanFilter(GAUSSIAN)).simulate(
            panel_of(rows), origins, to_horizon=1, n_paths=2, seed=0
        )


def test_the_contest_questions_an_exact_forecaster_as_any_baseline(tmp_path):
    generate_register(
        tmp_path / "register",
        RegisterSettings(
            persons=300, seed=2, first_year=2010, future_to=2027, future_draws=2, process=GAUSSIAN
        ),
    )
    contest = Contest(
        read_panel(tmp_path / "register"), ContestOptions(horizons=(1, 5), n_paths=20, seed=0)
    )
    exact: Baseline = exact_forecaster(tmp_path / "register")
    table = contest.run([BaselineContestant(exact)], tmp_path, futures=tmp_path / "register")
    everybody = table.filter(pl.col("group") == "all", pl.col("metric") == "crps_log")
    assert set(everybody["setting"]) == {"in-time", "forward"}
    assert everybody["value"].is_between(0.05, 0.6).all()


def test_the_forecaster_of_a_register_is_found_by_its_process(tmp_path):
    generate_register(
        tmp_path / "gkos",
        RegisterSettings(persons=70, seed=1, first_year=2022, process=PROCESSES["gkos-few-zeros"]),
    )
    found = exact_forecaster(tmp_path / "gkos", particles=16)
    assert found.filter.process == PROCESSES["gkos-few-zeros"]
    (tmp_path / "gkos" / "register.json").write_text(json.dumps({"process": "full"}))
    with pytest.raises(UsageError, match="oracle"):
        exact_forecaster(tmp_path / "gkos")
    with pytest.raises(InputError, match="no register"):
        exact_forecaster(tmp_path)
