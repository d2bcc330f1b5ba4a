"""Coverage in time, with persons and seconds stated: what the calibrator promises, for one year, groups, sums and whole paths.

Usage: python -m studies.coverage_in_time [--bundle bundles/small] [--register DIR] [--forward DIR] [--persons N] [--out DIR] [--paths 25]
[--workers 1] [--rollout exact|light]

Split conformal prediction holds for any number of paths, so few are drawn; sets from few paths are wider, not less honest. Persons come
from a generated register; those whom the bundle was trained on take no part. A tenth fixes the cut-offs of groups, the rest is halved into
calibration and test persons by keyed hash. Where the register (or another one, --forward) has true futures, test persons are also forecast
from its last year and judged in each future: mean and spread of coverage over futures.

Exits 1 where a promise is missed, or a calibrator known to be broken passes for one that keeps them although there are persons enough to
tell. What no outcome or no interval measures counts neither as held nor as missed, and the last line says so.

Paths are kept in --out in parts of 10,000 persons: killed, the same command goes on where it stopped. For the bounds of the project's
promises give a register of 500,000 persons and some hours (seconds a person are printed). Without --register a small one is made.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.diagnostics.sampling_bands import coverage_band
from calibration.fit.cqr import fit_cqr
from calibration.fit.split_conformal import DEFAULT_ATOM_WIDTH, fit_calibration, in_map_fold
from calibration.fit.thresholds import fit_thresholds
from evaluation.scoring.futures import true_futures
from saga.conformal.calibrator import ALL, Calibrator
from saga.conformal.path_bands import band_intervals
from saga.conformal.prediction_sets import grow
from saga.conformal.present_value import value_intervals
from saga.data.groups import Grouping
from saga.data.origins import (
    Origins,
    draw_origins,
    history,
    last_year,
    origins_at,
    realised_earnings,
)
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import assign_parts
from saga.files.atomic import commit, commit_json, read_json
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.lifetime import present_value, realised_value
from saga.macro.scenarios import Scenario
from saga.paths import Paths
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from saga.requests import COVERAGE, RATE, Draws

Array = NDArray[np.float64]
Held = bool | None  # None: not measured
YEARS, HORIZONS = 10, (1, 5, 10)
PART, BLOCK = 10_000, 4_000
MAIN = ("quintile", "sex", "education_level")
CHANCES = (
    0.05,
    0.2,
    0.5,
    0.8,
    0.95,
)  # of zero earnings, as forecast: cuts of the table of what is not promised
SIMULTANEOUS = 0.99
NINETY = COVERAGE.index(0.9)


@dataclass(frozen=True)
class Bound:
    """Largest deviation, in points, that is promised with so many persons on each side (calibration persons: both folds)."""

    points: float
    persons: int


EVERYBODY, GROUP, VALUE, BAND = (
    Bound(0.3, 200_000),
    Bound(1.0, 50_000),
    Bound(0.5, 50_000),
    Bound(1.0, 50_000),
)


@dataclass(frozen=True)
class Job:
    """How paths are drawn: their number, the seed, and the economy that they follow (None: drawn)."""

    paths: int
    seed: int
    economy: Scenario | None = None


@dataclass(frozen=True)
class Side:
    """Raw paths of one side's persons with their groups, and what came true."""

    paths: Paths
    outcomes: Array


def strangers(panel: Panel, trained_as: str | None, seed: int) -> tuple[list[str], list[str]]:
    """Persons whom the bundle has not seen, in a keyed order, and those it was trained on."""
    ids = panel.persons()
    training: list[str] = []
    if panel.meta.panel_id == trained_as:
        part = assign_parts(trained_as, ids)
        training = [p for p, own in zip(ids, part, strict=True) if own == "train"]
        ids = [p for p, own in zip(ids, part, strict=True) if own in ("calibration", "test")]
    return [ids[i] for i in np.argsort(uniform_each(ids, "coverage-side", seed))], training


