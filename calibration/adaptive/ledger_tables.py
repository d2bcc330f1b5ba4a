"""The tables of the ledger, in their order of dependence, and how rows hold numbers.

Promises; outcomes, of which only a keyed seal is kept; the append-only log of settled promises with their scores; the tallies of the log;
and the state, a pure function of the tallies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    JSON,
    BigInteger,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_WHOLE = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """The tables; `calibration/migrations` builds them."""


class LedgerKey(Base):
    """One row: what the secret makes of a fixed word, so that another secret is noticed; and the lock that a writer holds."""

    __tablename__ = "ledger"
    id: Mapped[int] = mapped_column(primary_key=True)
    key_check: Mapped[bytes] = mapped_column(LargeBinary)


class Stream(Base):
    """A bundle whose promises are judged together; `version` counts the transactions that changed its state, `promised_until` is the last
    origin year from which deliveries (`saga calibrate --append`) have promised all that they were to promise."""

    __tablename__ = "stream"
    id: Mapped[int] = mapped_column(primary_key=True)
    bundle: Mapped[str] = mapped_column(String(64), unique=True)
    levels: Mapped[list[float]] = mapped_column(JSON)
    version: Mapped[int]
    promised_until: Mapped[int | None]


class IssuedIntervalRow(Base):
    """One published set: for whom (a pseudonym), which year, under which thresholds; `family` until its outcome is in."""

    __tablename__ = "promise"
    __table_args__ = (UniqueConstraint("person", "origin_year", "horizon", "stream_id"),)
    id: Mapped[int] = mapped_column(_WHOLE, primary_key=True)
    stream_id: Mapped[int] = mapped_column(ForeignKey("stream.id"))
    person: Mapped[bytes] = mapped_column(LargeBinary)
    origin_year: Mapped[int]
    horizon: Mapped[int]
    group: Mapped[str] = mapped_column(String(64))
    base: Mapped[bytes] = mapped_column(LargeBinary)
    issued: Mapped[bytes] = mapped_column(LargeBinary)
    family: Mapped[bytes | None] = mapped_column(LargeBinary)


class OutcomeRow(Base):
    """That an outcome is known, and a keyed seal of its amount: enough to tell a repetition from a contradiction."""

    __tablename__ = "outcome"
    person: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seal: Mapped[bytes] = mapped_column(LargeBinary)


class SettlementRow(Base):
    """The log: a promise was settled with this score, in the transaction that made the stream's `version`. The database forbids changes."""

    __tablename__ = "event"
    id: Mapped[int] = mapped_column(_WHOLE, primary_key=True)
    promise_id: Mapped[int] = mapped_column(ForeignKey("promise.id"), unique=True)
    version: Mapped[int]
    score: Mapped[float] = mapped_column(Double)


class ExcessCountsRow(Base):
    """A tally of the log (see `calibration.adaptive.adaptive_state.ExcessCounts`), packed."""

    __tablename__ = "tally"
    stream_id: Mapped[int] = mapped_column(ForeignKey("stream.id"), primary_key=True)
    group: Mapped[str] = mapped_column(String(64), primary_key=True)
    horizon: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    counts: Mapped[bytes] = mapped_column(LargeBinary)
    missed: Mapped[bytes] = mapped_column(LargeBinary)


class StateRow(Base):
    """The state of a cell (see `calibration.adaptive.adaptive_state.CellState`)."""

    __tablename__ = "state"
    stream_id: Mapped[int] = mapped_column(ForeignKey("stream.id"), primary_key=True)
    group: Mapped[str] = mapped_column(String(64), primary_key=True)
    horizon: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    level: Mapped[float] = mapped_column(Double, primary_key=True)
    offset: Mapped[float] = mapped_column(Double)
    integral: Mapped[float] = mapped_column(Double)
    weight: Mapped[float] = mapped_column(Double)
    persons: Mapped[int]
    missed: Mapped[int]
    last_year: Mapped[int | None]
    experts: Mapped[list[float]] = mapped_column(JSON)


def pack_thresholds(row: NDArray[np.float64]) -> bytes:
    """The thresholds of a promise as `base` and `issued` hold them: little-endian doubles."""
    return row.astype("<f8").tobytes()


def unpack_thresholds(blob: bytes) -> NDArray[np.float64]:
    """What `pack_thresholds` packed."""
    return np.frombuffer(blob, dtype="<f8")
