"""Frames of persons to Parquet, and Parquet to the same kind of frame."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from saga.client.service_connection import ServiceError
from saga.errors import UsageError
from saga.files.arrow_streams import to_arrow
from saga.summaries import Summarised, Summary, count

# `saga.files.tables.KEY`; that module needs polars, which the client does not.
_KEY = b"saga"
FrameT = TypeVar("FrameT")  # a DataFrame of pandas or polars, or an Arrow table


@dataclass(frozen=True, repr=False)
class Answer(Summarised, Generic[FrameT]):
    """A table of the service, in the kind of frame that was sent.

    Args:
        frame: The rows, sorted by person.
        provenance: What made the numbers: digests of the bundle and calibration, seed, prices.
        warnings: What a reader must know.
        left_out: The persons who cannot be forecast, with `rule`, `message` and `fix`.
    """

    frame: FrameT
    provenance: Mapping[str, Any]
    warnings: tuple[Mapping[str, Any], ...]
    left_out: tuple[Mapping[str, Any], ...] = ()

    def summary(self) -> Summary:
        """The number of rows, what made them, the warnings and how many persons are left out."""
        lines = {
            "rows": f"{len(self.frame):,}",  # type: ignore[arg-type]
            "bundle": str(self.provenance.get("bundle", ""))[:12],
        }
        lines |= {f"warning {i}": w["message"] for i, w in enumerate(self.warnings, 1)}
        lines |= {"left out": count(len(self.left_out), "person")} if self.left_out else {}
        return Summary("Answer", lines)


def to_parquet(frame: FrameT) -> bytes:
    """The frame as Parquet; a named index of pandas becomes columns.

    Raises UsageError unless the frame is of pandas, polars or Arrow, and a column has one type.
    """
    if not hasattr(frame, "__arrow_c_stream__"):
        raise UsageError(
            "Persons are a pandas or polars DataFrame or an Arrow table, "
            f"not {type(frame).__name__}."
        )
    try:
        table = to_arrow(frame)
    except (pa.ArrowException, ValueError, TypeError):  # its message repeats cells
        raise UsageError("A column mixes types, or two have one name. Convert it first.") from None
    target = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(None), target, compression="zstd")
    return target.getvalue()


def read_answer(content: bytes, example: FrameT) -> Answer[FrameT]:
    """The answer in Parquet bytes; its frame is of the kind of `example`.

    Raises ServiceError if it is something else.
    """
    try:
        # Not from Python's bytes: a thread of Arrow that frees them while Python ends aborts the
        # process (Arrow's issue 34314).
        stored = pa.BufferOutputStream()
        stored.write(content)
        file = pq.ParquetFile(stored.getvalue())
        provenance = dict(json.loads((file.metadata.metadata or {})[_KEY]))
        table = file.read()
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError):
        raise ServiceError(
            "The answer is not a table of a SAGA service. Check the address, and what is before it."
        ) from None
    warnings, left_out = (tuple(provenance.pop(name, ())) for name in ("warnings", "left_out"))
    frame = _as_frame(table.replace_schema_metadata(None), example)
    return Answer(frame, provenance, warnings, left_out)


def require_replaceable(path: Path) -> None:
    """Raise UsageError if there is something at the path that is no answer of a service."""
    if not path.exists():
        return
    try:
        is_answer = _KEY in (pq.read_metadata(path).metadata or {})
    except (pa.ArrowException, OSError):
        is_answer = False
    if not is_answer:
        raise UsageError(f"{path} is no table of SAGA, so it is not replaced. Name another file.")


def _as_frame(table: pa.Table, example: FrameT) -> FrameT:
    library = _library(example)
    if library == "pandas":
        return cast(FrameT, table.to_pandas())
    if library == "polars":
        import polars

        return cast(FrameT, polars.from_arrow(table))
    return cast(FrameT, table)


def _library(frame: object) -> str:
    return type(frame).__module__.partition(".")[0]
