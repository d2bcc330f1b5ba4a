"""Are the circumstances drawn along paths those that people have: shares, dependence on earnings, persistence, beside the truth.

    python -m studies.simulated_states --register DIR [--bundle bundles/small] [--persons 4000] [--paths 40] [--origin 2002] [--seed 0]
        [--report FILE]

DIR is a generated register that the bundle was not trained on, its futures with `--future-records`. In-time, everybody of 20 to 60 years
at the end of --origin is followed to the panel's end; forward, from the panel's end over the drawn futures.

Simulated circumstances beside what became of the same people: shares, their dependence on earnings, and how fast they change.

In-time the people's later records are the truth; forward the register's true futures, over the drawn economies. Both are put beside
life courses drawn from the records up to the origin. People abroad for a time only are in neither.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import cut, last_year
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError, Problem
from saga.features.transforms import Transforms
from saga.forecaster import Forecaster
from saga.requests import Draws
from saga.schema import MAX_AGE, NAMES
from saga.states.codes import COLUMNS, INDUSTRY, STATE, STATES, code_labels, code_numbers
from saga.states.life_courses import ABROAD_STATE, DEAD_STATE
from studies.cross_section import FollowedPersons, follow_persons
from studies.harness import code_commit, command_line, study_parser

FIFTHS = 5  # groups of positive earnings, beside zero, for the dependence on earnings
HORIZONS = (1, 5, 10, 20)
NOT_OBSERVED = -1


@dataclass(frozen=True, eq=False)
class Futures:
    """M futures of n persons: `earnings` (n, H, M) and `codes` (n, H, M, 7), numbers as in `saga.states.life_courses`, NOT_OBSERVED where unknown."""

    earnings: NDArray[np.float32]
    codes: NDArray[np.int16]


def at_origin(who: FollowedPersons, transforms: Transforms) -> NDArray[np.int16]:
    """(n, 7) numbers in the origin year."""
    rows = who.past.frame.filter(pl.col("year") == last_year(who.past))
    return code_numbers(rows, transforms)


def simulated(
    forecaster: Forecaster,
    who: FollowedPersons,
    horizons: int,
    *,
    paths: int,
    seed: int,
    progress: Any = None,
) -> Futures:
    """Life courses of everybody, `horizons` years of them."""
    earnings, codes = [], []
    for block in forecaster.life_courses(who.past, Draws(paths, seed), progress=progress):
        n, width, m = block.paths.earnings.shape
        kept = min(width, horizons)
        money, numbered = (
            np.full((n, horizons, m), np.nan, np.float32),
            np.full((n, horizons, m, len(COLUMNS)), NOT_OBSERVED, np.int16),
        )
        money[:, :kept] = block.paths.earnings[:, :kept]
        numbered[:, :kept] = np.stack(list(block.numbers.values()), -1)[:, :kept]
        earnings.append(money)
        codes.append(
            np.where(np.isfinite(money)[..., None], numbered, NOT_OBSERVED).astype(np.int16)
        )
    return Futures(np.concatenate(earnings), np.concatenate(codes))


def recorded(panel: Panel, who: FollowedPersons, horizons: int, transforms: Transforms) -> Futures:
    """What the panel's later years say of the same persons: one future."""
    return _future(panel.frame, who, horizons, transforms)


def true_courses(
    register: Path, who: FollowedPersons, horizons: int, transforms: Transforms
) -> Iterator[Futures]:
    """One future a draw of a register with `--future-records`. Raises InputError where its futures hold earnings alone."""
    for path in sorted(
        register.glob("future/draw=*"), key=lambda each: int(each.name.removeprefix("draw="))
    ):
        files = pl.scan_parquet(path / "**" / "*.parquet", hive_partitioning=False)
        if missing := [name for name in NAMES if name not in files.collect_schema()]:
            problem = Problem(
                "no-records",
                f"{path.name} lacks {missing[0]}",
                "Generate the register with --future-records.",
            )
            raise InputError("The register's futures hold no circumstances", [problem])
        persons = who.origins.frame().lazy().select("person_id")
        yield _future(
            files.join(persons, on="person_id", how="semi").collect(), who, horizons, transforms
        )


