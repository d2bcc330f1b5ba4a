"""From files to a panel: locate, read, map, check, deflate.

`PanelMeta` counts all rows and cells that are left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from saga.data.casting import in_groups, read_column
from saga.data.deflation import deflated, file_beside, find_beside
from saga.data.facts import Facts, open_facts
from saga.data.macro_rows import MacroRow, read_macro_file
from saga.data.mapping import MacroFile, SourceMapping, given_names
from saga.data.mapping_file import load_mapping
from saga.data.panel import UNNAMED_PANEL, Panel, PanelMeta, sort_rows
from saga.data.panel_files import (
    Location,
    locate_files,
    read_blocks,
    read_scans,
    require_output_outside_input,
    scan_files,
)
from saga.data.recoding import Effect, flags, recode
from saga.data.rules import (
    dropped_by_rule,
    find_violations,
    inside_ages,
    lost_persons,
    padded_codes,
    persons_of_nines,
    require_columns,
    require_few_codes,
    require_rows,
    rows_beside,
    rows_until,
    typed_rows,
    valid_rows,
)
from saga.data.spellings import MISFIT, find_columns, require_one_spelling, require_unlike
from saga.data.statistics_files import STATISTICS, value_labels
from saga.errors import FileProblem, InputError, Problem, UsageError
from saga.files.atomic import digest_file
from saga.files.data_frames import Rows, to_polars
from saga.files.folders import File, open_place
from saga.files.tables import check_out, write_table
from saga.requests import OnError
from saga.schema import BY_NAME, COLUMNS, EXIT, MAX_AGE, MIN_AGE, MONEY, REQUIRED, Column

_LABELLED = frozenset(
    column.name for column in COLUMNS if column.kind in ("category", "label") and column.codes
)
_SAMPLE_ROWS = 200_000  # that show what a source has
MAX_ROWS = 1_000  # of a person, whose years are at most some hundred
MAX_ROWS_OF_NOBODY = 500_000  # rows without a person, which are read together


@dataclass(frozen=True)
class MappingPreview:
    """The rows of a source `before` and `after` its mapping is applied, and what entries did.

    Amounts are in the currency, in the prices of the source. `problems` say why the source cannot
    be read by the mapping, `unread` are columns that it leaves out; `panel` is None if it cannot be
    read.
    """

    before: pl.DataFrame
    after: pl.DataFrame
    effects: tuple[Effect, ...]
    problems: tuple[Problem, ...]
    unread: tuple[str, ...]
    panel: Panel | None


@dataclass(frozen=True)
class Source:
    """A panel that is not read yet, and how it is to be read; the arguments of `read_panel`.

    Its files are located once; worker processes receive what was located.
    """

    place: Rows
    mapping: str | Path | Mapping[str, object] | SourceMapping | None = None
    prices: int | None = None
    on_error: OnError = "fail"
    facts: Facts | str | Path | None = None
    origin: int | None = None
    panel_id: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    partly: Mapping[str, str] = field(default_factory=dict, init=False)
    """Columns that not all files have, with the number of files, when the files are opened."""
    ignored: tuple[str, ...] = field(default=(), init=False)
    """Columns of the files that are not used, when the files are opened."""

    @property
    def path(self) -> Path | str:
        """The path, or the URL of an object store. Raises UsageError for a data frame."""
        if not isinstance(self.place, str | Path):
            raise UsageError("A data frame has no path. Write it to a file, such as .parquet.")
        return open_place(self.place)

    @cached_property
    def _loaded(self) -> tuple[SourceMapping, Path | None]:
        """The mapping, and the folder of its file."""
        if self.mapping is None or isinstance(self.mapping, SourceMapping):
            return (self.mapping or SourceMapping()).with_names(self.names), None
        if not isinstance(self.mapping, str | Path | Mapping):
            raise UsageError(
                f"A mapping is a YAML file, a shipped name or a dictionary, not a "
                f"{type(self.mapping).__name__}."
            )
        mapped, folder = load_mapping(self.mapping)
        return mapped.with_names(self.names), folder

    @property
    def _mapped(self) -> SourceMapping:
        return self._loaded[0]

    @cached_property
    def _location(self) -> Location | None:
        """The files; None for a data frame."""
        if not isinstance(self.place, str | Path):
            return None
        mapped, folder = self._loaded
        return locate_files(self.path, beside=mapped.files, near=folder)

    @property
    def unread(self) -> tuple[str, ...]:
        """Files beside those of the source that seem to be tables, and are not read."""
        return self._location.unread if self._location else ()

    @property
    def _register(self) -> dict[str, Any]:
        return self._location.register if self._location else {}

    @property
    def _prices(self) -> int | None:
        stated = self._register.get("prices")
        return stated if self.prices is None and isinstance(stated, int) else self.prices

    @cached_property
    def _facts(self) -> Facts:
        return open_facts(self.facts)

    @property
    def _folders(self) -> list[Path]:
        """Where a price index or macro file may be: beside the mapping, then beside the data."""
        data = self._location.folder.location("") if self._location else None
        return [folder for folder in (self._loaded[1], data) if isinstance(folder, Path)]

    def describe(self) -> dict[str, Any]:
        """The files by content and the rules of reading them, as JSON values."""
        files = self._location.files if self._location else ()
        index = (
            find_beside(self._mapped.deflator.file, self._folders)
            if self._mapped.deflator
            else None
        )
        return {
            "files": {file.name: file.digest() for file in files},
            "mapping": None
            if self.mapping is None and not self.names
            else self._mapped.model_dump(mode="json", exclude={"deflator": {"file"}}),
            "deflator": digest_file(index) if index else None,
            "prices": self._prices,
            "on_error": self.on_error,
            "facts": self._facts.digest,
            "origin": self.origin,
        }

    def _scans(
        self, choose: Callable[[Sequence[str]], Sequence[str]], *, fitting: bool = True
    ) -> tuple[Location, list[pl.LazyFrame], tuple[str, ...]]:
        """The files with the columns that `choose` selects, and the names of the others."""
        location = self._location or locate_files(self.path)
        scans, unread, by_file = scan_files(
            location, self._mapped, choose, _LABELLED if self.mapping is None else ()
        )
        for file, names, scan in zip(location.files, by_file, scans, strict=True):
            if len(scans) > 1 and (lacking := self._mapped.lacking(names)):
                raise InputError.of(
                    f"a file in {location.folder} lacks a column",
                    "missing-column",
                    f"{file.name} lacks the required column {lacking[0]}",
                    "Each file needs it, or the year in which it is missing would look unknown. If "
                    "all files have it under another name, a mapping names it (--mapping lisa for "
                    "LISA).",
                    column=lacking[0],
                )
            _require_cells(scan.collect_schema(), str(file))
        if fitting:
            self._require_fit([name for names in by_file for name in names])
        times = Counter(name for names in by_file for name in self._mapped.found(names))
        partly = {name: f"{n} of {len(by_file)}" for name, n in times.items() if n < len(by_file)}
        object.__setattr__(self, "partly", partly)
        object.__setattr__(self, "ignored", unread)
        return location, scans, unread

    def _require_fit(self, names: Sequence[str]) -> None:
        if problems := self._mapped.unfit(names):
            raise InputError(MISFIT, problems)

    @cached_property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """Columns of files of Stata and SPSS, in lower case -> codes with their value labels."""
        labels: dict[str, dict[str, str]] = {}
        for file in self._location.files if self._location else ():
            if isinstance(file.location, Path) and file.suffix in STATISTICS:
                for name, of_column in value_labels(file.location).items():
                    labels.setdefault(name.strip().lower(), {}).update(of_column)
        return labels

    def _at_source(self, problem: Problem, names: Sequence[str]) -> Problem:
        """A problem of the rows with the columns of the source that have other names, and labels.

        `names` are those of the source; a rule without a column compares persons and years.
        """
        hints = []
        for column in (problem.column,) if problem.column else ("person_id", "year", "birth_year"):
            read = self._mapped.columns_of(column, names)
            if read and read != [column]:
                hints.append(f"{column} is read from {', '.join(read)}.")
            labels = [
                label
                for name in read
                for label in self.labels.get(name.strip().lower(), {}).items()
            ]
            if problem.rule == "unknown-code" and labels:
                named = ", ".join(f"{code} = {label}" for code, label in labels[:20])
                used = "labels are read" if self.mapping is None else "numbers are read, not labels"
                hints.append(f"The file labels the numbers of {read[0]} ({named}); {used}.")
        return replace(problem, fix=" ".join([problem.fix, *hints]))

    @property
    def _amounts(self) -> list[str]:
        """Columns of the panel whose numbers may be any: of money, of counts, of its own."""
        columns = (*COLUMNS, *self._mapped.extra_columns)
        numbers = [column for column in columns if column.kind in ("money", "number")]
        return [column.name for column in numbers if column.maximum is None]

    def _require_amounts(self, rows: pl.DataFrame) -> None:
        """Raise InputError for amounts with a value label, which says that they are none.

        Numbers that are no money may have labels if all have, as those of a scale.
        """
        for column in self._amounts if self.labels else ():
            for name in self._mapped.columns_of(column, rows.columns):
                labels = self.labels.get(name.strip().lower(), ())
                labelled = self._mapped.credible(column, name, labels)
                if not (rows.schema[name].is_numeric() and rows[name].is_in(labelled).any()):
                    continue
                scale = [0.0, *SourceMapping().credible(column, name, labels)]
                is_stated = rows[name].is_in(scale).all() or find_columns(self._mapped.keep, [name])
                if column in MONEY or not is_stated:
                    raise InputError.of(
                        "amounts have value labels",
                        "labelled-amount",
                        f"{name} has an amount that the file labels, as if it were unknown",
                        "Leave such cells empty, or give the credible amounts in a mapping: "
                        f"`keep: {{{name}: [0, 9000000]}}`.",
                        column=column,
                    )

    def _with_clear_amounts(
        self, blocks: Iterable[tuple[File | str, pl.DataFrame]]
    ) -> Iterator[pl.DataFrame]:
        """The rows of each file or table in turn, or blocks of them.

        Raises InputError if all dots of an amount may separate thousands, unless another column of
        the file has three decimals. Each file has an answer of its own, because another one may be
        written otherwise.
        """
        is_stated = "decimal" in self._mapped.model_fields_set
        for place, of_place in groupby(blocks, key=itemgetter(0)):
            doubtful, seen = dict[str, bool](), defaultdict[str, Counter[str]](Counter)
            for _, block in of_place:
                yield block
                for column in () if is_stated else self._amounts:
                    for name in self._mapped.columns_of(column, block.columns):
                        if block.schema[name] == pl.String:
                            doubtful[name] = in_groups(block[name], earlier=seen[name])
            has_decimals = any(counts["three digits"] for counts in seen.values())
            for name in () if has_decimals else filter(doubtful.get, doubtful):
                problem = FileProblem(
                    "doubtful-amount",
                    f"{name} has a dot with three digits behind it: 285.000 may be 285 or 285000",
                    "Write amounts without thousands separators.",
                    name,
                    file_fix="Or say in a mapping what the dots are: `decimal: '.'` or, if they "
                    "separate thousands, `decimal: ','`.",
                )
                raise InputError(f"{place} has amounts that can be read in two ways", [problem])

    def rows(self, *, fitting: bool = True) -> tuple[pl.DataFrame, tuple[str, ...]]:
        """All rows in the columns that the mapping reads, and the names of the other columns.

        If it has to be `fitting`, a mapping that does not fit the source is an InputError.
        """
        if not isinstance(self.place, str | Path):
            table = to_polars(self.place, "the panel")
            if fitting:
                self._require_fit(table.columns)
            used = self._mapped.used_columns(table.columns)
            if self.mapping is not None or self.names:
                _require_cells(table[used].schema, "the data frame")
            (rows,) = self._with_clear_amounts([("The table", table[used])])
            return rows, tuple(name for name in table.columns if name not in used)
        location, scans, unread = self._scans(self._mapped.used_columns, fitting=fitting)
        read = read_scans(location, scans, self._mapped.encoding)
        parts = list(self._with_clear_amounts(zip(location.files, read, strict=True)))
        rows = pl.concat(parts)
        if len(parts) > 1:
            in_files = list(zip(location.files, parts, strict=True))
            require_one_spelling(
                _as_written(self.person_of(rows).unique()),
                lambda: ((file, self.person_of(part)) for file, part in in_files),
            )
            self._require_one_code(in_files)
        return rows, unread

    def sample(self) -> pl.DataFrame:
        """All columns of the first rows, of each file as many, to see what the source has."""
        location = self._location or locate_files(self.path)
        scans, *_ = scan_files(location, self._mapped, list)
        n = -(-_SAMPLE_ROWS // len(scans))
        return pl.concat(
            read_scans(location, [scan.head(n) for scan in scans], self._mapped.encoding)
        )

    def blocks(self) -> Iterator[pl.DataFrame]:
        """The rows in blocks of bounded size, file by file, all in the same columns."""
        location, scans, _ = self._scans(self._mapped.used_columns)
        yield from self._with_clear_amounts(read_blocks(location, scans, self._mapped.encoding))

    def persons(self) -> pl.Series:
        """All persons of the source, sorted, without the unknown one; reads no other column.

        Raises InputError if a person has more rows than have room in memory.
        """
        has_codes = bool(self._coded or self._mapped.null_if)
        if has_codes and len(self._location.files if self._location else ()) > 1:
            location, scans, _ = self._scans(self._columns_with_codes)
            self._require_one_code(read_blocks(location, scans, self._mapped.encoding))
        location, scans, _ = self._scans(partial(self._mapped.columns_of, "person_id"))

        def by_file() -> Iterator[tuple[File, pl.DataFrame]]:
            for file, block in read_blocks(location, scans, self._mapped.encoding):
                ids = self.person_of(block).alias("person")
                yield file, ids.value_counts(name="rows")

        empty = self.person_of(scans[0].limit(0).collect()).alias("person")
        counts = empty.value_counts(name="rows")
        for _, of_block in by_file():
            counts = pl.concat([counts, of_block]).group_by("person").agg(pl.col("rows").sum())
            _require_few_rows(counts)
        persons = counts["person"]
        require_unlike(persons)
        if len(scans) > 1:
            require_one_spelling(
                _as_written(persons), lambda: ((f, ids["person"]) for f, ids in by_file())
            )
        return persons.filter(persons != "").sort()

    @property
    def _coded(self) -> tuple[Column, ...]:
        """The panel's own categories, and the family, whose codes may be any texts."""
        columns = self._mapped.extra_columns
        return tuple(column for column in columns if column.dtype == pl.String())

    def _columns_with_codes(self, names: Sequence[str]) -> list[str]:
        used = {n for column in self._coded for n in self._mapped.columns_of(column.name, names)}
        used |= set(find_columns(tuple(self._mapped.null_if), names))
        return [name for name in names if name in used]

    def _require_one_code(self, blocks: Iterable[tuple[File, pl.DataFrame]]) -> None:
        """Raise InputError if a code of own columns or of `null_if` may have two spellings."""
        spellings: dict[str, list[tuple[File, pl.DataFrame]]] = {}
        for file, rows in blocks:
            for column in self._coded:
                only = self._mapped.only(column.name)
                frames = [recode(part, rows)[0] for part in (only.without_codes(), only)]
                if column.name in frames[0]:
                    written, read = (read_column(f[column.name], column)[0] for f in frames)
                    codes = pl.DataFrame({"written": written, "read": read}).drop_nulls().unique()
                    spellings.setdefault(column.name, []).append((file, codes))
            for name, codes in flags(self._mapped, rows):
                spellings.setdefault(name, []).append((file, codes))
        for name, of_column in spellings.items():
            texts = pl.concat(codes for _, codes in of_column).unique()
            by_file = [(file, codes["written"]) for file, codes in of_column]
            require_one_spelling(texts, partial(iter, by_file), name)

    def person_of(self, rows: pl.DataFrame) -> pl.Series:
        """The person of each row as in the panel; "" if it is unknown."""
        name = "person_id"
        ids = recode(self._mapped.only(name), rows)[0]
        require_columns([*ids.columns, *(n for n in REQUIRED if n != name)], (), self._mapped)
        return read_column(ids[name], BY_NAME[name])[0].fill_null("")

    def preview(self) -> MappingPreview:
        """What the mapping does, and why the panel could not be read by it."""
        rows, unread = self.rows(fitting=False)
        renamed, effects = recode(self._mapped, rows)
        if self._mapped.scale != 1:
            amounts = pl.col([name for name in MONEY if name in renamed.columns])
            scaled = amounts.cast(pl.Float64, strict=False) * self._mapped.scale
            renamed = renamed.with_columns(scaled.round(2))
        problems = self._mapped.unfit([*rows.columns, *unread])
        # What a mapping has no index for is in prices that commands are told.
        is_told = self._mapped.currency != "SEK" and self._mapped.deflator is None
        prices = self._mapped.price_year if is_told else self.prices
        panel = None
        try:
            panel = replace(self, prices=prices).panel(rows, unread)
        except InputError as error:
            problems += error.problems
        return MappingPreview(rows, renamed, tuple(effects), tuple(problems), unread, panel)

    def read(self, rejected: Path | None = None) -> Panel:
        """The panel of all rows. Raises errors as `read_panel` does."""
        return self.panel(*self.rows(), rejected)

    def panel(
        self, rows: pl.DataFrame, unread: tuple[str, ...] = (), rejected: Path | None = None
    ) -> Panel:
        """The panel of `rows` in the columns of the source. Raises errors as `read_panel` does."""
        self._require_amounts(rows)
        renamed, effects = recode(self._mapped, rows)
        columns = (*COLUMNS, *self._mapped.extra_columns)
        columns = tuple(column for column in columns if column.name in renamed.columns)
        present = tuple(column.name for column in columns)
        by_argument = bool(self.names) or not isinstance(self.place, str | Path)
        require_columns(present, unread, self._mapped, by_argument=by_argument)
        typed, unreadable = typed_rows(renamed, columns)
        require_unlike(typed["person_id"])
        require_few_codes(typed, self._mapped.extra_columns)
        require_rows(typed, "there is no row")
        everybody, origin = typed, self.origin
        if origin is not None:
            typed, unreadable = rows_until(origin, typed, unreadable)
            require_rows(typed, f"all {everybody.height} rows are after {origin}")
        typed = sort_rows(typed)
        broken = find_violations(typed, columns, unreadable)
        covered, broken = inside_ages(typed, broken)
        excluded = {
            "after-origin": everybody.height - typed.height,
            "age-range": typed.height - covered.height,
        }
        if broken.height and rejected is not None:
            _write_rejected(rejected, rows, broken)
        try:
            require_rows(covered, f"no row is at ages {MIN_AGE}-{MAX_AGE} (rows: {typed.height})")
            valid = valid_rows(covered, broken, columns, self.on_error)
        except InputError as error:
            problems = [self._at_source(problem, rows.columns) for problem in error.problems]
            raise InputError(error.args[0], problems) from None
        real, price_year, unpublished = deflated(
            valid, present, self._mapped, self._prices, self._folders, self._facts
        )
        macro, macro_rows = _macro(self._mapped, self._folders, self._register)
        register = self._register.get("register_id")
        register_id = register if isinstance(register, str) else None
        meta = PanelMeta(
            panel_id=self.panel_id or register_id or self._mapped.name or UNNAMED_PANEL,
            currency=self._mapped.currency,
            price_year=price_year,
            floor=self._mapped.floor,
            macro=macro,
            macro_rows=macro_rows,
            extra=self._mapped.extra_columns,
            present=present,
            simulated=register_id is not None,
            ignored=unread,
            unread=self.unread,
            excluded={rule: count for rule, count in excluded.items() if count},
            outside_ages=rows_beside(valid, typed, covered) if excluded["age-range"] else 0,
            dropped=dropped_by_rule(broken),
            partly=self.partly,
            nulled={effect.entry: effect.unknown for effect in effects if effect.unknown},
            nines=persons_of_nines(valid, [name for name in self._amounts if name in present]),
            unmatched=tuple(e.entry for e in effects if e.is_own and not e.matched),
            padded=padded_codes(renamed, columns),
            lost=lost_persons(everybody, valid, origin),
            unpublished_prices=unpublished,
            last_year_read=origin,
            facts=None if self.facts is None else self._facts,
        )
        real.drop_in_place("row")
        return Panel.of(_whole_labels(real, present), meta)


