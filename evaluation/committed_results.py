"""The committed results: tables of scores by panel, each bound by a row of the scoreboard."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from saga.evaluation.contest_tables import FILES
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.scoreboard import SHOWN, Row, Scoreboard, digest_table
from saga.evaluation.scoring.comparison import VARIANT
from saga.evaluation.scoring.metrics import METRICS

from saga.errors import UsageError
from saga.files.tables import read_provenance, write_table

KEPT = "kept"  # in a provenance: baseline or variant -> the bundle of the contest of its rows
_BOARD = "scoreboard.jsonl"
_DIGESTED = ("metrics", "comparisons", "lifetimes", "variants")  # tables that a row binds
# Of groups these metrics are committed, of all persons every metric.
_GROUP_METRICS = ("crps_log", *(name for name in METRICS if name.startswith("coverage_")))


@dataclass(frozen=True)
class CommittedResults:
    """The tables in `folder`: one file of each kind, with a column `panel`, and the scoreboard.

    The provenance of a file is by panel; `panels` are their names.
    """

    folder: Path
    panels: Collection[str]

    @property
    def board(self) -> Scoreboard:
        """The scoreboard beside the tables."""
        return Scoreboard.read(self.folder / _BOARD)

    def of(self, panel: str) -> Results:
        """The results of a panel."""
        tables: dict[str, pl.DataFrame] = {}
        for name in FILES:
            rows = self._rows(name, panel)
            tables |= {name: rows} if rows.height else {}
        return Results(provenance=self.records("metrics")[panel], **tables)

    def records(self, name: str) -> dict[str, Any]:
        """Panel -> provenance of its rows in the table `name`; empty without the table."""
        file = self._file(name)
        return read_provenance(file) if file.is_file() else {}

    def row_of(self, panel: str) -> Row:
        """The row of the tables of a panel; UsageError if they are not those of its digests."""
        row = self.board.result(panel)
        for name, digest in self._digests(panel).items():
            if row["tables"].get(name) != digest:
                raise UsageError(
                    f"{self._file(name).name} is not as row {row['hash'][:12]} of the scoreboard "
                    f"says ({panel}). Restore it, or take results with --take, which appends a row."
                )
        return row

    def take(self, panel: str, out: Path, staying: Sequence[str] = ()) -> None:
        """Make the tables in `out` the results of `panel`.

        Baselines named in `staying` keep their rows; the provenance then names the bundle of their
        contest. If `out` has no variants, all variants stay too, but not the rows that a contest
        makes from the bundle (`saga:told` and the placebos). Lifetimes stay if `out` has none.

        Raises UsageError, before anything is written, if the panel is unknown, if `out` has no
        results, or if a baseline cannot stay because `out` has rows of it or there are none to
        stay.
        """
        scored = set(self._read_output(panel, out, "metrics")["model"])
        former_record = self.records("metrics").get(panel, {})
        baselines = {
            name for name in self._names("metrics", panel, "model") if not name.startswith(VARIANT)
        } - scored
        for name in staying:
            if name in scored:
                raise UsageError(
                    f"{out} has rows of {name}: with the committed ones they would be there twice. "
                    f"Leave {name} out of KEPT."
                )
            if name not in baselines:
                names = ", ".join(sorted(baselines)) or "none"
                raise UsageError(
                    f"The results of {panel} have no baseline {name} whose rows could stay. "
                    f"Those that could: {names}."
                )
        bundles = {
            name: former_record.get(KEPT, {}).get(name, former_record.get("bundle"))
            for name in staying
        }
        has_variants = (out / "variants.parquet").is_file()
        models = list(staying)
        if not has_variants:
            models += [f"{VARIANT}{name}" for name in self._names("variants", panel, "name")]
        for name in FILES:
            file, source = self._file(name), out / f"{name}.parquet"
            if (name == "variants" and not has_variants) or (
                name == "lifetimes" and not source.is_file()
            ):
                continue
            former = pl.read_parquet(file, glob=False) if file.is_file() else None
            records = {other: of for other, of in self.records(name).items() if other != panel}
            table = None if former is None else former.filter(pl.col("panel") != panel)
            if source.is_file():
                records[panel] = read_provenance(source)
                new = _committed_rows(name, panel, source)
                if former is not None and "model" in former.columns:
                    records[panel] |= {KEPT: bundles} if staying else {}
                    stays = pl.col("model").is_in(models)
                    new = pl.concat([new, former.filter(pl.col("panel") == panel, stays)])
                table = (
                    new
                    if table is None
                    else pl.concat([table, new]).sort("panel", maintain_order=True)
                )
            if table is not None and not table.is_empty():
                write_table(table, file, records)
            else:
                file.unlink(missing_ok=True)
        self._show(panel)

    def take_variants(self, panel: str, out: Path) -> None:
        """Replace the rows of the variants in `out`, in every table; other rows stay.

        The provenance names the bundle of the contest of each staying variant. Raises UsageError,
        before anything is written, if the panel is unknown or `out` has no variants.
        """
        variants = self._read_output(panel, out, "variants")["name"].to_list()
        for name in FILES:
            file, source = self._file(name), out / f"{name}.parquet"
            if not file.is_file() or not source.is_file():
                continue
            table, records = pl.read_parquet(file, glob=False), read_provenance(file)
            of_panel = pl.col("panel") == panel
            if name == "variants":
                column, names = "name", variants
                former = records.get(panel, {})
                staying = table.filter(of_panel, ~pl.col("name").is_in(variants))["name"].to_list()
                bundles = former.get(KEPT, {})
                records[panel] = read_provenance(source) | {
                    KEPT: {
                        variant: bundles.get(variant, former.get("bundle")) for variant in staying
                    }
                }
            elif "model" in table.columns:
                column, names = "model", [f"{VARIANT}{variant}" for variant in variants]
            else:
                continue
            new = _committed_rows(name, panel, source).filter(pl.col(column).is_in(names))
            rest = table.filter(~of_panel | ~pl.col(column).is_in(names))
            write_table(pl.concat([rest, new]).sort("panel", maintain_order=True), file, records)
        self._show(panel)

    def _show(self, panel: str) -> None:
        """Append to the scoreboard which tables the page of results shows from now on."""
        record = self.records("metrics")[panel]
        provenance = {
            name: record[name] for name in ("bundle", "calibration", "seed") if name in record
        }
        tables = {"tables": self._digests(panel), "others": self._others(panel)}
        self.board.append({"kind": SHOWN, "contest": panel, **tables, **provenance})

    def _others(self, panel: str) -> list[str]:
        """The bundles of other contests that rows of a panel are from."""
        records = [self.records(name).get(panel, {}) for name in _DIGESTED]
        named = {record.get("bundle") for record in records}
        named |= {bundle for record in records for bundle in record.get(KEPT, {}).values()}
        return sorted(bundle for bundle in named if bundle)

    def _digests(self, panel: str) -> dict[str, str]:
        """The digest of a panel's rows in each table."""
        tables = {name: self._rows(name, panel) for name in _DIGESTED}
        return {name: digest_table(rows) for name, rows in tables.items() if rows.height}

    def _names(self, name: str, panel: str, column: str) -> list[str]:
        """The distinct values of a column in a panel's rows of a table."""
        rows = self._rows(name, panel)
        return rows[column].unique(maintain_order=True).to_list() if rows.height else []

    def _rows(self, name: str, panel: str) -> pl.DataFrame:
        """A panel's rows of a table, without the column `panel`; empty if there is no table."""
        file = self._file(name)
        if not file.is_file():
            return pl.DataFrame()
        return pl.read_parquet(file, glob=False).filter(pl.col("panel") == panel).drop("panel")

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def _read_output(self, panel: str, out: Path, name: str) -> pl.DataFrame:
        """A table of the contest in `out`; UsageError if it or the panel does not exist."""
        if panel not in self.panels:
            raise UsageError(f"There is no panel {panel}. The panels are {', '.join(self.panels)}.")
        if not (out / f"{name}.parquet").is_file():
            raise UsageError(
                f"{out} has no {name}.parquet. Give the directory that `saga evaluate --out` wrote "
                f"its {name} to."
            )
        return pl.read_parquet(out / f"{name}.parquet", glob=False)


def _committed_rows(name: str, panel: str, source: Path) -> pl.DataFrame:
    """The rows of an output table that are committed, with the column `panel`."""
    table = pl.read_parquet(source, glob=False)
    if name == "metrics":
        table = table.filter((pl.col("group") == "all") | pl.col("metric").is_in(_GROUP_METRICS))
    if name == "variants":
        table = table.drop("bundle")
    return table.select(pl.lit(panel).alias("panel"), pl.all())
