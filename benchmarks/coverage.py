"""Coverage in time, with persons and seconds stated: what the calibrator promises, for one year, groups, sums and whole paths.

Usage: python benchmarks/coverage.py [--bundle bundles/small] [--register DIR] [--persons N] [--out DIR] [--paths 25] [--workers 1]

Split conformal prediction holds for any number of paths, so few are drawn; sets from few paths are wider, not less honest. Persons come
from a generated register; those whom the bundle was trained on take no part. A tenth fixes the cut-offs of groups, the rest is halved into
calibration and test persons by keyed hash. Paths are kept in --out in parts of 2,000 persons: the same command goes on where it stopped.
For the bounds of the project's promises give a register of 500,000 persons and the patience of some hours (seconds a person are printed).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.bands import coverage_band
from calibration.cqr import cqr_intervals, fit_cqr
from calibration.fit import LEVELS, fit_calibration, halves
from calibration.limits import fit_limits
from saga.bands import bands
from saga.calibrators import ALL, Calibrator
from saga.forecaster import Forecaster
from saga.groups import Grouping
from saga.ingest import read_panel
from saga.keyed import uniform_each
from saga.lifetime import RATE, realised_value
from saga.lifetime_sets import value_intervals
from saga.outcomes import draw_origins, history, last_year, realised
from saga.panel import Panel
from saga.paths import Paths
from saga.register.simulate import generate_register
from saga.sets import grow
from saga.split import split_of

Array = NDArray[np.float64]
YEARS, HORIZONS = 10, (1, 5, 10)
PART, BLOCK = 2_000, 4_000
MAIN = ("quintile", "sex", "education_level")
SIMULTANEOUS = 0.99
NINETY = LEVELS.index(0.9)


@dataclass(frozen=True)
class Bound:
    """Largest deviation, in points, that is promised with so many persons on each side (calibration persons: both halves)."""

    points: float
    persons: int


EVERYBODY, GROUP, VALUE, BAND = Bound(0.3, 200_000), Bound(1.0, 50_000), Bound(0.5, 50_000), Bound(1.0, 50_000)


@dataclass(frozen=True)
class Side:
    """Raw paths of one side's persons with their groups, and what came true."""

    paths: Paths
    outcomes: Array