def read_panel(
    source: Rows,
    *,
    id: str | None = None,
    time: str | None = None,
    target: str | None = None,
    birth_year: str | None = None,
    mapping: str | Path | Mapping[str, object] | SourceMapping | None = None,
    prices: int | None = None,
    on_error: OnError = "fail",
    rejected: Path | None = None,
    panel_id: str | None = None,
    facts: Facts | None = None,
    origin: int | None = None,
) -> Panel:
    """Person-years as a validated panel in real money.

    Rows outside ages 16-64 are left out and counted in `meta.excluded`, and so are rows after
    `origin`, which nothing depends on.

    Args:
        source: A file or folder, its URL in an object store, a generated register, a data frame of
            polars, pandas or Arrow, or a dictionary of columns. Years may be dates or periods.
        id: Column of the person, `person_id` if it is named neither here nor in the mapping.
        time: Column of the year, else `year`.
        target: Column of the earnings, else `earnings`.
        birth_year: Column of the year of birth.
        mapping: A YAML file, the name of a shipped mapping, or its entries as a dictionary.
        prices: Year of the prices of the amounts; by default each row's own year.
        on_error: With "drop", rows that break a rule are dropped and counted in `meta.dropped`;
            if the rule concerns a person, all rows of the person are.
        rejected: File (.parquet or .csv) for the faulty rows of the source, with a column
            `broken_rules`; only one that SAGA wrote is replaced.
        panel_id: The panel's id; by default the register's, else the mapping's name, else "panel".
        facts: The dated facts, of which SEK need the price index; by default the shipped ones.
        origin: Last year that is read; later rows and exits are unknown.

    Raises:
        InputError: Rules are broken (a `Problem` for each), or no row remains.
        UsageError: An option is not valid.

    Example:
        >>> from saga import read_panel
        >>> columns = {"pid": ["a"], "year": [2022], "birth_year": [1985], "wage": [310_000]}
        >>> print(read_panel(columns, id="pid", target="wage"))
        Panel panel
          rows     1 person-year of 1 person
          years    2022 to 2022
          ages     37 to 37
          amounts  SEK of 2022
          columns  person_id, year, birth_year, earnings
    """
    _check_options(source, on_error, rejected, prices, origin)
    in_prices, until = (None if year is None else int(year) for year in (prices, origin))
    names = given_names(id, time, target, birth_year)
    opened = Source(source, mapping, in_prices, on_error, facts, until, panel_id, names)
    return opened.read(rejected)


