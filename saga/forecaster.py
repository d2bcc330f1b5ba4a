"""The forecaster: a bundle and a panel in, paths and tables out.

Every door goes the same way from a request to its result:

    result = forecaster.run(request, panel, draws, in_force, record=False)

Who can be forecast is asked, and money, scenario and tax are checked there and nowhere else. A door
that must answer others in between takes the same way in pieces, in any order and on any thread; no
number depends on how persons are divided (`saga.plans`):

    plan = forecaster.plan(request, panel, draws, in_force, record=False)
    outputs = [plan.compute(piece) for piece in plan.pieces(64)]
    result = plan.result(outputs)

With a ledger, `in_force` is what `saga.calibration.adaptive.issuance` makes of its state. With
`record`, `result.issued` is what the ledger is to enter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.bundle import Bundle, default_bundle
from saga.bundle_model import BundleModel, PersonBlock
from saga.conformal.calibration_table import calibration_method
from saga.conformal.calibrator import Calibrator
from saga.conformal.recalibration import map_paths
from saga.data.facts import Facts, shipped_facts
from saga.data.groups import last_record_origins
from saga.data.macro_rows import SERIES
from saga.data.mapping import given_names, require_no_names
from saga.data.panel import Panel
from saga.data.reading import Source
from saga.distributions import Marginals
from saga.errors import UsageError, check_type
from saga.features.calendar import Calendar
from saga.features.sequences import encode
from saga.features.training_reference import ComparedRecords
from saga.features.transforms import Transforms
from saga.files.data_frames import Rows
from saga.forecast_checks import (
    check_panel,
    check_reference,
    leave_out_ineligible,
)
from saga.forecast_results import Forecasts, Lifetimes, Pensions, Result
from saga.forecast_warnings import ForecastWarning
from saga.macro.history import log_wage_index
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario, ScenarioSource
from saga.model import Saga
from saga.paths import Paths
from saga.pensions.pension_table import WageIndex
from saga.plans import PLANS, Plan
from saga.request_warnings import Training, find_warnings
from saga.requests import (
    MAX_HORIZON,
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PensionRequest,
    Progress,
    Request,
    RolloutName,
)
from saga.schema import MAX_AGE, N_AGES
from saga.states.codes import code_labels, code_numbers, code_sizes
from saga.states.life_courses import LifeCourses, LifeCourseSimulator
from saga.states.state_network import StateNetwork
from saga.summaries import Summarised, Summary
from saga.tax.tax_rules import TaxRule, resolve_tax

if TYPE_CHECKING:  # a forecast needs no ledger
    from saga.calibration.adaptive.issuance import AdaptedForecaster

_LEADERBOARD = {
    "horizon": pl.Int32(),
    "model": pl.String(),
    "n": pl.Int64(),
    "crps_log": pl.Float64(),
    "coverage_90": pl.Float64(),
}
FITTED, LEADERBOARD = "fit", "leaderboard"  # of a bundle that `saga.fit` made, in its metrics
_BLOCK_PERSONS = 256  # persons whose paths are in memory at the same time


class Forecaster(Summarised):
    """Forecasts from one bundle. Thread-safe: a call changes no attribute."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int | None = None,
        workers: int = 1,
        rollout: RolloutName | None = None,
        facts: Facts | None = None,
    ) -> None:
        """Build the network and the calibrator of a bundle.

        Args:
            bundle: The bundle, already verified.
            threads: Number of threads of the simulation; None for the number of cores.
            workers: Number of processes for 300 persons and more. They are spawned, so a script
                needs `if __name__ == "__main__"`. Neither this nor `threads` changes a number.
            rollout: How paths are simulated; None for the rollout of the calibration. With
                another rollout, the guarantee of present values is "extrapolated".
            facts: Dated facts: tax rules, prices, and macro series after those of the bundle. None:
                the shipped ones.

        Raises:
            UsageError: If the bundle has no such rollout.
            BundleError: If the bundle has trees and their library is missing.
        """
        calibrated_rollout = bundle.metrics.get("calibration", {}).get("rollout", "exact")
        self.bundle, self.facts = bundle, facts or shipped_facts()
        self.model = BundleModel.of(
            bundle,
            self.facts,
            rollout=rollout or calibrated_rollout,
            threads=threads,
            workers=workers,
        )
        calibrated = bundle.calibration_records
        self.records = bundle.training_records.joined(calibrated or bundle.training_records)
        self.calibrator = (
            Calibrator.from_table(bundle.calibration)
            if bundle.calibration is not None
            else Calibrator()
        )
        self._method = calibration_method(bundle.calibration)
        self._calibrated_paths = self.rollout == calibrated_rollout

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        threads: int | None = None,
        workers: int = 1,
        rollout: RolloutName | None = None,
        facts: Facts | None = None,
    ) -> Forecaster:
        """Load and verify a bundle directory; arguments as in the constructor.

        Without a path it is the bundle that the environment variable SAGA_BUNDLE names, or else
        the shipped one.

        Raises:
            BundleError: If a file of the bundle is missing, unknown or changed.
            UsageError: As the constructor.
        """
        return cls(
            Bundle.load(default_bundle() if path is None else path),
            threads=threads,
            workers=workers,
            rollout=rollout,
            facts=facts,
        )

    def summary(self) -> Summary:
        """The bundle, what it was trained on, its money and its calibration."""
        money = f"{self.transforms.currency} of {self.transforms.price_year}"
        path = self.bundle.path  # of a temporary folder that is gone, if `saga.fit` made it
        weights = "; ".join(str(trees) for trees in self.model.trees if trees is not None)
        trees = f", with trees (weights {weights})" if weights else ""
        lines = {
            "bundle": f"{path if path.is_dir() else 'in memory'} ({self.bundle.digest[:12]})",
            "trained on": f"{self.bundle.trained_on}, until {self.records.last_year}{trees}",
            "forecasts": f"1 to {min(MAX_HORIZON, self.records.longest)} years ahead, up to age "
            f"{self.records.last_age}, in {money}",
            "calibration": self._method or "none: forecasts have no intervals",
            "rollout": self.rollout,
        }
        if self.model.groups is not None and (now := self.model.groups.trends.ratios()):
            lines["ratios"] = ", ".join(f"{name} {ratio:.3f}" for name, ratio in now.items())
        if left_out := self.bundle.metrics.get(FITTED, {}).get("left_out"):
            lines["left out"] = "; ".join(left_out)
        return Summary("Forecaster", lines)

    def leaderboard(self) -> pl.DataFrame:
        """Error and coverage of the bundle and its rivals on test persons, as `saga.fit` judged.

        Columns horizon, model, n (persons), crps_log (error of log earnings, lower is better) and
        coverage_90 (share of outcomes inside the 90 % sets); the best model of a horizon is first.

        Raises:
            UsageError: If the bundle was not judged.
        """
        rows = self.bundle.metrics.get(FITTED, {}).get(LEADERBOARD)
        if rows is None:
            raise UsageError(
                "This bundle was not judged. Use saga.fit with the evidence installed (pip install "
                "'saga-forecast[evidence]') and time left, or saga evaluate."
            )
        return pl.DataFrame(rows, schema=_LEADERBOARD)

    def panel(
        self,
        source: Panel | Rows,
        *,
        id: str | None = None,
        time: str | None = None,
        target: str | None = None,
        birth_year: str | None = None,
    ) -> Panel:
        """The panel of a source, whose columns have these names or those told to `saga.fit`.

        Nominal amounts are deflated by the forecaster's facts. A panel is left as it is.

        Raises:
            UsageError: If `saga.fit` was given a panel, which does not tell how it was read.
        """
        names = given_names(id, time, target, birth_year)
        if isinstance(source, Panel):
            require_no_names(names)
            return source
        columns = self.bundle.metrics.get(FITTED, {"columns": {}})["columns"]
        if columns is None:
            raise UsageError(
                "This bundle was fitted on a panel, which does not tell how its rows were read. "
                "Give read_panel(rows, ...), with the mapping, prices and facts of that panel."
            )
        return Source(source, facts=self.facts, names={**columns, **names}).read()

    @property
    def network(self) -> Saga:
        """The network. UsageError if the bundle is an ensemble, which has several."""
        return self.model.network

    @property
    def transforms(self) -> Transforms:
        """Money, rhythm and codes of the bundle."""
        return self.model.transforms

    @property
    def process(self) -> MacroProcess | None:
        """The macro process; None if the bundle was trained without macro series."""
        return self.model.process

    @property
    def calendar(self) -> Calendar:
        """The macro covariates of each year."""
        return self.model.calendar

    @property
    def rollout(self) -> RolloutName:
        """How paths are simulated."""
        return self.model.rollout

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "A forecaster is not pickled. In the other process call Forecaster.load(path) with the "
            "path of its bundle (saga.fit(..., out=path) keeps one), or Forecaster(bundle) with "
            "`forecaster.bundle`, which can be pickled; or forecast here with workers=N."
        )

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def with_model(self, model: BundleModel) -> Self:
        """The same forecaster with another model, as a study of the macro process needs."""
        other = copy.copy(self)
        other.model = model
        return other

    def with_calibrator(self, calibrator: Calibrator, outcomes_until: int | None = None) -> Self:
        """The same forecaster with another calibrator; network and threads are shared.

        `outcomes_until` is the last year of the outcomes that moved its thresholds, if they did.
        """
        other = copy.copy(self)
        other.calibrator = calibrator
        other.records = self.records.with_outcomes(outcomes_until)
        return other

    def provenance(self, draws: Draws = Draws()) -> dict[str, object]:
        """What made a result, for Parquet metadata, JSON and footers."""
        scenario = self.scenario(draws.scenario)
        return {
            "bundle": self.bundle.digest,
            "calibration": self.bundle.calibration_digest,
            "calibration_method": self._method,
            "code_version": self.bundle.code_version,
            "seed": draws.seed,
            "paths": draws.n_paths,
            "rollout": self.rollout,
            "scenario": scenario.name if scenario else "baseline",
            **({"scenario_digest": scenario.digest} if scenario else {}),
            "currency": self.transforms.currency,
            "price_year": self.transforms.price_year,
            "trained_on": self.bundle.trained_on,
            "facts": self.facts.provenance(),
        }

    def tax_rule(self, name: str) -> TaxRule | None:
        """The tax rule in the bundle's money; None: there is no tax.

        Raises UsageError if the bundle is in another currency, or the facts lack the rule's year.
        """
        money = self.transforms
        if name == "none":
            return None
        return resolve_tax(name, self.facts, money.price_year, money.currency)

    def wage_index(
        self, draws: Draws, trend: Callable[[NDArray[np.int64]], Floats] | None = None
    ) -> WageIndex:
        """The real wages of the simulated paths, which pensions and entrants follow.

        Without a macro process they have a `trend`, by default that of the panel at equal age.
        """
        process, n_paths = self.process, draws.n_paths
        if process is None:
            level = self.model.members[0].transforms.units.level
            logs = trend or (lambda years: level(0 * years, years))
            return lambda _, years: np.repeat(logs(years)[:, None], n_paths, axis=1)
        draw = partial(process.draw, draws.seed, n_paths, scenario=self.scenario(draws.scenario))

        @lru_cache
        def growth(origin: int) -> Floats:
            # Up to age 65: rights of the last year may be credited in the year after.
            series = draw(origin, origin + N_AGES)[..., SERIES.index("real_wage_growth")]
            return np.concatenate([np.zeros((1, n_paths)), log_wage_index(series).T])

        def index(origin: int, years: NDArray[np.int64]) -> Floats:
            known = self.calendar.wage_index(np.minimum(years, origin))
            return np.asarray(known[:, None] + growth(origin)[np.maximum(years - origin, 0)])

        return index

    def warnings(
        self,
        panel: Panel,
        request: Request,
        draws: Draws = Draws(),
        *,
        compared: ComparedRecords | None = None,
    ) -> tuple[ForecastWarning, ...]:
        """What a reader of the requested table must know, see `saga.request_warnings`.

        `compared` are the panel's records beside those of training, if they are compared already.
        """
        process, groups = self.process, self.model.groups
        training = Training(
            self.records,
            process.last_known if process else None,
            self.bundle.simulated,
            self.bundle.macro_name,
            process.history if process else None,
            groups.trends if groups else None,
        )
        return find_warnings(
            panel,
            request,
            draws,
            self.transforms,
            training,
            scenario=self.scenario(draws.scenario),
            other_rollout=not self._calibrated_paths,
            compared=compared,
        )

    def scenario(self, source: ScenarioSource) -> Scenario | None:
        """The scenario of a source; UsageError if the bundle has no macro series."""
        return self.model.scenario(source)

    def reference_draws(self, draws: Draws, reference: ScenarioSource) -> Draws:
        """The draws under the scenario of a reference; UsageError if it is that of `draws`."""
        check_reference(self.scenario(reference), self.scenario(draws.scenario))
        return replace(draws, scenario=reference)

    def realised_macro(self, panel: Panel, until: int) -> Scenario | None:
        """The realised macro series up to the year `until`, to condition forecasts of the past.

        Years beyond the bundle's macro history are drawn. None if the bundle or the panel has no
        macro series, or no year is known.
        """
        if self.process is None or panel.meta.macro is None:
            return None
        realised = self.process.observed(until)
        return realised if realised.rows else None

    def blocks(
        self,
        panel: Panel,
        draws: Draws = Draws(),
        *,
        to_horizon: int | None = MAX_HORIZON,
        to_age: int = MAX_AGE,
        recalibrate: bool = True,
        progress: Progress | None = None,
    ) -> Iterator[Paths]:
        """Paths in blocks of at most 256 persons (sorted by id), so that memory stays bounded.

        Args:
            panel: Persons' records; the origin of each is the last year of the record.
            draws: Number of paths, seed and scenario.
            to_horizon: Last horizon of the paths, or None for as many years as `to_age` needs.
            to_age: Last age of the paths, at most 64.
            recalibrate: Whether the paths are mapped to the recalibrated marginals.
            progress: Called with the persons done and the persons in all.
        """
        check_panel(panel, self.transforms, to_age)
        records, marginals = self.model.of_panel(panel, draws.scenario)
        for block, raw in self.model.simulate_blocks(
            records,
            self._person_blocks(panel, len(records[0])),
            draws,
            to_horizon=to_horizon,
            to_age=to_age,
            progress=progress,
        ):
            yield (
                map_paths(raw, self.calibrator.recalibrate(marginals(block, MAX_HORIZON)))
                if recalibrate
                else raw
            )

    def marginals(
        self,
        panel: Panel,
        scenario: ScenarioSource = None,
        *,
        recalibrate: bool = True,
        n_horizons: int = MAX_HORIZON,
        progress: Progress | None = None,
    ) -> Iterator[Marginals]:
        """Marginals of horizons 1..`n_horizons` in blocks of at most 256 persons (sorted by id).

        They depend on the record, the weights and the scenario only. With `recalibrate`, the
        calibrator's maps are applied.
        """
        check_panel(panel, self.transforms, MAX_AGE)
        records, marginals = self.model.of_panel(panel, scenario)
        n = len(records[0])
        for block in self._person_blocks(panel, n):
            raw = marginals(block, n_horizons)
            if progress:
                progress(int(block.rows[-1]) + 1, n)
            yield self.calibrator.recalibrate(raw) if recalibrate else raw

    def _person_blocks(self, panel: Panel, n: int) -> Iterator[PersonBlock]:
        """The panel's `n` persons in blocks."""
        grouping = self.calibrator.grouping
        labels = grouping.labels(panel, last_record_origins(panel)) if grouping else {}
        for start in range(0, n, _BLOCK_PERSONS):
            rows = np.arange(start, min(start + _BLOCK_PERSONS, n))
            yield PersonBlock(rows, {name: values[rows] for name, values in labels.items()})

    def simulate(
        self,
        panel: Panel,
        draws: Draws = Draws(),
        *,
        to_horizon: int | None = MAX_HORIZON,
        to_age: int = MAX_AGE,
        recalibrate: bool = True,
        progress: Progress | None = None,
    ) -> Paths:
        """All paths at once; arguments as in `blocks`. Needs n x H x M x 4 bytes."""
        blocks = self.blocks(
            panel,
            draws,
            to_horizon=to_horizon,
            to_age=to_age,
            recalibrate=recalibrate,
            progress=progress,
        )
        return Paths.joined(list(blocks))

    def life_courses(
        self,
        panel: Panel,
        draws: Draws = Draws(),
        *,
        to_age: int = MAX_AGE,
        progress: Progress | None = None,
    ) -> Iterator[LifeCourses]:
        """Recalibrated paths up to `to_age` with the states of each year, in blocks of persons.

        The state network looks ahead to age 64, so `to_age` changes no number.

        Raises:
            UsageError: If the bundle has no state network.
        """
        weights = self.bundle.state_weights()
        check_panel(panel, self.transforms, to_age)
        labels = code_labels(self.transforms)
        simulator = LifeCourseSimulator(
            StateNetwork.from_weights(weights, code_sizes(self.transforms)),
            self.network,
            encode(panel, self.transforms, self.calendar),
            code_numbers(panel.frame, self.transforms),
            labels,
            n_paths=draws.n_paths,
            seed=draws.seed,
            last_training_year=self.bundle.training_records.last_year,
        )
        blocks = self.blocks(panel, draws, to_horizon=None, progress=progress)
        for block in simulator.simulate_blocks(
            blocks, self.model.macro_futures(draws), self.model.threads
        ):
            yield block.until(to_age)

    def forecast(
        self,
        source: Panel | Rows,
        request: ForecastRequest = ForecastRequest(),
        draws: Draws = Draws(),
        *,
        horizons: int | Sequence[int] | None = None,
        id: str | None = None,
        time: str | None = None,
        target: str | None = None,
        birth_year: str | None = None,
        progress: Progress | None = None,
    ) -> Forecasts:
        """The forecast table, in real money of the bundle's price year, and its warnings.

        Args:
            source: A panel, or a file, a data frame or a dictionary of columns as for `read_panel`.
            request: What the table has.
            draws: Of these only the scenario matters: marginals need no paths.
            horizons: Years ahead in place of those of the request: 5, or range(1, 6).
            id: Column of the person, as for `read_panel`; and so `time`, `target`, `birth_year`.
            time: Column of the year.
            target: Column of the earnings.
            birth_year: Column of the year of birth.
            progress: Called with the persons done and the persons in all.

        One row per person and horizon, until age 64 and within the span of the training records
        (`beyond_span`); columns as in `forecast_table`. Persons without a row are listed in
        `left_out` with the reason.

        Raises:
            InputError: If nobody can be forecast.

        Example:
            >>> from saga import Forecaster
            >>> forecasts = Forecaster.load().forecast("examples/people.csv", horizons=5)
            >>> forecasts.table.select("person_id", "year", "horizon").rows()
            [('0001', 2027, 5), ('0002', 2027, 5)]
        """
        check_type("request", request, ForecastRequest, "ForecastRequest(coverage=(0.9,))")
        if horizons is not None:
            years = (int(horizons),) if isinstance(horizons, int | Integral) else horizons
            request = replace(request, horizons=years)
        panel = self.panel(source, id=id, time=time, target=target, birth_year=birth_year)
        result = self.run(request, panel, draws, progress=progress)
        assert isinstance(result, Forecasts)
        return result

    def run(
        self,
        request: Request,
        panel: Panel,
        draws: Draws = Draws(),
        in_force: AdaptedForecaster | None = None,
        *,
        record: bool = False,
        progress: Progress | None = None,
    ) -> Result:
        """The result of a request: `Forecasts`, `Lifetimes`, `Pensions`, or a `Result` of paths.

        Args:
            request: What to compute; its type is the product.
            panel: Persons' records; the origin of each is the last year of the record.
            draws: Number of paths, seed and scenario.
            in_force: Thresholds that follow the outcomes of a ledger; None: those of the bundle.
            record: Whether the result has what is to be entered in the ledger.
            progress: Called with the persons done and the persons in all.

        Raises:
            InputError: If nobody can be forecast.
            UsageError: If the bundle or the panel does not fit the request.
        """
        plan = self.plan(request, panel, draws, in_force, record=record)
        return plan.result([plan.compute(plan.panel, progress)])

    def check(self, request: Request) -> None:
        """Raise UsageError if the bundle lacks a coverage, tax or pension rule, or states."""
        PLANS[type(request)].check(self, request)

    def plan(
        self,
        request: Request,
        panel: Panel,
        draws: Draws = Draws(),
        in_force: AdaptedForecaster | None = None,
        *,
        record: bool = False,
    ) -> Plan[Request]:
        """A request that is checked and can be computed in pieces; arguments as in `run`."""
        check_type("draws", draws, Draws, "Draws(seed=1)")
        forecaster = self if in_force is None else in_force.forecaster
        if record and in_force is not None:
            in_force.check_recordable(request, draws)
        forecaster.check(request)
        panel, left_out = leave_out_ineligible(panel, request, forecaster.records)
        return PLANS[type(request)](forecaster, request, panel, draws, left_out, in_force, record)

    def lifetime(
        self,
        source: Panel | Rows,
        request: LifetimeRequest = LifetimeRequest(),
        draws: Draws = Draws(),
        *,
        id: str | None = None,
        time: str | None = None,
        target: str | None = None,
        birth_year: str | None = None,
        progress: Progress | None = None,
    ) -> Lifetimes:
        """Present values of the years after the origin until `to_age`, and of all persons together.

        Table columns as in `lifetime_table`. The intervals are conformal (see
        `saga.conformal.families.present_value`): "assumption" at the rate of 2 % for as many years
        as have been observed, else "extrapolated". If the calibration has no present values, or
        `from_age` lies ahead, the central interval of the recalibrated paths is given as
        "extrapolated". An uncalibrated bundle gives no interval. Persons who cannot be forecast
        have no row; `left_out` lists them with the reason.

        Raises:
            InputError: If nobody can be forecast.
        """
        check_type("request", request, LifetimeRequest, "LifetimeRequest(rate=0.02)")
        panel = self.panel(source, id=id, time=time, target=target, birth_year=birth_year)
        result = self.run(request, panel, draws, progress=progress)
        assert isinstance(result, Lifetimes)
        return result

    def pensions(
        self,
        source: Panel | Rows,
        request: PensionRequest = PensionRequest(),
        draws: Draws = Draws(),
        *,
        id: str | None = None,
        time: str | None = None,
        target: str | None = None,
        birth_year: str | None = None,
        progress: Progress | None = None,
    ) -> Pensions:
        """Pension rights of each person's career by a rule, and the difference of a reform.

        Table columns as in `saga.pensions.pension_table`. Rights are those from earnings only:
        benefits that would count are not simulated. Persons who cannot be forecast have no row;
        `left_out` lists them with the reason.

        Raises:
            InputError: If nobody can be forecast.
        """
        check_type("request", request, PensionRequest, "PensionRequest(ages=(64,))")
        panel = self.panel(source, id=id, time=time, target=target, birth_year=birth_year)
        result = self.run(request, panel, draws, progress=progress)
        assert isinstance(result, Pensions)
        return result

    def calibrator_for(self, forecast: Paths | Marginals) -> Calibrator:
        """The calibrator, without guarantees for a scenario or paths of another rollout."""
        other_paths = isinstance(forecast, Paths) and not self._calibrated_paths
        extrapolated = forecast.conditioned or other_paths
        return replace(self.calibrator, extrapolated=True) if extrapolated else self.calibrator
