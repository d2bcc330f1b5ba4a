"""Forecaster: a bundle and people in, tables out. The one door for command line, HTTP and batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from saga.bundle import Bundle
from saga.conformal.calibrator import Calibrator, Intervals
from saga.conformal.one_sided import Limits, one_sided_limits
from saga.conformal.path_bands import band_intervals
from saga.conformal.present_value import ValueIntervals, value_intervals
from saga.data.eligibility import find_ineligible
from saga.data.groups import last_record_origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.features.calendar import Calendar
from saga.features.sequences import encode
from saga.features.transforms import Transforms
from saga.lifetime import observed_past, population, present_value
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario, scenario_from
from saga.model import ModelConfig, Saga
from saga.options import (
    COVERAGE,
    HORIZONS,
    MAX_HORIZON,
    PATHS,
    QUANTILES,
    RATE,
    check_ages,
    check_coverage,
    check_horizons,
    check_quantiles,
    check_rate,
)
from saga.paths import Paths
from saga.schema import MAX_AGE
from saga.simulation.matmul import Precision
from saga.simulation.pool import worker_pool
from saga.simulation.rollout import Rollout
from saga.states.codes import code_labels, code_numbers
from saga.states.life_courses import LifeCourses, LifeCourseSimulator
from saga.states.state_network import StateNetwork
from saga.tax import MONEY, income_tax

RolloutName = Literal["exact", "light"]
ScenarioSource = str | Path | Sequence[Mapping[str, float]] | Scenario | None
Progress = Callable[[int, int], None]
_BLOCK = 256  # persons held in memory at once
_MANY = 300  # persons from which on starting processes pays


def level_name(level: float) -> str:
    """0.9 -> "90", 0.05 -> "05", 0.975 -> "97.5": how a level appears in a column's name."""
    text = f"{100 * level:.6f}".rstrip("0").rstrip(".")
    return text if "." in text else text.zfill(2)