def _as_written(persons: pl.Series) -> pl.DataFrame:
    return pl.DataFrame({"written": persons, "read": persons})


def _require_few_rows(counts: pl.DataFrame) -> None:
    """Raise InputError if one of the persons of `counts` has too many rows to be read as one."""
    allowed = pl.when(pl.col("person") == "").then(MAX_ROWS_OF_NOBODY).otherwise(MAX_ROWS)
    many = counts.filter(pl.col("rows") > allowed).sort("person")
    if many.height:
        person = many["person"][0]
        limit = f"{MAX_ROWS:,} rows of one" if person else f"{MAX_ROWS_OF_NOBODY:,} rows without a"
        raise InputError.of(
            "a person has too many rows",
            "person-rows",
            f"{limit} person are allowed",
            "Give one row for a person and year; check that person_id names persons.",
            column="person_id",
            person_id=person or None,
            count=many.height,
        )


def _check_options(
    source: Rows,
    on_error: str,
    rejected: Path | None,
    prices: int | None,
    origin: int | None,
) -> None:
    for name, year in (("prices", prices), ("origin", origin)):
        if year is not None and (not isinstance(year, int | np.integer) or year is True):
            raise UsageError(
                f"{name} is a year such as 2022, or None; not of type {type(year).__name__}."
            )
    if on_error not in ("fail", "drop"):
        raise UsageError.of(
            "on_error is fail or drop", "on-error", "the choice is not known", "Use fail or drop."
        )
    if rejected is not None and rejected.suffix not in (".parquet", ".csv"):
        raise UsageError.of(
            "rejected rows go to .parquet or .csv",
            "rejected",
            "the suffix is not known",
            "Use .parquet or .csv.",
        )
    if rejected is not None and isinstance(source, str | Path):
        require_output_outside_input(open_place(source), rejected, "--rejected")
    if rejected is not None:
        check_out(rejected)


