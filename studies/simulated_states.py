"""Do simulated states have the right shares, dependence on earnings and persistence?

    python -m studies.simulated_states --register DIR [--bundle bundles/small] [--persons 4000]
        [--paths 40] [--origin 2002] [--seed 0] [--report FILE]

DIR is a generated register that the bundle was not trained on, with futures of `--future-records`.
In-time, persons of age 20 to 60 at the end of --origin are followed to the panel's end; their later
records are the truth. Forward, they are followed from the panel's end; the register's drawn futures
are the truth. Both are compared with life courses simulated from the records up to the origin.
Years of temporary stays abroad are in neither.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import Origins, cut, history, last_year, origins_at
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import unseen_persons
from saga.errors import InputError, Problem
from saga.features.transforms import Transforms
from saga.forecaster import Forecaster
from saga.keyed_random import sample_rows
from saga.pages.format import markdown_table
from saga.requests import Draws, Progress
from saga.schema import MAX_AGE, NAMES
from saga.states.codes import COLUMNS, INDUSTRY, STATE, code_labels, code_numbers
from saga.states.life_courses import ABROAD_STATE, DEAD_STATE
from studies.study_page import bundle_parser, page_head, publish_page, say

FIFTHS = 5  # groups of positive earnings; zero is a further group
HORIZONS = (1, 5, 10, 20)
NOT_OBSERVED = -1


@dataclass(frozen=True)
class FollowedPersons:
    """Persons with their records up to the origins and their birth years (n,)."""

    past: Panel
    origins: Origins
    born: NDArray[np.int64]


def follow_persons(
    panel: Panel, *, trained_on: str | None, n_persons: int | None = None
) -> FollowedPersons:
    """A keyed choice of `n_persons` (None: all) with an origin in the panel's last year.

    Only test persons if the model was trained on this panel.
    """
    origins = origins_at(unseen_persons(panel, trained_on), last_year(panel))
    ids = origins.person_id.tolist()
    origins = origins.take(sample_rows(ids, n_persons, "cross-section", panel.meta.panel_id))
    past = history(panel.only(origins.person_id.tolist()), origins)
    born = past.frame[past.last_rows]["birth_year"].to_numpy().astype(np.int64)
    return FollowedPersons(past, origins, born)


@dataclass(frozen=True, eq=False)
class Futures:
    """Earnings (n, H, M) and code numbers (n, H, M, 7) of n persons in M futures.

    Numbers are those of `saga.states.life_courses`; NOT_OBSERVED if unknown.
    """

    earnings: NDArray[np.float32]
    codes: NDArray[np.int16]


def codes_at_origin(persons: FollowedPersons, transforms: Transforms) -> NDArray[np.int16]:
    """Code numbers (n, 7) in the origin year."""
    rows = persons.past.frame.filter(pl.col("year") == last_year(persons.past))
    return code_numbers(rows, transforms)


def simulated_futures(
    forecaster: Forecaster,
    persons: FollowedPersons,
    years: int,
    draws: Draws,
    *,
    progress: Progress | None = None,
) -> Futures:
    """Life courses of all persons over so many years."""
    earnings, codes = [], []
    for block in forecaster.life_courses(persons.past, draws, progress=progress):
        n, width, m = block.paths.earnings.shape
        available = min(width, years)
        amounts = np.full((n, years, m), np.nan, np.float32)
        numbers = np.full((n, years, m, len(COLUMNS)), NOT_OBSERVED, np.int16)
        amounts[:, :available] = block.paths.earnings[:, :available]
        numbers[:, :available] = np.stack(list(block.numbers.values()), -1)[:, :available]
        numbers[~np.isfinite(amounts)] = NOT_OBSERVED
        earnings.append(amounts)
        codes.append(numbers)
    return Futures(np.concatenate(earnings), np.concatenate(codes))


def true_futures_of_states(
    register: Path, persons: FollowedPersons, years: int, transforms: Transforms
) -> Iterator[Futures]:
    """One future for each draw of a register with `--future-records`.

    Raises InputError if its futures contain only earnings.
    """
    draws = register.glob("future/draw=*")
    for path in sorted(draws, key=lambda draw: int(draw.name.removeprefix("draw="))):
        files = pl.scan_parquet(
            sorted(path.rglob("*.parquet")), glob=False, hive_partitioning=False
        )
        if missing := [name for name in NAMES if name not in files.collect_schema()]:
            problem = Problem(
                "no-records",
                f"{path.name} lacks {missing[0]}",
                "Generate the register with --future-records.",
            )
            raise InputError("The register's futures contain no states", [problem])
        ids = persons.origins.frame().lazy().select("person_id")
        rows = files.join(ids, on="person_id", how="semi").collect()
        yield recorded_future(rows, persons, years, transforms)


def recorded_future(
    rows: pl.DataFrame, persons: FollowedPersons, n_years: int, transforms: Transforms
) -> Futures:
    """The later years of the persons in the rows of a panel or of a draw, as one future."""
    n, origin = len(persons.origins), persons.origins.year
    index = {person: i for i, person in enumerate(persons.origins.person_id.tolist())}
    rows = rows.filter(pl.col("person_id").is_in(list(index)))
    i = np.array([index[person] for person in rows["person_id"]], np.int64)
    ahead = rows["year"].to_numpy() - origin[i]
    inside = (ahead >= 1) & (ahead <= n_years)
    earnings = np.full((n, n_years), np.nan, np.float32)
    codes = np.full((n, n_years, len(COLUMNS)), NOT_OBSERVED, np.int16)
    amounts = rows["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    # Dead persons and persons abroad have no county.
    resident = inside & rows["county"].is_not_null().to_numpy()
    earnings[i[inside], ahead[inside] - 1] = amounts[inside]
    codes[i[resident], ahead[resident] - 1] = code_numbers(
        rows.filter(pl.Series(resident)), transforms
    )
    codes[..., STATE] = np.where(codes[..., STATE] == 0, NOT_OBSERVED, codes[..., STATE])
    exits = (
        rows.group_by("person_id")
        .agg(pl.col("exit_year").first(), pl.col("exit_reason").first())
        .drop_nulls()
    )
    years = origin[:, None] + np.arange(1, n_years + 1)
    for person, year, reason in exits.iter_rows():
        after = years[index[person]] >= year
        codes[index[person], after] = 0
        codes[index[person], after, STATE] = DEAD_STATE if reason == "dead" else ABROAD_STATE
    old = years - persons.born[:, None] > MAX_AGE
    codes[old], earnings[old] = NOT_OBSERVED, np.nan
    return Futures(earnings[..., None], codes[:, :, None])


def measure(
    futures: Futures, origin_codes: NDArray[np.int16], horizons: Sequence[int] = HORIZONS
) -> pl.DataFrame:
    """Columns `horizon`, `column`, `kind`, `key`, `value`, `n` (persons times paths).

    Kinds: "share" of each code (dead and abroad count as states; other columns are of residents);
    "joint", of a code and a group of earnings (zero, fifths of the positive ones of each future) of
    residents; "unchanged", the same as in the origin year; "changed", within the year.
    """
    rows: list[tuple[int, str, str, str, float, int]] = []
    for h in horizons:
        gone = futures.codes[:, h - 1, :, STATE] >= DEAD_STATE
        # Records end at the exit, but paths of the model go on, so later earnings do not count.
        earnings = np.where(gone, np.nan, futures.earnings[:, h - 1])
        group = np.column_stack([_earnings_groups(future) for future in earnings.T])
        for j, name in enumerate(COLUMNS):
            codes = futures.codes[:, h - 1, :, j]
            first = np.broadcast_to(origin_codes[:, None, j], codes.shape)
            previous = futures.codes[:, h - 2, :, j] if h > 1 else first
            observed = (codes >= 0) & ~gone if j == INDUSTRY else codes > 0
            count = int(observed.sum())
            if not count:
                continue
            for code, n in zip(*np.unique(codes[observed], return_counts=True), strict=True):
                rows.append((h, name, "share", str(code), n / count, count))
            both = observed & np.isfinite(earnings)
            pairs = codes[both] * (FIFTHS + 1) + group[both]
            for code, n in zip(*np.unique(pairs, return_counts=True), strict=True):
                rows.append((h, name, "joint", str(code), n / both.sum(), int(both.sum())))
            for kind, other, equal in (("unchanged", first, True), ("changed", previous, False)):
                both_known = observed & (other > 0) & (codes > 0)
                share = float(((codes == other)[both_known] == equal).mean())
                rows.append((h, name, kind, "", share, int(both_known.sum())))
    schema = {
        "horizon": pl.Int32,
        "column": pl.String,
        "kind": pl.String,
        "key": pl.String,
        "value": pl.Float64,
        "n": pl.Int64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _earnings_groups(earnings: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Groups of one future's earnings (n,): 0 for zero, 1 to 5 for fifths of the positive ones."""
    positive = earnings > 0
    cuts = np.quantile(earnings[positive], np.arange(1, FIFTHS) / FIFTHS)
    return np.where(positive, 1 + np.searchsorted(cuts, np.nan_to_num(earnings)), 0)


