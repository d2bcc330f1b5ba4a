"""One partition of a batch run: its rows and its receipt, committed by any process."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from saga.batch.partitions import Partitions, Source
from saga.batch.run_folder import RUN, receipt_name, refuse_other_run
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.files.folders import Folder, put_json, read_json_of
from saga.files.tables import KEY
from saga.forecast_warnings import ForecastWarning, warning_dicts

_PARTITIONS = 250  # enough for shards and workers that differ in speed
_FEW_PERSONS = 500  # fewer are not worth a part of their own


class Computation(Protocol):
    """Computes the rows of one partition."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Bundle, seed and other origins of the rows, for the metadata of a part."""
        ...

    def ineligible(self, panel: Panel) -> Mapping[str, str]:
        """The persons that cannot be forecast -> the rule that excludes them."""
        ...

    def compute(self, panel: Panel) -> pl.DataFrame:
        """The rows of a panel of eligible persons, sorted by person."""
        ...

    def warnings(self, panel: Panel) -> Sequence[ForecastWarning]:
        """The warnings about a panel of eligible persons."""
        ...


class BatchRecipe(Protocol):
    """Describes a product. Each worker process receives a pickled copy and opens it."""

    def describe(self) -> Mapping[str, Any]:
        """Everything besides the source on which the rows depend, as JSON values."""
        ...

    def largest_partition(self) -> int:
        """How many persons of one partition have room in memory."""
        ...

    def open(self) -> Computation:
        """Load the bundle or whatever else the computation needs."""
        ...


@dataclass(frozen=True)
class BatchRun:
    """One batch run; `digest` identifies its description."""

    out: Folder
    digest: str
    source: Source
    recipe: BatchRecipe
    persons_per_partition: int | None

    def partition_size(self, persons: int) -> int:
        """Persons of a partition: `persons_per_partition`, or chosen for `persons` in all.

        The choice depends on the input and the recipe, not on machines, so that any engine can
        continue the run.
        """
        if self.persons_per_partition is not None:
            return self.persons_per_partition
        return min(self.recipe.largest_partition(), max(_FEW_PERSONS, -(-persons // _PARTITIONS)))


class Engine(Protocol):
    """Computes partitions, in any order and in any processes."""

    def __call__(
        self, run: BatchRun, partitions: Partitions, pending: Sequence[int], *, workers: int
    ) -> Iterator[dict[str, Any]]:
        """Write the pending partitions; receipts as they finish.

        Raises WorkersLostError if processes ended too often to go on.
        """
        ...


class WorkersLostError(Exception):
    """Processes that computed partitions ended; the message says how."""


class PartitionWriter:
    """Computes and commits partitions; each process has one writer.

    Raises UsageError if the recipe opens another bundle than the run began with, because it was
    replaced since then or a node of a cluster has its own.
    """

    def __init__(self, run: BatchRun, partitions: Partitions) -> None:
        begun = read_json_of(run.out, RUN) or {}
        present = {**begun, "recipe": json.loads(json.dumps(run.recipe.describe()))}
        if present != begun:
            refuse_other_run(run.out, begun, present)
        self.run, self.partitions, self.computation = run, partitions, run.recipe.open()

    def write(self, index: int) -> dict[str, Any]:
        """Write a partition and its receipt to disk, and return the receipt."""
        persons, staged = self.partitions.read(index)
        receipt: dict[str, Any] = {
            "run": self.run.digest,
            "partition": index,
            "persons": len(persons),
            "file": None,
            "rows": 0,
            "warnings": [],
        }
        rejected, panel = dict.fromkeys(persons, "no-usable-row"), self._panel(staged, receipt)
        if panel is not None:
            present = panel.persons()
            if not set(present) <= set(persons):
                fix = "Store them with one type in all files."
                problem = Problem("person-id", "text in one file, numbers in another", fix)
                raise InputError("The persons' ids are written in several ways.", [problem])
            excluded = self.computation.ineligible(panel)
            rejected = {
                person: excluded.get(person, "no-usable-row")
                for person in persons
                if person in excluded or person not in set(present)
            }
            eligible = [person for person in present if person not in excluded]
            if eligible:
                receipt |= self._commit_rows(index, panel.only(eligible), eligible)
        receipt["rejected"] = rejected
        put_json(self.run.out, receipt_name(index), receipt)
        return receipt

    def _panel(self, staged: pl.DataFrame, receipt: dict[str, Any]) -> Panel | None:
        """The panel of a partition, or None without usable rows; adds row counts to the receipt."""
        try:
            panel = self.run.source.panel(staged)
        except InputError as error:
            if [problem.rule for problem in error.problems][:1] != ["no-rows"]:
                raise
            receipt |= {"rows_dropped": {}, "rows_excluded": {"no-usable-row": staged.height}}
            return None
        receipt |= {
            "rows_dropped": dict(panel.meta.dropped),
            "rows_excluded": dict(panel.meta.excluded),
        }
        return panel

    def _commit_rows(self, index: int, panel: Panel, persons: list[str]) -> dict[str, Any]:
        frame = self.computation.compute(panel).rechunk()
        if frame["person_id"].unique(maintain_order=True).to_list() != persons:
            raise RuntimeError(
                f"the rows of partition {index} are not those of its persons, in order"
            )
        warnings = warning_dicts(self.computation.warnings(panel), max_persons=0)
        provenance = json.dumps(
            {**self.computation.provenance, "warnings": warnings},
            sort_keys=True,
            ensure_ascii=False,
            default=str,
        )
        part = io.BytesIO()
        frame.write_parquet(part, compression="zstd", metadata={KEY: provenance})
        name, content = f"part-{index:05d}.parquet", part.getvalue()
        self.run.out.put(name, content)
        digest = hashlib.sha256(content).hexdigest()
        return {"file": name, "sha256": digest, "rows": frame.height, "warnings": warnings}