def _require_cells(schema: Mapping[str, pl.DataType], place: str) -> None:
    """Raise InputError for a column whose cells are neither texts, numbers, Booleans nor dates."""
    for name, dtype in schema.items():
        if dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Time, pl.Object):
            raise InputError.of(
                f"{place} cannot be read",
                "unreadable-column",
                f"the column {name} has cells of type {dtype.base_type()}",
                "Write it as text or numbers, or leave it out.",
                column=name,
            )


def _write_rejected(path: Path, frame: pl.DataFrame, broken: pl.DataFrame) -> None:
    named = broken.select(
        "row",
        pl.concat_str("rule", "column", separator=" ", ignore_nulls=True).alias("broken_rules"),
    )
    reasons = named.group_by("row").agg(pl.col("broken_rules").sort().str.join("; ")).sort("row")
    rows = frame[reasons["row"]].insert_column(0, reasons["broken_rules"])
    write_table(rows, path, {"product": "rejected rows"})


def _macro(
    mapped: SourceMapping, folders: Sequence[Path], register: Mapping[str, Any]
) -> tuple[str | None, dict[int, MacroRow] | None]:
    """Name and rows of the macro series; no rows for a series that comes with SAGA.

    A register with a drawn history has its own in register.json.
    """
    if not isinstance(mapped.macro, MacroFile):
        return (
            (register["macro"], {int(y): tuple(row) for y, row in register["macro_rows"].items()})
            if mapped.macro and "macro_rows" in register
            else (mapped.macro, None)
        )
    path = file_beside(mapped.macro.file, folders, "macro-file", "the macro series are missing")
    return path.stem, read_macro_file(path)


def _whole_labels(frame: pl.DataFrame, present: Sequence[str]) -> pl.DataFrame:
    """The frame with entry and exit labels in all rows of a person if one row has them."""
    partial = [
        name for name in EXIT if name in present and 0 < frame[name].null_count() < frame.height
    ]
    if not partial:
        return frame
    labels = frame.group_by("person_id").agg(pl.col(name).drop_nulls().first() for name in partial)
    return frame.drop(partial).join(labels, on="person_id", how="left", maintain_order="left")
