"""From files to a panel: locate, read, map, check, deflate. Nothing is dropped silently: `PanelMeta` keeps the account."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from saga.data.casting import read_column
from saga.data.files import keep_apart, locate, read
from saga.data.mapping import SourceMapping, load_mapping
from saga.data.panel import Panel, PanelMeta, in_order
from saga.data.prices import CPI_SWEDEN, read_index, real_factors
from saga.data.validation import RULES, outside_ages, problems, violations
from saga.errors import InputError, Problem, UsageError
from saga.requests import OnError
from saga.schema import BY_NAME, EXIT, MAX_AGE, MIN_AGE, MONEY, NAMES, REQUIRED


@dataclass(frozen=True)
class _Source:
    """What was read, before any check: cells in the source's own types."""

    frame: pl.DataFrame
    unread: tuple[str, ...]
    folder: Path | None
    register_id: str | None
    prices: int | None


def read_panel(
    source: str | Path | pl.DataFrame,
    *,
    mapping: str | Path | None = None,
    prices: int | None = None,
    on_error: OnError = "fail",
    rejected: Path | None = None,
    panel_id: str | None = None,
) -> Panel:
    """Person-years of a file, a folder, a generated register or a data frame as a validated panel in real money.

    `mapping` is a YAML file or the name of a shipped mapping. `prices` says in which year's prices the amounts are; None:
    in those of each row's own year. With `on_error="drop"` rows that break a rule are dropped and counted in
    `meta.dropped`, all rows of a person where the rule concerns the person; `rejected` (.parquet or .csv) receives
    the broken rows as they came, with a column `broken_rules`. Rows outside ages 16-64 are set aside and
    counted in `meta.excluded`. `panel_id` falls back to the register's, then the mapping's name, then "panel".

    Raises `InputError` with a `Problem` for each broken rule, or where nothing is left; `UsageError` for a bad option.
    """
    if on_error not in ("fail", "drop"):
        raise UsageError(
            "on_error is fail or drop",
            [Problem("on-error", "the choice is not known", "Use fail or drop.")],
        )
    if rejected is not None and rejected.suffix not in (".parquet", ".csv"):
        raise UsageError(
            "rejected rows go to .parquet or .csv",
            [Problem("rejected", "the suffix is not known", "Use .parquet or .csv.")],
        )
    if rejected is not None and not isinstance(source, pl.DataFrame):
        keep_apart(Path(source), rejected, "--rejected")
    mapped, mapping_folder = (SourceMapping(), None) if mapping is None else load_mapping(mapping)
    found = _read(source, mapped, labels=mapping is None)
    ours, nulled = mapped.apply(found.frame)
    present = tuple(name for name in NAMES if name in ours.columns)
    _require_columns(present, found, mapped)
    typed, unreadable = _typed(ours, present)
    _require_rows(typed, "there is no row")
    typed = in_order(typed)
    broken = violations(typed, present, unreadable)
    kept, broken = _inside_ages(typed, broken)
    _require_rows(kept, f"all {typed.height} rows are outside ages {MIN_AGE}-{MAX_AGE}")
    set_aside = typed.height - kept.height
    if broken.height and rejected is not None:
        _write_rejected(rejected, found.frame, broken)
    if broken.height and on_error == "fail":
        raise InputError("the panel breaks its contract", problems(broken, kept))
    dropped = _account(broken)
    valid = (
        kept.join(broken.select("row").unique(), on="row", how="anti", maintain_order="left")
        if broken.height
        else kept
    )
    _require_rows(valid, "every row breaks a rule", problems(broken, kept) if broken.height else ())

    prices = found.prices if prices is None else prices
    real, price_year = _deflated(valid, present, mapped, prices, [mapping_folder, found.folder])
    meta = PanelMeta(
        panel_id=panel_id or found.register_id or mapped.name or "panel",
        currency=mapped.currency,
        price_year=price_year,
        floor=mapped.floor,
        macro=mapped.macro,
        present=present,
        ignored=found.unread,
        excluded={"age-range": set_aside} if set_aside else {},
        dropped=dropped,
        nulled=nulled,
        lost=_lost(typed, valid),
    )
    return Panel.of(_whole_labels(real.drop("row"), present), meta)


def _read(source: str | Path | pl.DataFrame, mapped: SourceMapping, *, labels: bool) -> _Source:
    if isinstance(source, pl.DataFrame):
        wanted = mapped.wanted(source.columns)
        unread = tuple(name for name in source.columns if name not in wanted)
        return _Source(source.select(wanted), unread, None, None, None)
    aside = Path(mapped.deflator.file).name if mapped.deflator else None
    location = locate(Path(source), aside=aside)
    frame, unread = read(
        location,
        mapped.wanted,
        mapped.lacking,
        labels=labels,
        year_in_filename=mapped.year_in_filename,
    )
    register_id, prices = location.register.get("register_id"), location.register.get("prices")
    return _Source(
        frame,
        unread,
        location.folder,
        register_id if isinstance(register_id, str) else None,
        prices if isinstance(prices, int) else None,
    )


def _require_columns(present: Sequence[str], found: _Source, mapped: SourceMapping) -> None:
    missing = []
    for name in REQUIRED:
        if name not in present:
            near = difflib.get_close_matches(name, found.unread, n=1, cutoff=0.6)
            hint = f" Is it {near[0]}?" if near else ""
            fix = f"Add it. Where a file is read, a mapping may name it: `columns: {{{name}: ITS_NAME}}`.{hint}"
            looked = f" (looked for {mapped.columns[name]})" if name in mapped.columns else ""
            missing.append(
                Problem(
                    "missing-column",
                    f"the required column {name} is missing{looked}",
                    fix,
                    column=name,
                )
            )
    if missing:
        raise InputError("the panel lacks required columns", missing)


