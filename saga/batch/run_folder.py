"""The output folder of a batch run: its description, receipts, rejected persons and manifest."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pyarrow.parquet as pq

from saga.errors import UsageError
from saga.files.atomic import LOCK, commit, json_bytes, read_json
from saga.files.folders import Folder, put_json, read_json_of
from saga.files.tables import KEY, parquet_bytes, read_provenance
from saga.forecast_warnings import add_counts

MANIFEST, RUN, REJECTED = "_MANIFEST.json", "_run.json", "_rejected.csv"
RECEIPTS, STAGED, SHARDS = "_receipts", "_staged", "_shards"


@dataclass(frozen=True)
class ScoreReport:
    """Counts of persons, rows and partitions in `out_dir` after a run.

    Args:
        out_dir: Path or URL of the parts.
        partitions: Number of partitions.
        resumed: Number of partitions that were complete before this run.
        persons_in: Number of persons of the source, the sum of `persons_out` and `rejected`.
        persons_out: Number of persons with rows.
        rows: Number of rows of all parts.
        rejected: Rule -> number of persons that it excludes.
        rows_dropped: Rule -> number of input rows that broke it (`on_error="drop"`).
        rows_excluded: Rule -> number of input rows that a panel never has, such as other ages.
        warnings: Warnings of all parts together (`saga.forecast_warnings`), as plain values.
    """

    out_dir: str
    partitions: int
    resumed: int
    persons_in: int
    persons_out: int
    rows: int
    rejected: dict[str, int]
    rows_dropped: dict[str, int]
    rows_excluded: dict[str, int]
    warnings: list[dict[str, Any]]

    @property
    def totals(self) -> dict[str, Any]:
        """The entries of the manifest, which do not depend on interruptions."""
        values = asdict(self)
        del values["out_dir"], values["resumed"]
        return values


def claim_folder(out: Folder, description: Mapping[str, Any]) -> None:
    """Write the run's description to `out`; UsageError if `out` belongs to another run."""
    for folder in ("", RECEIPTS):
        out.sweep(folder)
    foreign = sorted(out.names() - {LOCK, SHARDS, RECEIPTS})
    earlier = read_json_of(out, RUN)
    if earlier is None:
        if foreign:
            raise UsageError(
                f"{out} has the file {foreign[0]}, which no scoring run wrote. Use an empty or a "
                "new folder."
            )
        out.create(RUN, json_bytes(description))
        earlier = read_json_of(out, RUN)  # where there are no locks another run may be first
    if earlier != description:
        if not out.has_locks or any(name.endswith(".json") for name in out.names(RECEIPTS)):
            refuse_other_run(out, earlier or {}, description)
        # The earlier run stopped before its first part, usually at bad input: nothing is lost.
        staged = {f"{SHARDS}/{name}" for name in out.names(SHARDS) if "-staged" in name}
        for folder in (STAGED, *staged):
            out.remove(folder)
        put_json(out, RUN, description)


def refuse_other_run(
    out: Folder, earlier: Mapping[str, Any], description: Mapping[str, Any]
) -> NoReturn:
    """Raise UsageError with the names of what differs from the run of the folder."""
    names = ", ".join(sorted(differences(earlier, description)))
    raise UsageError(
        f"{out} has the output of another run: {names} differ. Give the arguments of that "
        "run, or use another folder."
    )


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Names of the entries that differ, inside the input and the recipe too."""
    for name in one.keys() | other.keys():
        a, b = one.get(name), other.get(name)
        if a != b:
            yield from (
                differences(a, b)
                if name in ("input", "recipe") and isinstance(a, dict) and isinstance(b, dict)
                else (name,)
            )


def receipt_name(index: int) -> str:
    """Name of the receipt of a partition."""
    return f"{RECEIPTS}/part-{index:05d}.json"


def valid_receipts(out: Folder, indices: Iterable[int], digest: str) -> dict[int, dict[str, Any]]:
    """The receipts of partitions in run `digest`, without those whose rows are lost or changed."""
    receipts = {}
    for index in indices:
        receipt = read_json_of(out, receipt_name(index))
        if receipt is None or receipt.get("run") != digest:
            continue
        if receipt["file"] is None or out.digest(receipt["file"]) == receipt["sha256"]:
            receipts[index] = receipt
    return receipts


def put_part(
    out: Folder, name: str, rows: pl.DataFrame, provenance: Mapping[str, object]
) -> dict[str, Any]:
    """Write a part with its provenance; its entry of the manifest: file, sha256 and rows."""
    record = json.dumps(provenance, sort_keys=True, ensure_ascii=False, default=str)
    content = parquet_bytes(rows.rechunk(), {KEY: record})
    out.put(name, content)
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "rows": rows.height}


def sum_receipts(out: Folder, receipts: Sequence[Mapping[str, Any]], resumed: int) -> ScoreReport:
    """Add up the counts of all receipts."""

    def total(name: str) -> dict[str, int]:
        return dict(
            sorted(sum((Counter(receipt[name]) for receipt in receipts), Counter[str]()).items())
        )

    rejected = Counter(rule for receipt in receipts for rule in receipt["rejected"].values())
    persons = sum(receipt["persons"] for receipt in receipts)
    return ScoreReport(
        out_dir=str(out),
        partitions=len(receipts),
        resumed=resumed,
        persons_in=persons,
        persons_out=persons - rejected.total(),
        rows=sum(receipt["rows"] for receipt in receipts),
        rejected=dict(sorted(rejected.items())),
        rows_dropped=total("rows_dropped"),
        rows_excluded=total("rows_excluded"),
        warnings=add_counts([receipt["warnings"] for receipt in receipts if receipt["rows"]]),
    )


def finish_folder(
    out: Folder,
    description: Mapping[str, Any],
    report: ScoreReport,
    receipts: Sequence[Mapping[str, Any]],
) -> None:
    """Write the rejected persons and the manifest, and delete the staged rows."""
    rejected = [pair for receipt in receipts for pair in receipt["rejected"].items()]
    table = pl.DataFrame(rejected, schema={"person_id": pl.String, "rule": pl.String}, orient="row")
    out.put(REJECTED, table.write_csv().encode())
    parts = [
        {name: receipt[name] for name in ("file", "sha256", "rows")}
        for receipt in receipts
        if receipt["file"]
    ]
    put_json(out, MANIFEST, {"run": description, "totals": report.totals, "parts": parts})
    for folder in (STAGED, SHARDS):
        out.remove(folder)


def merge_parts(out: Path, target: Path) -> None:
    """Write the rows of all parts of a complete run to one Parquet file, with bounded memory.

    The provenance is that of the parts, with the warnings of all parts together.
    """
    manifest = read_json(out / MANIFEST)
    if manifest is None or not manifest["parts"]:
        raise ValueError("the run is not complete, or has no row")
    parts = [out / part["file"] for part in manifest["parts"]]
    provenance = {**read_provenance(parts[0]), "warnings": manifest["totals"]["warnings"]}
    text = json.dumps(provenance, sort_keys=True, ensure_ascii=False)
    schema = pq.read_schema(parts[0]).with_metadata({KEY: text})

    def write(path: Path) -> None:
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for part in parts:
                file = pq.ParquetFile(part)
                for group in range(file.num_row_groups):
                    rows = file.read_row_group(group)
                    writer.write_table(rows.replace_schema_metadata(schema.metadata))

    commit(target, write)