def _future(
    rows: pl.DataFrame, who: FollowedPersons, horizons: int, transforms: Transforms
) -> Futures:
    n, origin = len(who.origins), who.origins.year
    index = {person: i for i, person in enumerate(who.origins.person_id.tolist())}
    rows = rows.filter(pl.col("person_id").is_in(list(index)))
    i = np.array([index[person] for person in rows["person_id"]], np.int64)
    ahead = rows["year"].to_numpy() - origin[i]
    inside = (ahead >= 1) & (ahead <= horizons)
    earnings = np.full((n, horizons), np.nan, np.float32)
    codes = np.full((n, horizons, len(COLUMNS)), NOT_OBSERVED, np.int16)
    money = rows["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    here = inside & rows["county"].is_not_null().to_numpy()  # the dead and those abroad have none
    earnings[i[inside], ahead[inside] - 1] = money[inside]
    codes[i[here], ahead[here] - 1] = code_numbers(rows.filter(pl.Series(here)), transforms)
    codes[..., STATE] = np.where(codes[..., STATE] == 0, NOT_OBSERVED, codes[..., STATE])
    leaving = (
        rows.group_by("person_id")
        .agg(pl.col("exit_year").first(), pl.col("exit_reason").first())
        .drop_nulls()
    )
    years = origin[:, None] + np.arange(1, horizons + 1)
    for person, year, reason in leaving.iter_rows():
        gone = years[index[person]] >= year
        codes[index[person], gone] = 0
        codes[index[person], gone, STATE] = DEAD_STATE if reason == "dead" else ABROAD_STATE
    old = years - who.born[:, None] > MAX_AGE
    codes[old], earnings[old] = NOT_OBSERVED, np.nan
    return Futures(earnings[..., None], codes[:, :, None])


def measured(
    futures: Futures, before: NDArray[np.int16], horizons: Sequence[int] = HORIZONS
) -> pl.DataFrame:
    """Columns `horizon`, `column`, `kind`, `key`, `value`, `n` (persons and paths).

    Kinds: "share" of each code, dead and abroad counted as states, other columns of those in the register; "joint", of a code and a
    group of earnings (zero, fifths of the positive of each future) of those in the register; "kept", as in the origin year; "changed",
    within the year.
    """
    found = []
    for h in horizons:
        gone = (
            futures.codes[:, h - 1, :, STATE] >= DEAD_STATE
        )  # records of them end, while the model knows what they earn
        earnings = np.where(gone, np.nan, futures.earnings[:, h - 1])
        group = np.column_stack([_groups(one) for one in earnings.T])
        for j, name in enumerate(COLUMNS):
            now = futures.codes[:, h - 1, :, j]
            past = (
                futures.codes[:, h - 2, :, j]
                if h > 1
                else np.broadcast_to(before[:, None, j], now.shape)
            )
            first = np.broadcast_to(before[:, None, j], now.shape)
            here = (
                (now > 0)
                if j != INDUSTRY
                else (now >= 0) & (futures.codes[:, h - 1, :, STATE] < DEAD_STATE)
            )
            count = int(here.sum())
            if not count:
                continue
            for code, value in zip(*np.unique(now[here], return_counts=True), strict=True):
                found.append((h, name, "share", str(code), value / count, count))
            both = here & np.isfinite(earnings)
            for code, value in zip(
                *np.unique(now[both] * (FIFTHS + 1) + group[both], return_counts=True), strict=True
            ):
                found.append((h, name, "joint", str(code), value / both.sum(), int(both.sum())))
            told = here & (first > 0) & (now > 0)
            found.append((h, name, "kept", "", float((now == first)[told].mean()), int(told.sum())))
            told = here & (past > 0) & (now > 0)
            found.append(
                (h, name, "changed", "", float((now != past)[told].mean()), int(told.sum()))
            )
    kinds = {
        "horizon": pl.Int32,
        "column": pl.String,
        "kind": pl.String,
        "key": pl.String,
        "value": pl.Float64,
        "n": pl.Int64,
    }
    return pl.DataFrame(found, schema=kinds, orient="row")


def _groups(earnings: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Of one future's earnings (n,): 0 for zero, 1 to 5 for fifths of the positive, whose level so plays no part."""
    positive = earnings > 0
    cuts = np.quantile(earnings[positive], np.arange(1, FIFTHS) / FIFTHS)
    return np.where(positive, 1 + np.searchsorted(cuts, np.nan_to_num(earnings)), 0)


def compare(
    model: pl.DataFrame, truth: Sequence[pl.DataFrame], transforms: Transforms
) -> pl.DataFrame:
    """One row a column and horizon: distances of the model's shares from the true ones, averaged over true futures.

    `distance` and `joint` are total variation distances, in points; `chance`, `joint_chance` what they would be for a perfect
    model, as the truth is a sample of `persons`; `code`, `code_model`, `code_true` the largest difference of a share; `kept_*` and
    `changed_*` are shares.
    """
    names = {
        column: (*codes, "dead", "abroad") if column == "state" else codes
        for column, codes in code_labels(transforms).items()
    }
    true = (
        pl.concat(truth)
        .group_by("horizon", "column", "kind", "key")
        .agg(pl.col("value").sum() / len(truth), pl.col("n").mean())
    )
    both = model.join(
        true, on=["horizon", "column", "kind", "key"], how="full", suffix="_true", coalesce=True
    )
    both = both.with_columns(pl.col("value", "value_true").fill_null(0.0))
    rows = []
    for (h, column), part in sorted(
        both.group_by("horizon", "column"),
        key=lambda each: (COLUMNS.index(str(each[0][1])), each[0][0]),
    ):
        share, joint = (part.filter(pl.col("kind") == kind) for kind in ("share", "joint"))
        worst = share.sort((pl.col("value") - pl.col("value_true")).abs(), descending=True).row(
            0, named=True
        )
        number, persons = int(worst["key"]), float(share["n_true"].max())  # type: ignore[arg-type]
        one = {
            name: part.filter(pl.col("kind") == name).row(0, named=True)
            for name in ("kept", "changed")
        }
        rows.append(
            {
                "column": column,
                "horizon": h,
                "persons": round(persons),
                "distance": _distance(share),
                "chance": _chance(share, persons),
                "joint": _distance(joint),
                "joint_chance": _chance(joint, persons),
                "code": names[str(column)][number - 1] if number else "none",
                "code_model": 100 * worst["value"],
                "code_true": 100 * worst["value_true"],
                **{f"{name}_model": 100 * each["value"] for name, each in one.items()},
                **{f"{name}_true": 100 * each["value_true"] for name, each in one.items()},
            }
        )
    return pl.DataFrame(rows)


def _distance(part: pl.DataFrame) -> float:
    return 50 * float((part["value"] - part["value_true"]).abs().sum())


def _chance(part: pl.DataFrame, persons: float) -> float:
    p = part["value_true"].to_numpy()
    return 50 * float(np.sqrt(2 / np.pi * p * (1 - p) / persons).sum())


def as_markdown(table: pl.DataFrame) -> str:
    """The table of `compare`."""
    head = (
        "| column | years ahead | persons | distance (chance) | with earnings (chance) | largest difference: model, truth "
        "| as at the origin: model, truth | changed in the year: model, truth |\n|---|---|---|---|---|---|---|---|"
    )
    lines = [head]
    for r in table.iter_rows(named=True):
        lines.append(
            f"| {r['column']} | {r['horizon']} | {r['persons']:,} | {r['distance']:.1f} ({r['chance']:.1f}) | {r['joint']:.1f} "
            f"({r['joint_chance']:.1f}) | {r['code']}: {r['code_model']:.1f}, {r['code_true']:.1f} | {r['kept_model']:.1f}, "
            f"{r['kept_true']:.1f} | {r['changed_model']:.1f}, {r['changed_true']:.1f} |"
        )
    return "\n".join(lines)


def states(model: pl.DataFrame, truth: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Shares of each state, `model` and `true` in per cent, a row a horizon and state."""
    names = (*STATES, "dead", "abroad")
    rows = []
    for h in model["horizon"].unique(maintain_order=True):
        for number, name in enumerate(names, start=1):
            mine = [_share(each, h, number) for each in (model, *truth)]
            rows.append(
                {
                    "horizon": h,
                    "state": name,
                    "model": mine[0],
                    "true": float(np.mean(mine[1:])),
                    "sd": float(np.std(mine[1:])),
                }
            )
    return pl.DataFrame(rows)


def _share(found: pl.DataFrame, horizon: int, number: int) -> float:
    wanted = (
        (pl.col("horizon") == horizon)
        & (pl.col("column") == "state")
        & (pl.col("kind") == "share")
        & (pl.col("key") == str(number))
    )
    return 100 * float(found.filter(wanted)["value"].sum())


NOTE = """Distance: total variation distance of the model's shares of all codes from the true ones, in points (0: the same, 100: nothing in
common); in brackets what a perfect model would show, as the persons are a sample. With earnings: the same of codes and six groups of
earnings together (zero, fifths of the positive in that future), so that it also sees whether circumstances go with the right earnings."""


def main() -> int:
    """Simulates, measures and prints both settings."""
    parser = study_parser(__doc__, n_persons=4_000, n_paths=40)
    parser.add_argument("--register", type=Path, required=True)
    parser.add_argument("--origin", type=int, default=2002)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle)
    panel = read_panel(args.register)
    if args.origin >= last_year(panel):
        parser.error(f"--origin must lie before the panel's last year, {last_year(panel)}")
    lines = ["# Circumstances along paths", "", f"`{command_line(__file__)}`", ""]
    lines += [
        f"Commit {code_commit()}, bundle `{forecaster.bundle.digest[:12]}`, panel `{panel.meta.panel_id}`.",
        "",
        NOTE,
        "",
    ]
    for setting, past in (("In-time", cut(panel, args.origin)), ("Forward", panel)):
        horizons = [
            h for h in HORIZONS if setting == "Forward" or h <= last_year(panel) - args.origin
        ]
        longest = max(horizons)
        who = follow_persons(
            past, trained_on=forecaster.bundle.split["panel_id"], n_persons=args.persons
        )
        before = at_origin(who, forecaster.transforms)
        if setting == "In-time":
            truth = [recorded(panel, who, longest, forecaster.transforms)]
        else:
            truth = list(true_courses(args.register, who, longest, forecaster.transforms))
        drawn = simulated(
            forecaster, who, longest, paths=args.paths, seed=args.seed, progress=Progress(setting)
        )
        model, true = (
            measured(drawn, before, horizons),
            [measured(each, before, horizons) for each in truth],
        )
        lines += [f"## {setting}", "", as_markdown(compare(model, true, forecaster.transforms)), ""]
        lines += [
            "| years ahead | state | model, % | truth, % | over futures, sd |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {r['horizon']} | {r['state']} | {r['model']:.2f} | {r['true']:.2f} | {r['sd']:.2f} |"
            for r in states(model, true).iter_rows(named=True)
        ]
        lines += [""]
    page = "\n".join(lines)
    if args.report:
        args.report.write_text(page, encoding="utf-8")
    print(page)
    return 0


class Progress:
    """FollowedPersons done, on standard error, ten times a setting."""

    def __init__(self, setting: str) -> None:
        self.setting = setting

    def __call__(self, done: int, total: int) -> None:
        """`saga.forecaster.Progress`."""
        if done % max(1, total // 10) == 0:
            print(f"{self.setting}: {done:,} of {total:,}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