def _require_rows(frame: pl.DataFrame, why: str, found: Sequence[Problem] = ()) -> None:
    if frame.height == 0:
        problem = Problem(
            "no-rows", why, f"Give at least one person-year at ages {MIN_AGE}-{MAX_AGE}."
        )
        raise InputError("the panel is empty", [problem, *found])


def _typed(ours: pl.DataFrame, present: Sequence[str]) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
    """The frame in the panel's types with source row numbers, and per column the rows that could not be read."""
    columns, unreadable = [], {}
    numbers = pl.int_range(ours.height, dtype=pl.UInt32, eager=True).alias("row")
    for name in present:
        typed, bad = read_column(ours[name], BY_NAME[name])
        columns.append(typed)
        if bad.any():
            unreadable[name] = numbers.filter(bad)
    return pl.DataFrame([numbers, *columns]), unreadable


def _inside_ages(typed: pl.DataFrame, broken: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows at ages that a panel covers, and what they break.

    A mistake about a person may lie in the birth year itself, so rows that take part in one are not set aside by age.
    """
    of_person = broken.filter(
        pl.col("rule").is_in([name for name, rule in RULES.items() if rule.of_person])
    )["row"]
    outside = typed.select(outside_ages() & ~pl.col("row").is_in(of_person.implode())).to_series()
    if not outside.any():
        return typed, broken
    return typed.filter(~outside), broken.join(
        typed.filter(outside).select("row"), on="row", how="anti"
    )


def _lost(typed: pl.DataFrame, valid: pl.DataFrame) -> Problem | None:
    """The persons of `typed` without a row in `valid`: they must not vanish in silence."""
    if typed.height == valid.height:
        return None
    gone = (
        typed.select("person_id")
        .drop_nulls()
        .unique()
        .join(valid, on="person_id", how="anti")["person_id"]
        .sort()
    )
    if not gone.len():
        return None
    why = (
        f"No row of the person is usable: all are outside ages {MIN_AGE}-{MAX_AGE} or break a rule"
    )
    return Problem(
        "no-usable-row", why, "Leave the person out.", person_id=gone[0], count=gone.len()
    )


def _account(broken: pl.DataFrame) -> dict[str, int]:
    """Rule -> rows dropped; a row that broke several counts for the first of them, so that the counts add up."""
    order = pl.Enum(list(RULES))
    first = broken.group_by("row").agg(pl.col("rule").cast(order).min())
    counts = first.group_by("rule").len().sort("rule")
    return {str(rule): int(count) for rule, count in counts.iter_rows()}


def _write_rejected(path: Path, frame: pl.DataFrame, broken: pl.DataFrame) -> None:
    named = broken.select(
        "row",
        pl.concat_str("rule", "column", separator=" ", ignore_nulls=True).alias("broken_rules"),
    )
    reasons = named.group_by("row").agg(pl.col("broken_rules").sort().str.join("; ")).sort("row")
    rows = frame[reasons["row"]].insert_column(0, reasons["broken_rules"])
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(path) if path.suffix == ".parquet" else rows.write_csv(path)


def _deflated(
    frame: pl.DataFrame,
    present: Sequence[str],
    mapped: SourceMapping,
    prices: int | None,
    folders: Sequence[Path | None],
) -> tuple[pl.DataFrame, int]:
    """Money in whole currency units of the panel's price year, and that year.

    A foreign currency without a deflator can only be taken as it is, in the prices that the caller states.
    """
    if mapped.currency != "SEK" and mapped.deflator is None:
        if prices is None:
            problem = Problem(
                "no-price-index",
                f"{mapped.currency} has no deflator",
                "Add `deflator` to the mapping, or state --prices.",
            )
            raise InputError("the amounts cannot be deflated", [problem])
        return _scaled(frame, present, pl.lit(mapped.scale)), prices
    base = mapped.price_year
    if prices == base:
        return _scaled(frame, present, pl.lit(mapped.scale)), base
    index = read_index(_beside(mapped.deflator.file, folders)) if mapped.deflator else CPI_SWEDEN
    years = frame["year"].unique().to_list() if prices is None else [prices]
    factors = real_factors(years, index, base)
    if prices is not None:
        return _scaled(frame, present, pl.lit(mapped.scale * factors[prices])), base
    factor = pl.col("year").replace_strict(
        list(factors), list(factors.values()), return_dtype=pl.Float64
    )
    return _scaled(frame, present, mapped.scale * factor), base


def _scaled(frame: pl.DataFrame, present: Sequence[str], factor: pl.Expr) -> pl.DataFrame:
    return frame.with_columns(pl.col(name) * factor for name in MONEY if name in present)


def _beside(name: str, folders: Sequence[Path | None]) -> Path:
    """The price index: a path of its own, or beside the mapping, or beside the data."""
    places = (
        [Path(name)]
        if Path(name).is_absolute()
        else [folder / name for folder in folders if folder is not None]
    )
    for place in places:
        if place.is_file():
            return place
    looked = (
        ", ".join(str(place.parent) for place in places) or "no folder: the data came without one"
    )
    problem = Problem(
        "price-index",
        f"the deflator file {name} was not found (looked in {looked})",
        "Put it beside the data or the mapping.",
    )
    raise InputError("the amounts cannot be deflated", [problem])


def _whole_labels(frame: pl.DataFrame, present: Sequence[str]) -> pl.DataFrame:
    """Entry and exit belong to the person: a label known in one row holds in all rows."""
    partial = [
        name for name in EXIT if name in present and 0 < frame[name].null_count() < frame.height
    ]
    if not partial:
        return frame
    known = frame.group_by("person_id").agg(pl.col(name).drop_nulls().first() for name in partial)
    return frame.drop(partial).join(known, on="person_id", how="left", maintain_order="left")
