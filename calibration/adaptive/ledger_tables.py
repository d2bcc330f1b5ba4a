"""The tables of the ledger, and how their rows store numbers.

The tables are: issued intervals; outcomes, of which only a keyed hash is stored; the append-only
log of settled intervals with the forecast probabilities of their outcomes; the counts of the log;
and the state, a pure function of the counts. Names of tables and columns can change by a migration
only, because existing ledgers have them.
"""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class Base(DeclarativeBase):
    """The tables; `calibration/adaptive/migrations` creates them."""


class LedgerKey(Base):
    """One row: the hash of a fixed word under the pseudonym key.

    If the ledger is opened with another key, the hash differs. A writer locks this row.
    """

    __tablename__ = "ledger"
    id: Mapped[int] = mapped_column(primary_key=True)
    key_check: Mapped[bytes] = mapped_column(sa.LargeBinary)


class Stream(Base):
    """A bundle with issued intervals.

    Columns: `bundle` is its digest; `levels` are its coverages; `version` counts the transactions
    that changed its state; `promised_until` is the last origin year for which a delivery
    (`saga calibrate --append`) has entered all its intervals; `closed` is the reason why intervals
    cannot be entered or settled any more, null if they can.
    """

    __tablename__ = "stream"
    id: Mapped[int] = mapped_column(primary_key=True)
    bundle: Mapped[str] = mapped_column(sa.String(64), unique=True)
    levels: Mapped[list[float]] = mapped_column(sa.JSON)
    version: Mapped[int]
    promised_until: Mapped[int | None]
    closed: Mapped[str | None] = mapped_column(sa.String(200))


class IssuedIntervalRow(Base):
    """The intervals of all coverages issued for one person, origin year and horizon.

    Columns: `person` is a pseudonym; `group` is the group of the cell that was used; `base` are the
    split thresholds by coverage; `issued` are the thresholds in force, base + offset, by coverage;
    `family` is the packed distribution, deleted when the outcome arrives.
    """

    __tablename__ = "promise"
    __table_args__ = (sa.UniqueConstraint("person", "origin_year", "horizon", "stream_id"),)
    id: Mapped[int] = mapped_column(_BIG_ID, primary_key=True)
    stream_id: Mapped[int] = mapped_column(sa.ForeignKey("stream.id"))
    person: Mapped[bytes] = mapped_column(sa.LargeBinary)
    origin_year: Mapped[int]
    horizon: Mapped[int]
    group: Mapped[str] = mapped_column(sa.String(64))
    base: Mapped[bytes] = mapped_column(sa.LargeBinary)
    issued: Mapped[bytes] = mapped_column(sa.LargeBinary)
    family: Mapped[bytes | None] = mapped_column(sa.LargeBinary)


class OutcomeRow(Base):
    """A known outcome of a person (a pseudonym) in a year.

    Column `seal` is a keyed hash of the amount. It shows whether a later delivery repeats or
    contradicts the amount, which is not stored.
    """

    __tablename__ = "outcome"
    person: Mapped[bytes] = mapped_column(sa.LargeBinary, primary_key=True)
    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seal: Mapped[bytes] = mapped_column(sa.LargeBinary)


class SettlementRow(Base):
    """One entry of the log: the issued intervals `promise_id` were settled.

    Columns: `probability` is the forecast probability of less earnings than the outcome, and
    `p_zero` that of zero; together they give the conformity score for each coverage. If `p_zero` is
    null, the stream is closed and `probability` is the score in the nested sets of that time.
    `version` is that of the stream after the transaction. The database forbids changes.
    """

    __tablename__ = "event"
    id: Mapped[int] = mapped_column(_BIG_ID, primary_key=True)
    promise_id: Mapped[int] = mapped_column(sa.ForeignKey("promise.id"), unique=True)
    version: Mapped[int]
    probability: Mapped[float] = mapped_column(sa.Double)
    p_zero: Mapped[float | None] = mapped_column(sa.Double)


class ExcessCountsRow(Base):
    """The `ExcessCounts` of one cell and outcome year, as bytes.

    Columns: `counts` are numbers of persons by coverage and excess; `missed` are numbers of
    intervals without the outcome, by coverage.
    """

    __tablename__ = "tally"
    stream_id: Mapped[int] = mapped_column(sa.ForeignKey("stream.id"), primary_key=True)
    group: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    horizon: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    counts: Mapped[bytes] = mapped_column(sa.LargeBinary)
    missed: Mapped[bytes] = mapped_column(sa.LargeBinary)


class StateRow(Base):
    """The `CellState` of one cell and coverage.

    Columns: `level` is the coverage. `offset` is added to the split threshold; `integral` is the
    weighted sum over years of (share missed - nominal share); `weight` is the sum of the years'
    weights; `persons` and `missed` are numbers of settled intervals; `last_year` is the last year
    with an outcome; `experts` are the weights of the rules that propose offsets.
    """

    __tablename__ = "state"
    stream_id: Mapped[int] = mapped_column(sa.ForeignKey("stream.id"), primary_key=True)
    group: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    horizon: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    level: Mapped[float] = mapped_column(sa.Double, primary_key=True)
    offset: Mapped[float] = mapped_column(sa.Double)
    integral: Mapped[float] = mapped_column(sa.Double)
    weight: Mapped[float] = mapped_column(sa.Double)
    persons: Mapped[int]
    missed: Mapped[int]
    last_year: Mapped[int | None]
    experts: Mapped[list[float]] = mapped_column(sa.JSON)


def pack_thresholds(row: NDArray[np.float64]) -> bytes:
    """Thresholds as the columns `base` and `issued` store them: little-endian doubles."""
    return row.astype("<f8").tobytes()


def unpack_thresholds(blob: bytes) -> NDArray[np.float64]:
    """The thresholds that `pack_thresholds` stored."""
    return np.frombuffer(blob, dtype="<f8")