def sides(
    panel: Panel, trained_as: str | None, seed: int, persons: int | None
) -> dict[str, list[str]]:
    """Persons by role: "cut", "calibration", "test", each in a keyed order."""
    ids, training = strangers(panel, trained_as, seed)
    tenth = 0 if training else len(ids) // 10
    cut, kept = training or ids[:tenth], ids[tenth:]
    half = min(len(kept) // 2, persons or len(kept))
    return {"cut": cut, "calibration": kept[:half], "test": kept[-half:]}


def simulate(
    forecaster: Forecaster,
    panel: Panel,
    ids: list[str],
    choose: Callable[[Panel], Origins],
    grouping: Grouping,
    folder: Path,
    job: Job,
) -> Side:
    """Paths of one side from the origins that `choose` gives, part by part; parts that exist are read."""
    end, found = last_year(panel), []
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(ids), PART):
        file = folder / f"{start:07d}.npz"
        if not file.exists():
            people = panel.only(ids[start : start + PART])
            origins = choose(people)
            known = history(people, origins)
            made = forecaster.simulate(
                known,
                Draws(job.paths, job.seed, job.economy),
                to_horizon=YEARS,
                recalibrate=False,
            )
            arrays = {
                "person_id": made.person_id,
                "birth_year": made.birth_year,
                "origin_year": made.origin_year,
            }
            arrays |= {
                "earnings": made.earnings,
                "outcomes": realised_earnings(people, origins, range(1, YEARS + 1), end=end),
            }
            arrays |= {
                f"group_{name}": labels for name, labels in grouping.labels(known, origins).items()
            }
            commit(file, lambda part, arrays=arrays: _save(part, arrays))
        found.append(dict(np.load(file)))
    joined = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    groups = {
        name.removeprefix("group_"): labels
        for name, labels in joined.items()
        if name.startswith("group_")
    }
    names = ("person_id", "birth_year", "origin_year", "earnings")
    return Side(Paths(*(joined[name] for name in names), groups), joined["outcomes"])


def _save(part: Path, arrays: dict[str, NDArray[np.generic]]) -> None:
    with part.open("wb") as handle:  # given a name, numpy would add a suffix to it
        np.savez(handle, **arrays)


def claim(out: Path, about: dict[str, object]) -> None:
    """Make `out` the place of this run, or go on with it; stops where the parts there are another run's."""
    out.mkdir(parents=True, exist_ok=True)
    earlier = read_json(out / "run.json")
    if earlier not in (None, about):
        differ = ", ".join(name for name, value in about.items() if earlier.get(name) != value)
        sys.exit(
            f"{out} holds the paths of another run: {differ} differ. Give that run's arguments, or another --out."
        )
    commit_json(out / "run.json", about)


def blocks(side: Side) -> Iterator[tuple[Paths, Array]]:
    for start in range(0, len(side.paths), BLOCK):
        rows = slice(start, start + BLOCK)
        yield side.paths.take(rows), side.outcomes[rows]