def sides(panel: Panel, trained_as: str | None, seed: int, persons: int | None) -> dict[str, list[str]]:
    """Persons by role: "cut", "calibration", "test"."""
    ids = panel.persons()
    if panel.meta.panel_id == trained_as:
        part = split_of(trained_as, ids)
        training = [p for p, own in zip(ids, part, strict=True) if own == "train"]
        ids = [p for p, own in zip(ids, part, strict=True) if own in ("calibration", "test")]
    u = uniform_each(ids, "coverage-side", seed)
    order = np.argsort(u)
    tenth = 0 if panel.meta.panel_id == trained_as else len(ids) // 10
    cut = [ids[i] for i in order[:tenth]] if tenth else training
    kept = [ids[i] for i in order[tenth:]]
    half = min(len(kept) // 2, persons or len(kept))
    return {"cut": cut, "calibration": sorted(kept[:half]), "test": sorted(kept[-half:])}


def simulate(forecaster: Forecaster, panel: Panel, ids: list[str], grouping: Grouping, folder: Path, paths: int, seed: int) -> Side:
    """Paths of one side, part by part; parts that exist are read."""
    end, found = last_year(panel), []
    for start in range(0, len(ids), PART):
        file = folder / f"{start:07d}.npz"
        if not file.exists():
            people = panel.only(ids[start : start + PART])
            origins = draw_origins(people, max_horizon=YEARS, seed=seed, end=end)
            known = history(people, origins)
            made = forecaster.simulate(known, to_horizon=YEARS, paths=paths, seed=seed, calibrated=False)
            arrays = {"person_id": made.person_id, "birth_year": made.birth_year, "origin_year": made.origin_year}
            arrays |= {"earnings": made.earnings, "outcomes": realised(people, origins, range(1, YEARS + 1), end=end)}
            unfinished = file.with_suffix(".tmp.npz")
            np.savez(unfinished, **arrays, **{f"group_{name}": labels for name, labels in grouping.labels(known, origins).items()})
            unfinished.rename(file)
        found.append(dict(np.load(file)))
    joined = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    groups = {name.removeprefix("group_"): labels for name, labels in joined.items() if name.startswith("group_")}
    names = ("person_id", "birth_year", "origin_year", "earnings")
    return Side(Paths(*(joined[name] for name in names), groups), joined["outcomes"])


def blocks(side: Side) -> Iterator[tuple[Paths, Array]]:
    for start in range(0, len(side.paths), BLOCK):
        rows = slice(start, start + BLOCK)
        yield side.paths.take(rows), side.outcomes[rows]


def judge(calibrator: Calibrator, cqr: Array | None, side: Side) -> dict[str, Array]:
    """Hits (1, 0, NaN): "sets" (n, H, L), "band" and "value" (n, L), "cqr" and "uncalibrated" (n, H) at 90 %."""
    parts: list[dict[str, Array]] = []
    for raw, y in blocks(side):
        paths = calibrator.recalibrate(raw)
        complete = ~np.isnan(y).any(axis=1)
        together = bands(calibrator, paths, YEARS, LEVELS).covered(y).min(axis=1)
        truth = realised_value(y, rate=RATE)
        values = (paths.earnings.astype(np.float64) * (1 + RATE) ** -np.arange(1.0, YEARS + 1)[:, None]).sum(axis=1)
        whole = np.full((len(y), len(LEVELS)), np.nan)
        found = value_intervals(calibrator, values[complete], np.full(int(complete.sum()), YEARS), LEVELS, RATE)
        whole[complete] = (found.lower <= truth[complete, None]) & (truth[complete, None] <= found.upper)
        whole[complete] = np.where(np.isnan(found.lower), np.nan, whole[complete])
        together[~complete] = np.nan
        lower, upper = cqr_intervals(cqr, raw, 0.9)
        inside = np.where(np.isnan(y) | np.isnan(lower), np.nan, (lower <= y) & (y <= upper))
        own_mass = np.full(y.shape, np.nan)
        for h in range(YEARS):
            known = np.flatnonzero(~np.isnan(y[:, h]))
            family = grow(np.sort(raw.earnings[known, h], axis=1), calibrator.scale).with_atom(0.5)
            own_mass[known, h] = family.score(y[known, h]) <= 0.9
        sets = calibrator.intervals(paths, LEVELS).covered(y)
        parts.append({"sets": sets, "band": together, "value": whole, "cqr": inside, "uncalibrated": own_mass})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def row(name: str, horizon: int, level: float, hits: Array, calibrated_on: int, cells: int, bound: Bound | None) -> tuple[str, bool]:
    """A line of the table, and whether the share lies inside its simultaneous band (of so many `cells`) and inside its bound."""
    known = hits[~np.isnan(hits)]
    if not len(known) or not calibrated_on:
        return f"| {name} | {horizon} | {100 * level:g} | {len(known):,} | {calibrated_on:,} | | | no outcome |", True
    low, high = coverage_band(level, len(known), calibrated_on, probability=1 - (1 - SIMULTANEOUS) / cells)
    share = known.mean()
    inside = bool(low - 1e-12 <= share <= high + 1e-12)
    verdict, held = "in band" if inside else "OUT OF BAND", True
    if bound is not None and min(len(known), 2 * calibrated_on) < bound.persons:
        verdict += f"; +-{bound.points:g} needs {bound.persons:,}"
    elif bound is not None:
        held = abs(share - level) <= bound.points / 100
        verdict += f"; {'within' if held else 'NOT WITHIN'} +-{bound.points:g}"
    line = (
        f"| {name} | {horizon} | {100 * level:g} | {len(known):,} | {calibrated_on:,} | {100 * share:.2f} ({100 * (share - level):+.2f}) "
    )
    return line + f"| {100 * low:.2f}-{100 * high:.2f} | {verdict} |", inside and held


def report(hits: dict[str, Array], calibration: Side, test: Side, seed: int) -> bool:
    """Print the tables; whether everything that must hold is inside its band, and the broken calibrator is not."""
    half_b = ~halves(calibration.paths.person_id, seed)
    known = {h: half_b & ~np.isnan(calibration.outcomes[:, h - 1]) for h in HORIZONS}
    print("| product | h or K | level | test persons | half B | covered % | simultaneous 99 % band | verdict |\n|" + "---|" * 8)
    good = True
    for h in HORIZONS:
        for j, level in enumerate(LEVELS):
            bound = EVERYBODY if level == 0.9 else None
            line, inside = row("sets, all", h, level, hits["sets"][:, h - 1, j], int(known[h].sum()), len(HORIZONS) * len(LEVELS), bound)
            good &= inside
            print(line)
    all_known = half_b & ~np.isnan(calibration.outcomes).any(axis=1)
    for name, bound in (("value", VALUE), ("band", BAND)):
        title = {"value": "present value of K years", "band": "band of K years"}[name]
        for j, level in enumerate(LEVELS):
            line, inside = row(
                title, YEARS, level, hits[name][:, j], int(all_known.sum()), 2 * len(LEVELS), bound if level == 0.9 else None
            )
            good &= inside
            print(line)
    masks = {f"{g}={label}": (g, label) for g in MAIN for label in np.unique(test.paths.groups[g]).tolist() if label != "unknown"}
    for name, (g, label) in masks.items():
        own, theirs = test.paths.groups[g] == label, calibration.paths.groups[g] == label
        for h in HORIZONS:
            n = int((known[h] & theirs).sum())
            line, inside = row(name, h, 0.9, hits["sets"][own, h - 1, NINETY], n, len(masks) * len(HORIZONS), GROUP)
            good &= inside
            print(line)
    outside, worst, cells = 0, (0.0, ""), []
    for (one, (g, a)), (two, (k, b)) in combinations(masks.items(), 2):
        own = (test.paths.groups[g] == a) & (test.paths.groups[k] == b)
        theirs = (calibration.paths.groups[g] == a) & (calibration.paths.groups[k] == b)
        if g != k and own.sum() >= 1_000:
            cells += [(f"{one}, {two}", h, j, own, int((known[h] & theirs).sum())) for h in HORIZONS for j in range(len(LEVELS))]
    for name, h, j, own, n in cells:
        values = hits["sets"][own, h - 1, j]
        if not row(name, h, LEVELS[j], values, n, len(cells), None)[1]:
            outside += 1
        off = abs(float(np.nanmean(values)) - LEVELS[j])
        worst = max(worst, (off, f"{name}, h={h}, {100 * LEVELS[j]:g} %"))
    print(f"\nPairs of groups of 1,000 and more test persons, all levels and horizons: {outside} of {len(cells)} cells out of the band;")
    print(f"worst {100 * worst[0]:.2f} points ({worst[1] or 'no cell'}). Bands of groups count the group's persons of half B.\n")
    print("| for comparison | h | level | test persons | calibrated on | covered % | simultaneous 99 % band | verdict |\n|" + "---|" * 8)
    broken = False
    for name in ("cqr", "uncalibrated"):
        for h in HORIZONS:
            n = int(known[h].sum()) if name != "cqr" else int((~np.isnan(calibration.outcomes[:, h - 1])).sum())
            line, inside = row(name, h, 0.9, hits[name][:, h - 1], n, len(HORIZONS), EVERYBODY)
            broken |= name == "uncalibrated" and not inside
            print(line)
    return good and broken


def main() -> None:
    """Simulate, fit, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument("--register", type=Path, help="a generated register; without it one of 5,000 persons is made")
    parser.add_argument("--persons", type=int, help="at most so many persons on each side")
    parser.add_argument("--out", type=Path, help="where paths are kept, to go on later")
    parser.add_argument("--paths", type=int, default=25)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        register, out = given.register or Path(scratch) / "register", given.out or Path(scratch) / "paths"
        if given.register is None:
            generate_register(register, persons=5_000, seed=11)
        start = time.perf_counter()
        panel, forecaster = read_panel(register), Forecaster.load(given.bundle, threads=1, workers=given.workers)
        roles = sides(panel, forecaster.bundle.split.get("panel_id"), given.seed, given.persons)
        grouping = Grouping.fit(panel.only(roles["cut"]))
        made = {}
        for side in ("calibration", "test"):
            folder = out / side
            folder.mkdir(parents=True, exist_ok=True)
            made[side] = simulate(forecaster, panel, roles[side], grouping, folder, given.paths, given.seed)
        simulated = time.perf_counter() - start
        calibration, test = made["calibration"], made["test"]
        fitted = fit_calibration(calibration.paths, calibration.outcomes, seed=given.seed, scale=panel.meta.floor)
        fitted = fit_limits(fitted, calibration.paths, calibration.outcomes, seed=given.seed)
        hits = judge(fitted, fit_cqr(calibration.paths, calibration.outcomes, LEVELS), test)
        persons = len(calibration.paths) + len(test.paths)
        each, rest = 1_000 * simulated / persons, time.perf_counter() - start - simulated
        print(f"{given.bundle} on {panel.meta.panel_id}: {len(calibration.paths):,} calibration and {len(test.paths):,} test persons,")
        print(f"{given.paths} paths of {YEARS} years, seed {given.seed}; {simulated:,.0f} s to simulate ({each:.1f} ms a person),")
        print(f"{rest:,.0f} s to fit and judge. Cells of groups: {sum(group != ALL for _, group in fitted.cells)}.\n")
        good = report(hits, calibration, test, given.seed)
        print(f"\n{'Every promise is inside its band, and the broken calibrator is not.' if good else 'NOT as promised.'}")


if __name__ == "__main__":
    main()
