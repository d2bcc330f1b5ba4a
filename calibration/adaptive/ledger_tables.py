"""The tables of the ledger, and how their rows store numbers.

The tables are: holders; issued intervals, bands and present values; outcomes, as a keyed hash and,
for years in a band or present value, the encrypted amount; contradicting amounts, as keyed hashes;
the append-only log of settled intervals, bands and present values with the forecast probabilities
of their outcomes; the counts of the log; the state, a pure function of the counts; and the
append-only audit trail of the calls that changed the ledger. Names of tables and columns change by
a migration only, because existing ledgers have them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

COMMON_ID = 1  # row of `Holder` with the name `COMMON`
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


class Holder(Base):
    """Whose persons and outcomes they are; the first row is the common holder."""

    __tablename__ = "holder"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(64), unique=True)


class Stream(Base):
    """A holder's issued intervals of one bundle.

    Columns: `bundle` is its digest; `version` counts the transactions that changed its state;
    `delivered_until` is the last origin year for which a delivery (`saga calibrate --append`) has
    entered all its intervals.
    """

    __tablename__ = "stream"
    __table_args__ = (sa.UniqueConstraint("holder_id", "bundle"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    holder_id: Mapped[int] = mapped_column(sa.ForeignKey("holder.id"))
    bundle: Mapped[str] = mapped_column(sa.String(64))
    version: Mapped[int]
    delivered_until: Mapped[int | None]


class IssuedIntervalRow(Base):
    """The intervals of all coverages issued for one person, origin year and horizon.

    Columns: `person` is a pseudonym, which depends on the holder; `family` is year, band or
    present_value, and `horizon` of the last two is their number of years; `group` is the group of
    the cell that was used, for bands and present values the family; `base` are the split thresholds
    by coverage; `issued` are the thresholds in force, base + offset, by coverage; `distribution` is
    the packed distribution, for bands those of all years, until all outcomes are known; `sealed` is
    the same from then on, encrypted with the ledger's key. For bands and present values `cells`
    names the cells whose moves the years have, and `levels` are the probabilities in force: of each
    year of a band, or of a present value as a whole.
    """

    __tablename__ = "issued_interval"
    __table_args__ = (
        sa.UniqueConstraint("person", "origin_year", "family", "horizon", "stream_id"),
    )
    id: Mapped[int] = mapped_column(_BIG_ID, primary_key=True)
    stream_id: Mapped[int] = mapped_column(sa.ForeignKey("stream.id"))
    person: Mapped[bytes] = mapped_column(sa.LargeBinary)
    origin_year: Mapped[int]
    family: Mapped[str] = mapped_column(sa.String(16))
    horizon: Mapped[int]
    group: Mapped[str] = mapped_column(sa.String(64))
    base: Mapped[bytes] = mapped_column(sa.LargeBinary)
    issued: Mapped[bytes] = mapped_column(sa.LargeBinary)
    distribution: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    sealed: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    cells: Mapped[str | None] = mapped_column(sa.Text)
    levels: Mapped[bytes | None] = mapped_column(sa.LargeBinary)


class OutcomeRow(Base):
    """A known outcome of a person (a pseudonym) in a year.

    Column `amount_hash` is a keyed hash of the amount. It shows whether a later delivery repeats or
    contradicts the amount. `sealed_amount` is the amount encrypted with the ledger's key, for the
    bands and present values that need it with those of other years; null if there is none.
    """

    __tablename__ = "outcome"
    person: Mapped[bytes] = mapped_column(sa.LargeBinary, primary_key=True)
    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    amount_hash: Mapped[bytes] = mapped_column(sa.LargeBinary)
    sealed_amount: Mapped[bytes | None] = mapped_column(sa.LargeBinary)


class ConflictRow(Base):
    """An amount that contradicted a known outcome: a keyed hash of it, as in `OutcomeRow`."""

    __tablename__ = "conflict"
    person: Mapped[bytes] = mapped_column(sa.LargeBinary, primary_key=True)
    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    amount_hash: Mapped[bytes] = mapped_column(sa.LargeBinary, primary_key=True)


class AuditRow(Base):
    """A transaction that changed the ledger; the database forbids changes of this table.

    Columns: `at` is the time (UTC); `key_name` is the name of the key, never the key; `call` is the
    identifier of the call in the log of the service; `action` is record, settle or correct;
    `details` are the counts of the transaction.
    """

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(_BIG_ID, primary_key=True)
    at: Mapped[str] = mapped_column(sa.String(32))
    holder_id: Mapped[int] = mapped_column(sa.ForeignKey("holder.id"))
    key_name: Mapped[str | None] = mapped_column(sa.String(64))
    call: Mapped[str | None] = mapped_column(sa.String(64))
    action: Mapped[str] = mapped_column(sa.String(16))
    details: Mapped[dict[str, Any]] = mapped_column(sa.JSON)


class SettlementRow(Base):
    """One entry of the log: the issued intervals `interval_id` were settled, or it was taken back.

    Columns: `sign` is 1, or -1 for the entry that takes an earlier one back; `ranks` are the
    published forecast probabilities of less than the outcome and of zero, of each year of a band;
    together they give the conformity score for each coverage. `audit_id` is the transaction. The
    database forbids changes.
    """

    __tablename__ = "settlement"
    id: Mapped[int] = mapped_column(_BIG_ID, primary_key=True)
    interval_id: Mapped[int] = mapped_column(sa.ForeignKey("issued_interval.id"), index=True)
    ranks: Mapped[bytes] = mapped_column(sa.LargeBinary)
    sign: Mapped[int]
    audit_id: Mapped[int] = mapped_column(sa.ForeignKey("audit.id"))


class StateVersion(Base):
    """After which entry of the log a stream reached a version of its state.

    The state of a holder follows the log of the common holder and its own.
    """

    __tablename__ = "state_version"
    stream_id: Mapped[int] = mapped_column(sa.ForeignKey("stream.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_settlement: Mapped[int] = mapped_column(_BIG_ID)


class BandScaleRow(Base):
    """The map of the bundle that brings scores at a horizon to the scale of path bands."""

    __tablename__ = "band_scale"
    stream_id: Mapped[int] = mapped_column(sa.ForeignKey("stream.id"), primary_key=True)
    horizon: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    knots: Mapped[bytes] = mapped_column(sa.LargeBinary)
    values: Mapped[bytes] = mapped_column(sa.LargeBinary)


class ExcessCountsRow(Base):
    """The `ExcessCounts` of one cell and outcome year, as bytes.

    Columns: `counts` are numbers of persons by coverage and excess; `missed` are numbers of
    intervals without the outcome, by coverage.
    """

    __tablename__ = "excess_counts"
    stream_id: Mapped[int] = mapped_column(sa.ForeignKey("stream.id"), primary_key=True)
    group: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    horizon: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    counts: Mapped[bytes] = mapped_column(sa.LargeBinary)
    missed: Mapped[bytes] = mapped_column(sa.LargeBinary)


class StateRow(Base):
    """The `CellState` of one cell and coverage.

    Columns: `offset` is added to the split threshold; `integral` is the
    weighted sum over years of (share missed - nominal share); `weight` is the sum of the years'
    weights; `persons` and `missed` are numbers of settled intervals; `last_year` is the last year
    with an outcome; `experts` are the weights of the rules that propose offsets.
    """

    __tablename__ = "state"
    stream_id: Mapped[int] = mapped_column(sa.ForeignKey("stream.id"), primary_key=True)
    group: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    horizon: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    coverage: Mapped[float] = mapped_column(sa.Double, primary_key=True)
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