def judge(calibrator: Calibrator, cqr: Calibrator, side: Side) -> dict[str, Array]:
    """Hits (1, 0, NaN): "sets" (n, H, L), "band" and "value" (n, L), "cqr" and "uncalibrated" (n, H) at 90 %. "chance" (n, H) of zero."""
    parts: list[dict[str, Array]] = []
    for raw, y in blocks(side):
        paths = calibrator.recalibrate(raw)
        complete = ~np.isnan(y).any(axis=1)
        together = band_intervals(calibrator, paths, YEARS, COVERAGE).covered(y).min(axis=1)
        truth = realised_value(y, rate=RATE)
        values = present_value(paths, rate=RATE, years=YEARS)
        whole = np.full((len(y), len(COVERAGE)), np.nan)
        found = value_intervals(
            calibrator, values[complete], np.full(int(complete.sum()), YEARS), COVERAGE, RATE
        )
        whole[complete] = (found.lower <= truth[complete, None]) & (
            truth[complete, None] <= found.upper
        )
        whole[complete] = np.where(np.isnan(found.lower), np.nan, whole[complete])
        together[~complete] = np.nan
        inside = cqr.intervals(cqr.recalibrate(raw), (0.9,)).covered(y)[..., 0]
        own_mass = np.full(y.shape, np.nan)
        for h in range(YEARS):
            known = np.flatnonzero(~np.isnan(y[:, h]))
            family = grow(np.sort(raw.earnings[known, h], axis=1), calibrator.scale).with_atom(
                DEFAULT_ATOM_WIDTH
            )
            own_mass[known, h] = family.score(y[known, h]) <= 0.9
        sets = calibrator.intervals(paths, COVERAGE).covered(y)
        chance = (paths.earnings == 0).mean(axis=2)
        parts.append(
            {
                "sets": sets,
                "band": together,
                "value": whole,
                "cqr": inside,
                "uncalibrated": own_mass,
                "chance": chance,
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def row(
    name: str,
    horizon: int,
    level: float,
    hits: Array,
    calibrated_on: int,
    cells: int,
    bound: Bound | None,
) -> tuple[str, Held]:
    """A line of the table, and whether the share lies inside its simultaneous band (of so many `cells`) and inside its bound.

    Without hits or calibration persons there is nothing to say: None.
    """
    known = hits[~np.isnan(hits)]
    if not len(known) or not calibrated_on:
        return (
            f"| {name} | {horizon} | {100 * level:g} | {len(known):,} | {calibrated_on:,} | | | not measured |",
            None,
        )
    low, high = coverage_band(
        level, len(known), calibrated_on, probability=1 - (1 - SIMULTANEOUS) / cells
    )
    share = known.mean()
    inside = bool(low - 1e-12 <= share <= high + 1e-12)
    verdict, held = "in band" if inside else "OUT OF BAND", True
    if bound is not None and min(len(known), 2 * calibrated_on) < bound.persons:
        verdict += f"; +-{bound.points:g} needs {bound.persons:,}"
    elif bound is not None:
        held = abs(share - level) <= bound.points / 100
        verdict += f"; {'within' if held else 'NOT WITHIN'} +-{bound.points:g}"
    line = f"| {name} | {horizon} | {100 * level:g} | {len(known):,} | {calibrated_on:,} | {100 * share:.2f} ({100 * (share - level):+.2f}) "
    return line + f"| {100 * low:.2f}-{100 * high:.2f} | {verdict} |", inside and held


def report(
    hits: dict[str, Array], calibration: Side, test: Side, seed: int
) -> tuple[list[Held], bool]:
    """Print the tables; of each cell of what is promised whether it holds, and whether the broken calibrator was found out."""
    half_b = ~in_map_fold(calibration.paths.person_id, seed)
    known = {h: half_b & ~np.isnan(calibration.outcomes[:, h - 1]) for h in HORIZONS}
    print(
        "| product | h or K | level | test persons | half B | covered % | simultaneous 99 % band | verdict |\n|"
        + "---|" * 8
    )
    promised: list[Held] = []
    for h in HORIZONS:
        for j, level in enumerate(COVERAGE):
            bound = EVERYBODY if level == 0.9 else None
            line, held = row(
                "sets, all",
                h,
                level,
                hits["sets"][:, h - 1, j],
                int(known[h].sum()),
                len(HORIZONS) * len(COVERAGE),
                bound,
            )
            promised.append(held)
            print(line)
    all_known = half_b & ~np.isnan(calibration.outcomes).any(axis=1)
    for name, bound in (("value", VALUE), ("band", BAND)):
        title = {"value": "present value of K years", "band": "band of K years"}[name]
        for j, level in enumerate(COVERAGE):
            line, held = row(
                title,
                YEARS,
                level,
                hits[name][:, j],
                int(all_known.sum()),
                2 * len(COVERAGE),
                bound if level == 0.9 else None,
            )
            promised.append(held)
            print(line)
    masks = {
        f"{g}={label}": (g, label)
        for g in MAIN
        for label in np.unique(test.paths.groups[g]).tolist()
        if label != "unknown"
    }
    for name, (g, label) in masks.items():
        own, theirs = test.paths.groups[g] == label, calibration.paths.groups[g] == label
        for h in HORIZONS:
            n = int((known[h] & theirs).sum())
            line, held = row(
                name, h, 0.9, hits["sets"][own, h - 1, NINETY], n, len(masks) * len(HORIZONS), GROUP
            )
            promised.append(held)
            print(line)
    outside, unmeasured, worst, cells = 0, 0, (0.0, ""), []
    for (one, (g, a)), (two, (k, b)) in combinations(masks.items(), 2):
        own = (test.paths.groups[g] == a) & (test.paths.groups[k] == b)
        theirs = (calibration.paths.groups[g] == a) & (calibration.paths.groups[k] == b)
        if g != k and own.sum() >= 1_000:
            cells += [
                (f"{one}, {two}", h, j, own, int((known[h] & theirs).sum()))
                for h in HORIZONS
                for j in range(len(COVERAGE))
            ]
    for name, h, j, own, n in cells:
        values = hits["sets"][own, h - 1, j]
        held = row(name, h, COVERAGE[j], values, n, len(cells), None)[1]
        if held is None:
            unmeasured += 1
            continue
        outside += not held
        off = abs(float(np.nanmean(values)) - COVERAGE[j])
        worst = max(worst, (off, f"{name}, h={h}, {100 * COVERAGE[j]:g} %"))
    print(
        f"\nPairs of groups of 1,000 and more test persons, all levels and horizons: {outside} of {len(cells)} cells out of the band,"
    )
    print(
        f"{unmeasured} not measured; worst {100 * worst[0]:.2f} points ({worst[1] or 'no cell'})."
    )
    print("Bands of groups count the group's persons of half B.\n")
    print(
        "| for comparison | h | level | test persons | calibrated on | covered % | simultaneous 99 % band | verdict |\n|"
        + "---|" * 8
    )
    found_out = False
    for name in ("cqr", "uncalibrated"):
        for h in HORIZONS:
            n = (
                int(known[h].sum())
                if name != "cqr"
                else int((~np.isnan(calibration.outcomes[:, h - 1])).sum())
            )
            line, held = row(name, h, 0.9, hits[name][:, h - 1], n, len(HORIZONS), EVERYBODY)
            found_out |= name == "uncalibrated" and held is False
            print(line)
    return promised, found_out


def conclusion(promised: Sequence[Held], found_out: bool, persons: int) -> tuple[str, int]:
    """The last line and the exit status, of the cells of what is promised and `persons` on the smaller side."""
    missed, unmeasured = promised.count(False), promised.count(None)
    if missed or unmeasured == len(promised):
        return (
            f"NOT as promised: of {len(promised)} cells {missed} missed, {unmeasured} not measured.",
            1,
        )
    if not found_out and persons >= EVERYBODY.persons:
        return (
            "NOT as promised: the broken calibrator is inside its band, too, so that this check sees nothing.",
            1,
        )
    if unmeasured or not found_out:
        blind = "" if found_out else " The broken calibrator is inside its band, too."
        return (
            f"No promise is missed; not measured: {unmeasured} of {len(promised)} cells.{blind} Give more persons to know.",
            0,
        )
    return "Every promise is inside its band, and the broken calibrator is not.", 0


def report_given(hits: dict[str, Array], outcomes: Array) -> None:
    """Print coverage given the outcome, and given the chance of zero that was forecast: of neither is anything promised."""
    print(
        "\n| not promised: given | h | test persons | "
        + " | ".join(f"{100 * level:g} %" for level in COVERAGE)
        + " |"
    )
    print("|" + "---|" * (3 + len(COVERAGE)))
    for h in HORIZONS:
        y, band = outcomes[:, h - 1], np.digitize(hits["chance"][:, h - 1], CHANCES)
        masks = {"zero earnings": y == 0, "positive earnings": y > 0}
        for i, (low, high) in enumerate(pairwise((0.0, *CHANCES, 1.0))):
            masks[f"chance of zero {100 * low:g} to {100 * high:g} %"] = (band == i) & ~np.isnan(y)
        for name, own in masks.items():
            if own.any():
                known = (column[~np.isnan(column)] for column in hits["sets"][own, h - 1].T)
                shares = " | ".join(
                    f"{100 * column.mean():.1f}" if len(column) else "not measured"
                    for column in known
                )
                print(f"| {name} | {h} | {own.sum():,} | {shares} |")


def judge_forward(calibrator: Calibrator, side: Side, futures: Array) -> dict[str, Array]:
    """Coverage at 90 % in each of the `futures` (F, n, H): "sets" (F, H), "sets, quintile=..." (F, H), "band" and "value" (F, 1)."""
    hits: dict[str, list[Array]] = {"sets": [], "band": [], "value": []}
    for start in range(0, len(side.paths), BLOCK):
        rows = slice(start, start + BLOCK)
        paths, y = calibrator.recalibrate(side.paths.take(rows)), futures[:, rows]
        sets, together = (
            calibrator.intervals(paths, [0.9]),
            band_intervals(calibrator, paths, YEARS, [0.9]),
        )
        values = present_value(paths, rate=RATE, years=YEARS)
        found = value_intervals(calibrator, values, np.full(len(values), YEARS), [0.9], RATE)
        truth = np.stack(
            [realised_value(outcomes, rate=RATE) for outcomes in y]
        )  # unknown where age 64 comes before
        inside = (found.lower[:, 0] <= truth) & (truth <= found.upper[:, 0])
        value = np.where(np.isnan(truth) | np.isnan(found.lower[:, 0]), np.nan, inside)
        hits["sets"].append(np.stack([sets.covered(outcomes)[:, :, 0] for outcomes in y]))
        hits["band"].append(
            np.stack([together.covered(outcomes)[:, :, 0].min(axis=1) for outcomes in y])[
                :, :, None
            ]
        )
        hits["value"].append(value[:, :, None])
    joined = {name: np.concatenate(parts, axis=1) for name, parts in hits.items()}
    for label in np.unique(side.paths.groups.get("quintile", np.empty(0, dtype=str))).tolist():
        if label != "unknown":
            joined[f"sets, quintile={label}"] = joined["sets"][
                :, side.paths.groups["quintile"] == label
            ]
    return {name: np.nanmean(own, axis=1) for name, own in joined.items()}


def report_forward(covered: dict[str, Array], persons: int) -> None:
    """Print mean, spread and range of coverage over the futures."""
    futures = len(covered["sets"])
    print(
        f"\nForward: {persons:,} test persons from the last year on, in each of {futures} drawn macro futures, 90 %.\n"
    )
    print("| product | h or K | mean % | SD over futures | lowest | highest |\n|" + "---|" * 6)
    for name, shares in covered.items():
        for h in HORIZONS if shares.shape[1] > 1 else (YEARS,):
            own = 100 * shares[:, h - 1 if shares.shape[1] > 1 else 0]
            spread = f"{own.std(ddof=1):.2f}" if futures > 1 else ""
            title = {
                "value": "present value of K years",
                "band": "band of K years",
                "sets": "sets, all",
            }.get(name, name)
            print(
                f"| {title} | {h} | {own.mean():.2f} ({own.mean() - 90:+.2f}) | {spread} | {own.min():.2f} | {own.max():.2f} |"
            )


def main() -> int:
    """Simulate, fit, judge, print; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument(
        "--register",
        type=Path,
        help="a generated register; without it one of 2,000 persons with 3 futures is made",
    )
    parser.add_argument(
        "--forward",
        type=Path,
        help="a generated register with futures; by default the register itself, if it has any",
    )
    parser.add_argument("--persons", type=int, help="at most so many persons on each side")
    parser.add_argument(
        "--forward-persons",
        type=int,
        default=20_000,
        help="at most so many persons in the forward part",
    )
    parser.add_argument("--out", type=Path, help="where paths are kept, to go on later")
    parser.add_argument("--paths", type=int, default=25)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rollout",
        choices=["exact", "light"],
        help="how paths are carried; by default as the bundle is calibrated",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        register, out = (
            given.register or Path(scratch) / "register",
            given.out or Path(scratch) / "paths",
        )
        if given.register is None:
            generate_register(
                register,
                RegisterSettings(persons=2_000, seed=11, future_to=2022 + YEARS, future_draws=3),
            )
        start = time.perf_counter()
        panel, forecaster = (
            read_panel(register),
            Forecaster.load(given.bundle, threads=1, workers=given.workers, rollout=given.rollout),
        )
        trained_as, job = forecaster.bundle.split.get("panel_id"), Job(given.paths, given.seed)
        about = {
            "model": forecaster.bundle.model_digest,
            "rollout": forecaster.rollout,
            "panel": panel.meta.panel_id,
        }
        claim(out, {**about, "persons": given.persons, "paths": given.paths, "seed": given.seed})
        roles = sides(panel, trained_as, given.seed, given.persons)
        grouping, end = Grouping.fit(panel.only(roles["cut"])), last_year(panel)

        def drawn(people: Panel) -> Origins:
            return draw_origins(people, max_horizon=YEARS, seed=given.seed, end=end)

        calibration, test = (
            simulate(forecaster, panel, roles[side], drawn, grouping, out / side, job)
            for side in ("calibration", "test")
        )
        simulated = time.perf_counter() - start
        learners = sorted(
            calibration.paths.person_id[
                in_map_fold(calibration.paths.person_id, given.seed)
            ].tolist()
        )
        told = replace(job, economy=forecaster.realised_macro(panel, end))
        came = None
        if told.economy is not None and learners:
            came = simulate(
                forecaster, panel, learners, drawn, grouping, out / "calibration-economy", told
            ).paths
        learnt = time.perf_counter() - start - simulated
        fitted = fit_calibration(
            calibration.paths, calibration.outcomes, seed=given.seed, realised=came
        )
        fitted = fit_thresholds(fitted, calibration.paths, calibration.outcomes, seed=given.seed)
        hits = judge(fitted, fit_cqr(calibration.paths, calibration.outcomes), test)
        persons = len(calibration.paths) + len(test.paths)
        each, rest = 1_000 * simulated / persons, time.perf_counter() - start - simulated - learnt
        print(
            f"{given.bundle} on {panel.meta.panel_id}: {len(calibration.paths):,} calibration and {len(test.paths):,} test persons,"
        )
        print(
            f"{given.paths} paths of {YEARS} years ({forecaster.rollout} rollout), seed {given.seed};"
        )
        print(
            f"{simulated:,.0f} s to read and simulate ({each:.1f} ms a person), {learnt:,.0f} s more for half A told the economy,"
        )
        print(
            f"{rest:,.0f} s to fit and judge. Cells of groups: {sum(group != ALL for _, group in fitted.cells)}.\n"
        )
        promised, found_out = report(hits, calibration, test, given.seed)
        report_given(hits, test.outcomes)
        verdict, status = conclusion(
            promised, found_out, min(len(calibration.paths), len(test.paths))
        )
        print(f"\n{verdict}", flush=True)
        ahead = given.forward or register
        if (ahead / "future").is_dir():
            if given.forward is not None and given.forward != register:
                panel = read_panel(ahead)
                roles["test"] = strangers(panel, trained_as, given.seed)[0]
            people = panel.only(sorted(roles["test"][: given.forward_persons]))
            origins = origins_at(people, last_year(panel))
            ids = [str(person) for person in origins.person_id]
            place = out / f"forward-{panel.meta.panel_id}-{given.forward_persons}"
            side = simulate(
                forecaster,
                people,
                ids,
                lambda some: origins_at(some, last_year(panel)),
                grouping,
                place,
                job,
            )
            drawn_futures = true_futures(
                ahead, origins, range(1, YEARS + 1), price_year=panel.meta.price_year
            )
            futures = np.stack([outcomes for _, outcomes in drawn_futures])
            report_forward(judge_forward(fitted, side, futures), len(ids))
    return status


if __name__ == "__main__":
    sys.exit(main())