class Forecaster:
    """Forecasts from one bundle. Thread-safe: holds no state of a call.

    `threads` persons are simulated at a time; with `workers` > 1, jobs of 300 persons and more are shared by so many processes (spawned:
    a script that asks for them needs its `if __name__ == "__main__"`). Neither changes a number.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int | None = None,
        workers: int = 1,
        rollout: RolloutName | None = None,
        precision: Precision = "float32",
    ) -> None:
        """`rollout`: how paths are carried; None: as the bundle was calibrated, exactly where it was not. `precision`: of the products that
        carry and read them (`saga.simulation.matmul`).

        Intervals under another rollout than that of the calibration are given, but as "extrapolated". Raises UsageError where the bundle
        has no such rollout.
        """
        self.bundle = bundle
        calibrated = bundle.metrics.get("calibration", {}).get("rollout", "exact")
        self.rollout: RolloutName = rollout or calibrated
        if precision not in get_args(Precision):
            raise UsageError(
                f"There is no precision {precision!r}. Use one of {', '.join(get_args(Precision))}."
            )
        self.precision: Precision = precision
        self.threads, self.workers = threads or os.cpu_count() or 1, workers
        self.transforms = Transforms.from_dict(bundle.transforms)
        history = None
        self.process: MacroProcess | None = None
        if bundle.macro.get("series"):
            self.process = MacroProcess.from_dict(bundle.macro)
            history = self.process.history
        self.calendar = Calendar(history)
        self.network = Saga(ModelConfig.from_dict(bundle.config["model"]), self.transforms)
        self.network.load_state_dict(bundle.weights)
        self.network.eval()
        if self.rollout == "light" and self.network.light is None:
            raise UsageError(
                "This bundle has no light rollout. Use --rollout exact, or train with a configuration that has `light`."
            )
        self.calibrator = (
            Calibrator.from_table(bundle.calibration)
            if bundle.calibration is not None
            else Calibrator.identity()
        )
        if self.rollout != calibrated:
            self.calibrator = replace(self.calibrator, extrapolated=True)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        threads: int | None = None,
        workers: int = 1,
        rollout: RolloutName | None = None,
        precision: Precision = "float32",
    ) -> Forecaster:
        """Load and verify a bundle directory. Raises BundleError; and UsageError as the constructor does."""
        return cls(
            Bundle.load(path),
            threads=threads,
            workers=workers,
            rollout=rollout,
            precision=precision,
        )

    def provenance(
        self, *, paths: int = PATHS, seed: int = 0, scenario: ScenarioSource = None
    ) -> dict[str, Any]:
        """What made a result, for Parquet metadata, JSON and footers."""
        chosen = self.scenario(scenario)
        told = {"scenario_digest": chosen.digest} if chosen else {}
        return {
            "bundle": self.bundle.digest,
            "calibration": self.bundle.calibration_digest,
            "code_version": self.bundle.code_version,
            "seed": seed,
            "paths": paths,
            "rollout": self.rollout,
            "precision": self.precision,
            "scenario": chosen.name if chosen else "baseline",
            **told,
            "currency": self.transforms.currency,
            "price_year": self.transforms.price_year,
        }

    def scenario(self, source: ScenarioSource) -> Scenario | None:
        """Resolve a scenario; UsageError where the bundle knows no macro series."""
        if source is None or source == "baseline":
            return None
        if self.process is None:
            raise UsageError(
                "This bundle was trained without macro series, so it has no scenarios. Leave the scenario out."
            )
        return scenario_from(source, self.process.history)

    def check_scenario(self, source: ScenarioSource, panel: Panel, years: int = MAX_AGE) -> None:
        """Raise UsageError for a scenario that says nothing about any of the next `years` years, up to age 64, of anybody in the panel."""
        chosen = self.scenario(source)
        if chosen is None:
            return
        ahead = panel.frame.group_by("person_id").agg(
            first=pl.col("year").max() + 1,
            last=pl.min_horizontal(
                pl.col("year").max() + years, pl.col("birth_year").first() + MAX_AGE
            ),
        )
        spans = ahead.select("first", "last").unique().rows()
        if not any(first <= year <= last for first, last in spans for year in chosen.rows):
            given = f"{min(chosen.rows)} to {max(chosen.rows)}"
            asked = f"{min(first for first, _ in spans)} to {max(last for _, last in spans)}"
            raise UsageError(
                f"The scenario is about {given}, the forecasts are about {asked}. Give years among those."
            )

    def economy(self, panel: Panel, until: int) -> Scenario | None:
        """The economy that came in the panel's years up to `until`, to tell to forecasts of the past.

        Years beyond the bundle's macro history are drawn. None where the bundle or the panel knows no macro series, or nothing is known.
        """
        if self.process is None or panel.meta.macro is None:
            return None
        came = self.process.observed(until)
        return came if came.rows else None

    def obstacles(self, panel: Panel, to_age: int = MAX_AGE, ahead: int = 1) -> dict[str, Problem]:
        """Persons that cannot be forecast from this panel, or are above `to_age` in the year `ahead` years on, with the reason."""
        return find_ineligible(panel, to_age, ahead)

    def check_money(self, panel: Panel) -> None:
        """Raise UsageError unless the panel's amounts are in the bundle's currency and prices."""
        meta = panel.meta
        if (meta.currency, meta.price_year) != (
            self.transforms.currency,
            self.transforms.price_year,
        ):
            raise UsageError(
                f"The panel is in {meta.currency} of {meta.price_year}, the bundle in {self.transforms.currency} of "
                f"{self.transforms.price_year}. Use the mapping that the bundle was trained with, or another bundle."
            )

    def check_tax(self, tax: str) -> None:
        """Raise UsageError for a rule of tax that is not about the bundle's money."""
        money = f"{self.transforms.currency} of {self.transforms.price_year}"
        if tax != "none" and money != MONEY:
            raise UsageError(
                f"The rule of tax {tax!r} is about {MONEY}, the bundle's money is {money}. Leave the tax out."
            )

    def check(self, panel: Panel, to_age: int = MAX_AGE) -> None:
        """Raise InputError unless every person of the panel can be forecast to some age below `to_age`, in this bundle's money."""
        self.check_money(panel)
        if not len(panel):
            raise InputError(
                "There is nobody to forecast.",
                [Problem("empty", "The panel has no rows", "Give at least one person-year.")],
            )
        found = list(self.obstacles(panel, to_age).values())
        if found:
            raise InputError(f"{len(found)} person(s) cannot be forecast.", found[:20])

    def blocks(
        self,
        panel: Panel,
        *,
        to_horizon: int | None = MAX_HORIZON,
        to_age: int | None = None,
        paths: int = PATHS,
        seed: int = 0,
        scenario: ScenarioSource = None,
        calibrated: bool = True,
        progress: Progress | None = None,
    ) -> Iterator[Paths]:
        """Paths in blocks of a few hundred persons (sorted by id), so that memory stays bounded.

        To horizon `to_horizon`, or until `to_age`; never beyond age 64. `calibrated` rank-maps the paths by the bundle's cell maps.
        """
        if paths < 2:
            raise UsageError("At least 2 paths are needed.")
        self.check(panel, to_age or MAX_AGE)
        sequences = encode(panel, self.transforms, self.calendar)
        rollout = self._rollout(paths, seed, scenario)
        told = rollout.scenario is not None
        origin = sequences.year[sequences.offsets[1:] - 1]
        left = (to_age or MAX_AGE) - (origin - sequences.birth_year)
        steps = np.clip(left if to_horizon is None else np.minimum(left, to_horizon), 0, None)
        width = to_horizon if to_horizon is not None else int(max(1, steps.max()))
        n = len(sequences)
        grouping = self.calibrator.grouping
        labels = grouping.labels(panel, last_record_origins(panel)) if grouping else {}
        processes = self.workers if n >= _MANY else 1
        with worker_pool(
            rollout, sequences, steps, threads=self.threads, processes=processes
        ) as draw:
            for start in range(0, n, _BLOCK):
                rows = np.arange(start, min(start + _BLOCK, n))
                earnings = np.full((len(rows), width, paths), np.nan, dtype=np.float32)
                for i, drawn in enumerate(draw(rows)):
                    earnings[i, : len(drawn)] = drawn
                    if progress:
                        progress(start + i + 1, n)
                groups = {name: values[rows] for name, values in labels.items()}
                block = Paths(
                    sequences.person_id[rows],
                    sequences.birth_year[rows],
                    origin[rows],
                    earnings,
                    groups,
                    told,
                )
                yield self.calibrator.recalibrate(block) if calibrated else block

    def _rollout(self, paths: int, seed: int, scenario: ScenarioSource) -> Rollout:
        return Rollout(
            self.network,
            self.calendar,
            self.process,
            n_paths=paths,
            seed=seed,
            scenario=self.scenario(scenario),
            rhythm=self.transforms.rhythm,
            light=self.rollout == "light",
            precision=self.precision,
        )

    def courses(
        self,
        panel: Panel,
        *,
        to_age: int | None = None,
        paths: int = PATHS,
        seed: int = 0,
        scenario: ScenarioSource = None,
        progress: Progress | None = None,
    ) -> Iterator[LifeCourses]:
        """Life courses in blocks of persons: the recalibrated paths of `blocks`, and the circumstances drawn along them, up to `to_age`.

        Paths are looked ahead to age 64 whatever `to_age`, which therefore changes no number. UsageError for a bundle that does not know
        the law of circumstances.
        """
        learnt = self.bundle.state_weights()
        self.check(panel, to_age or MAX_AGE)
        codes = code_labels(self.transforms)
        law = StateNetwork.from_weights(learnt, tuple(len(each) + 1 for each in codes.values()))
        sequences = encode(panel, self.transforms, self.calendar)
        own = code_numbers(panel.frame, self.transforms)
        until = int(self.bundle.config["until"])
        courses = LifeCourseSimulator(
            law, self.network, sequences, own, codes, n_paths=paths, seed=seed, until=until
        )
        futures, done = self._rollout(paths, seed, scenario).macro_futures, 0

        def drawn(
            persons: NDArray[np.int64], origins: NDArray[np.int64], earnings: NDArray[np.float32]
        ) -> NDArray[np.int16]:
            lived = [money[np.isfinite(money[:, 0])] for money in earnings]
            wages = [
                futures(int(year)).wage[: len(money), :paths].numpy()
                for year, money in zip(origins, lived, strict=True)
            ]
            out = np.zeros((*earnings.shape, len(codes)), np.int16)
            for i, found in enumerate(courses.simulate(persons, lived, wages)):
                out[i, : len(found)] = found
            return out

        with ThreadPoolExecutor(
            self.threads, initializer=torch.set_num_threads, initargs=(1,)
        ) as team:
            for block in self.blocks(
                panel, to_horizon=None, paths=paths, seed=seed, scenario=scenario, progress=progress
            ):
                groups = np.array_split(
                    np.arange(len(block)), max(self.threads, -(-len(block) // courses.group_size))
                )
                groups = [rows for rows in groups if len(rows)]
                parts = team.map(
                    lambda rows, b=block, d=done: drawn(
                        d + rows, b.origin_year[rows], b.earnings[rows]
                    ),
                    groups,
                )
                together = np.concatenate(list(parts))
                done += len(block)
                yield LifeCourses(
                    block, {name: together[..., j] for j, name in enumerate(codes)}, codes
                ).until(to_age or MAX_AGE)

    def simulate(self, panel: Panel, **options: Any) -> Paths:
        """All paths at once; options as in `blocks`. Needs persons x horizons x paths x 4 bytes."""
        return Paths.joined(list(self.blocks(panel, **options)))

    def forecast(
        self,
        panel: Panel,
        *,
        horizons: Sequence[int] = HORIZONS,
        coverage: Sequence[float] = COVERAGE,
        quantiles: Sequence[float] = QUANTILES,
        paths: int = PATHS,
        seed: int = 0,
        scenario: ScenarioSource = None,
        limits: bool = False,
        bands: int | None = None,
        progress: Progress | None = None,
    ) -> pl.DataFrame:
        """The forecast table: one row a person and horizon, until age 64; real money of the bundle's price year. Who is above that in all
        years asked for has no row (`obstacles(panel, ahead=min(horizons))` names them).

        Columns: person_id, origin_year, horizon, year, mean, p_zero, one q.. a quantile, lower_, upper_, includes_zero_, guarantee_ a
        coverage, and cell: the persons whose outcomes the intervals rest on, "all" or a group. With `limits` also at_least_, at_most_,
        guarantee_limits_, positive_lower_, positive_upper_, guarantee_positive_ (see `saga.conformal.one_sided`); with `bands` = K also band_lower_,
        band_upper_, band_includes_zero_, guarantee_band_, which hold the first K years together (see `saga.conformal.path_bands`; null in later years).
        """
        horizons, coverage, quantiles = (
            check_horizons(horizons),
            check_coverage(coverage),
            check_quantiles(quantiles),
        )
        furthest = max(*horizons, bands or 1)
        blocks = self.blocks(
            panel, to_horizon=furthest, paths=paths, seed=seed, scenario=scenario, progress=progress
        )
        return pl.concat(
            [
                self.table(block, horizons, coverage, quantiles, limits=limits, bands=bands)
                for block in blocks
            ]
        )

    def table(
        self,
        paths: Paths,
        horizons: Sequence[int],
        coverage: Sequence[float],
        quantiles: Sequence[float],
        *,
        limits: bool = False,
        bands: int | None = None,
    ) -> pl.DataFrame:
        """The forecast table of recalibrated paths; columns as in `forecast`."""
        wanted = np.asarray(sorted(set(horizons))) - 1
        rows = paths.within_age[:, wanted]
        person, column = np.nonzero(rows)
        horizon = wanted[column]
        samples = paths.earnings[person, horizon].astype(np.float64)
        calibrator = self._promising(paths)
        intervals = calibrator.intervals(paths, coverage)
        data: dict[str, Any] = {
            "person_id": paths.person_id[person],
            "origin_year": paths.origin_year[person].astype(np.int32),
            "horizon": (horizon + 1).astype(np.int32),
            "year": paths.years[person, horizon].astype(np.int32),
            "mean": samples.mean(1),
            "p_zero": (samples == 0).mean(1),
        }
        values = np.quantile(samples, quantiles, axis=1)
        data |= {f"q{level_name(q)}": values[j] for j, q in enumerate(quantiles)}
        for j, level in enumerate(coverage):
            name = level_name(level)
            data[f"lower_{name}"] = intervals.lower[person, horizon, j]
            data[f"upper_{name}"] = intervals.upper[person, horizon, j]
            data[f"includes_zero_{name}"] = intervals.includes_zero[person, horizon, j]
            data[f"guarantee_{name}"] = intervals.guarantee[person, horizon, j].astype(str)
        data["cell"] = intervals.cell[person, horizon].astype(str)
        if limits:
            data |= _limit_columns(
                one_sided_limits(calibrator, paths, coverage), coverage, person, horizon
            )
        if bands is not None:
            data |= _band_columns(
                band_intervals(calibrator, paths, bands, coverage), person, horizon
            )
        return pl.DataFrame(data).with_columns(
            pl.col("^(.*lower|.*upper|at_least|at_most)_.*$").fill_nan(None)
        )

    def lifetime(
        self,
        panel: Panel,
        *,
        rate: float = RATE,
        to_age: int = MAX_AGE,
        from_age: int | None = None,
        tax: str = "none",
        coverage: Sequence[float] = (0.9,),
        quantiles: Sequence[float] = QUANTILES,
        paths: int = PATHS,
        seed: int = 0,
        scenario: ScenarioSource = None,
        progress: Progress | None = None,
    ) -> Lifetimes:
        """Present values of the years after the origin until `to_age` (saga.lifetime), and what they say about these persons together.

        Table columns: person_id, origin_year, to_age, rate, mean, one q.. a quantile, lower_, upper_, guarantee_ a coverage, tax_mean,
        net_mean (null with tax "none"). The intervals of the sum are conformalised (`saga.conformal.present_value`): "assumption" at the rate of 2 %
        for as many years as lives have been observed, else "extrapolated", as they are where the calibration knows no sums, or `from_age`
        lies ahead, and the central interval of the calibrated paths stands in; an uncalibrated bundle gives none.
        """
        check_ages(to_age, from_age)
        check_rate(rate)
        coverage, quantiles = check_coverage(coverage), check_quantiles(quantiles)
        self.check_tax(tax)
        totals, taxes, who = [], [], []
        intervals: list[ValueIntervals] = []
        options: dict[str, Any] = {"rate": rate, "to_age": to_age, "from_age": from_age}
        taxed_past = panel.with_frame(
            panel.frame.with_columns(_taxed(panel.frame["earnings"], tax))
        )
        for block in self.blocks(
            panel,
            to_horizon=None,
            to_age=to_age,
            paths=paths,
            seed=seed,
            scenario=scenario,
            progress=progress,
        ):
            totals.append(present_value(block, history=panel, **options))
            who.append((block.person_id, block.origin_year))
            intervals.append(self._value_intervals(block, totals[-1], coverage, panel, **options))
            if tax != "none":
                paid = replace(block, earnings=income_tax(block.earnings, tax).astype(np.float32))
                taxes.append(present_value(paid, history=taxed_past, **options).mean(1))
        values = np.concatenate(totals)
        data: dict[str, Any] = {
            "person_id": np.concatenate([w[0] for w in who]),
            "origin_year": np.concatenate([w[1] for w in who]).astype(np.int32),
            "to_age": np.full(len(values), to_age, dtype=np.int32),
            "rate": np.full(len(values), rate),
            "mean": values.mean(1),
        }
        data |= dict(
            zip(
                (f"q{level_name(q)}" for q in quantiles),
                np.quantile(values, quantiles, axis=1),
                strict=True,
            )
        )
        for j, level in enumerate(coverage):
            name = level_name(level)
            data[f"lower_{name}"] = np.concatenate([part.lower[:, j] for part in intervals])
            data[f"upper_{name}"] = np.concatenate([part.upper[:, j] for part in intervals])
            data[f"guarantee_{name}"] = np.concatenate(
                [part.guarantee[:, j] for part in intervals]
            ).astype(str)
        frame = pl.DataFrame(data).with_columns(pl.col("^(lower|upper)_.*$").fill_nan(None))
        paid_mean = (
            pl.Series("tax_mean", np.concatenate(taxes))
            if taxes
            else pl.Series("tax_mean", [None] * len(values), dtype=pl.Float64)
        )
        frame = frame.with_columns(paid_mean).with_columns(
            net_mean=pl.col("mean") - pl.col("tax_mean")
        )
        return Lifetimes(frame, values, population(values))

    def _promising(self, paths: Paths) -> Calibrator:
        """The calibration, which promises nothing about a world that a scenario made."""
        return replace(self.calibrator, extrapolated=True) if paths.told else self.calibrator

    def _value_intervals(
        self,
        paths: Paths,
        values: NDArray[np.float64],
        coverage: Sequence[float],
        panel: Panel,
        rate: float,
        to_age: int,
        from_age: int | None,
    ) -> ValueIntervals:
        """Intervals of present values `values` (n, M): of the years to come, then with the observed past from `from_age` on added."""
        age = paths.origin_year - paths.birth_year
        if self.bundle.calibration is None:
            return ValueIntervals.none(len(paths), len(coverage))
        if not any(kind == "present_value" for kind, _ in self.calibrator.thresholds_of_kind) or (
            from_age is not None and (age < from_age).any()
        ):
            return ValueIntervals.central(values, coverage)
        ahead = values if from_age is None else present_value(paths, rate=rate, to_age=to_age)
        intervals = value_intervals(
            self._promising(paths), ahead, (to_age - age).astype(np.int64), coverage, rate
        )
        if from_age is None:
            return intervals
        past = observed_past(panel, paths, rate=rate, from_age=from_age)
        return intervals.moved(past, (1 + rate) ** -(age - from_age).astype(np.float64))


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """`table`: one row a person; `values` (n_person, n_path): every path's present value; `population`: see saga.lifetime.population."""

    table: pl.DataFrame
    values: NDArray[np.float64]
    population: pl.DataFrame


def _limit_columns(
    found: Limits, coverage: Sequence[float], person: NDArray[np.int64], horizon: NDArray[np.int64]
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for j, level in enumerate(coverage):
        name = level_name(level)
        data[f"at_least_{name}"] = found.at_least[person, horizon, j]
        data[f"at_most_{name}"] = found.at_most[person, horizon, j]
        data[f"guarantee_limits_{name}"] = found.guarantee[person, horizon, j].astype(str)
        data[f"positive_lower_{name}"] = found.positive_lower[person, horizon, j]
        data[f"positive_upper_{name}"] = found.positive_upper[person, horizon, j]
        data[f"guarantee_positive_{name}"] = found.positive_guarantee[person, horizon, j].astype(
            str
        )
    return data


def _band_columns(
    found: Intervals, person: NDArray[np.int64], horizon: NDArray[np.int64]
) -> dict[str, Any]:
    years = found.lower.shape[1]
    inside, at = horizon < years, (person, np.minimum(horizon, years - 1))
    data: dict[str, Any] = {}
    for j, level in enumerate(found.coverage):
        name = level_name(level)
        data[f"band_lower_{name}"] = np.where(inside, found.lower[..., j][at], np.nan)
        data[f"band_upper_{name}"] = np.where(inside, found.upper[..., j][at], np.nan)
        data[f"band_includes_zero_{name}"] = inside & found.includes_zero[..., j][at]
        data[f"guarantee_band_{name}"] = np.where(
            inside, found.guarantee[..., j][at], "none"
        ).astype(str)
    return data


def _taxed(earnings: pl.Series, tax: str) -> pl.Series:
    paid = income_tax(earnings.cast(pl.Float64).to_numpy(), tax)
    return pl.Series("earnings", paid).fill_nan(None)
