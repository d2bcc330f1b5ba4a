"""Tables as the bytes of a file."""

from __future__ import annotations

import io
from typing import Any

import polars as pl


def encoded(frame: pl.DataFrame, kind: str = "parquet", **options: Any) -> bytes:
    """The bytes that polars writes: `parquet`, `ipc` or `ipc_stream`."""
    buffer = io.BytesIO()
    getattr(frame, f"write_{kind}")(buffer, **options)
    return buffer.getvalue()