def compare(
    model: pl.DataFrame, truth: Sequence[pl.DataFrame], transforms: Transforms
) -> pl.DataFrame:
    """One row per column and horizon: distances of the model's shares from the true ones.

    The true shares are averages over futures. `distance` and `joint` are total variation distances
    in points; `chance` and `joint_chance` are their values for a perfect model, because the truth
    is a sample of `persons`. `code`, `code_model` and `code_true` are the largest difference of a
    share. `unchanged_*` and `changed_*` are shares.
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
        key=lambda item: (COLUMNS.index(str(item[0][1])), item[0][0]),
    ):
        share, joint = (part.filter(pl.col("kind") == kind) for kind in ("share", "joint"))
        worst = share.sort((pl.col("value") - pl.col("value_true")).abs(), descending=True).row(
            0, named=True
        )
        number, persons = int(worst["key"]), float(share["n_true"].max())  # type: ignore[arg-type]
        persistence = {
            name: part.filter(pl.col("kind") == name).row(0, named=True)
            for name in ("unchanged", "changed")
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
                **{f"{name}_model": 100 * row["value"] for name, row in persistence.items()},
                **{f"{name}_true": 100 * row["value_true"] for name, row in persistence.items()},
            }
        )
    return pl.DataFrame(rows)


def _distance(part: pl.DataFrame) -> float:
    return 50 * float((part["value"] - part["value_true"]).abs().sum())


def _chance(part: pl.DataFrame, persons: float) -> float:
    p = part["value_true"].to_numpy()
    return 50 * float(np.sqrt(2 / np.pi * p * (1 - p) / persons).sum())


def to_markdown(table: pl.DataFrame) -> str:
    """The table of `compare`."""
    header = [
        *("column", "years ahead", "persons", "distance (chance)", "with earnings (chance)"),
        *("largest difference: model, truth", "as at the origin: model, truth"),
        "changed in the year: model, truth",
    ]
    rows = [
        [
            r["column"],
            str(r["horizon"]),
            f"{r['persons']:,}",
            f"{r['distance']:.1f} ({r['chance']:.1f})",
            f"{r['joint']:.1f} ({r['joint_chance']:.1f})",
            f"{r['code']}: {r['code_model']:.1f}, {r['code_true']:.1f}",
            f"{r['unchanged_model']:.1f}, {r['unchanged_true']:.1f}",
            f"{r['changed_model']:.1f}, {r['changed_true']:.1f}",
        ]
        for r in table.iter_rows(named=True)
    ]
    return markdown_table(header, rows)


NOTE = """Distance: total variation distance between the model's shares of all codes and the true
ones, in points (0: equal, 100: disjoint); in brackets, the distance of a perfect model, which is
positive because the persons are a sample. With earnings: the distance of codes jointly with six
groups of earnings (zero, and fifths of positive earnings in that future); it shows whether states
occur with the right earnings."""


def main() -> int:
    """Simulate and measure both settings, print the page."""
    parser = bundle_parser(__doc__, n_persons=4_000, n_paths=40)
    parser.add_argument("--register", type=Path, required=True)
    parser.add_argument("--origin", type=int, default=2002)
    args = parser.parse_args()
    forecaster, panel = Forecaster.load(args.bundle), read_panel(args.register)
    transforms, end = forecaster.transforms, last_year(panel)
    if args.origin >= end:
        parser.error(f"--origin must lie before the panel's last year, {end}")
    parts = [
        page_head(
            "States along paths",
            __file__,
            bundle=forecaster.bundle.digest[:12],
            panel=panel.meta.panel_id,
        ),
        NOTE,
    ]
    for setting, past in (("In-time", cut(panel, args.origin)), ("Forward", panel)):
        in_time = setting == "In-time"
        horizons = [h for h in HORIZONS if not in_time or h <= end - args.origin]
        years = max(horizons)
        persons = follow_persons(
            past, trained_on=forecaster.bundle.panel_id, n_persons=args.persons
        )
        truth = (
            [recorded_future(panel.frame, persons, years, transforms)]
            if in_time
            else list(true_futures_of_states(args.register, persons, years, transforms))
        )
        draws = Draws(args.paths, args.seed)
        futures = simulated_futures(
            forecaster, persons, years, draws, progress=partial(_say_progress, setting)
        )
        origin_codes = codes_at_origin(persons, transforms)
        model = measure(futures, origin_codes, horizons)
        true = [measure(future, origin_codes, horizons) for future in truth]
        parts += [f"## {setting}", to_markdown(compare(model, true, transforms))]
    publish_page("\n\n".join(parts), args.report)
    return 0


def _say_progress(setting: str, done: int, total: int) -> None:
    if done % max(1, total // 10) == 0:
        say(f"{setting}: {done:,} of {total:,}")


if __name__ == "__main__":
    sys.exit(main())
