"""The tables of the ledger, and how their rows store numbers.

Names of tables and columns change by a migration only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

TABLES = sa.MetaData()

# The holder of what the commands and a service without keys enter. Its outcomes move the thresholds
# of every holder.
COMMON = "common"

_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite increments INTEGER only


def _key(name: str, *constraints: sa.ForeignKey) -> sa.Column[int]:
    """A number that is a part of the primary key."""
    return sa.Column(name, sa.Integer, *constraints, primary_key=True, autoincrement=False)


def _filled(
    name: str,
    kind: sa.types.TypeEngine[Any] | type[sa.types.TypeEngine[Any]],
    *constraints: sa.ForeignKey,
) -> sa.Column[Any]:
    """A column without nulls."""
    return sa.Column(name, kind, *constraints, nullable=False)


# One row: a random id, which tells ledgers of one key apart, and the hash of a fixed word under the
# pseudonym key. If the ledger is opened with another key, the hash differs. A writer locks the row.
LEDGER_KEY = sa.Table("ledger", TABLES, _key("id"), _filled("key_check", sa.LargeBinary))

# What a holder has issued with one bundle, and the adaptive state that follows from its outcomes
# and the common ones. `bundle` is a digest; `version` counts the transactions that changed the
# state; `delivered_until` is the last origin year for which a delivery (`saga calibrate --append`)
# has entered all its intervals; `state` has a row for each cell and coverage, in the order of
# `CellState`; `scales` are the bundle's maps of scores to the scale of path bands, by horizon.
STREAM = sa.Table(
    "stream",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    _filled("holder", sa.String(64)),
    _filled("bundle", sa.String(64)),
    _filled("version", sa.Integer),
    sa.Column("delivered_until", sa.Integer),
    _filled("state", sa.JSON),
    _filled("scales", sa.JSON),
    sa.UniqueConstraint("holder", "bundle"),
)

# See `saga.calibration.adaptive.issued_intervals.IssuedInterval`. `person` is a pseudonym, which
# depends on the holder; `distribution` is encrypted with the ledger's key; `settled` says whether
# the outcomes are known.
ISSUED = sa.Table(
    "issued_interval",
    TABLES,
    sa.Column("id", _BIG_ID, primary_key=True),
    _filled("stream_id", sa.Integer, sa.ForeignKey("stream.id")),
    _filled("person", sa.LargeBinary),
    _filled("origin_year", sa.Integer),
    _filled("family", sa.String(16)),
    _filled("horizon", sa.Integer),
    _filled("group", sa.String(64)),
    _filled("base", sa.LargeBinary),
    _filled("issued", sa.LargeBinary),
    _filled("in_force", sa.LargeBinary),
    _filled("cells", sa.Text),
    _filled("distribution", sa.LargeBinary),
    _filled("settled", sa.Boolean),
    sa.UniqueConstraint("person", "origin_year", "family", "horizon", "stream_id"),
)

# A known outcome of a person (a pseudonym) in a year; the amount is encrypted.
OUTCOME = sa.Table(
    "outcome",
    TABLES,
    sa.Column("person", sa.LargeBinary, primary_key=True),
    _key("year"),
    _filled("amount", sa.LargeBinary),
)

# An amount that contradicted a known outcome: a keyed hash of it.
CONFLICT = sa.Table(
    "conflict",
    TABLES,
    sa.Column("person", sa.LargeBinary, primary_key=True),
    _key("year"),
    sa.Column("amount_hash", sa.LargeBinary, primary_key=True),
)

# A transaction that changed the ledger; the database forbids changes. `at` is the time (UTC);
# `key_name` is the name of the key, never the key; `call` is the identifier of the call in the log
# of the service; `action` is record, settle or correct; `details` are the counts.
AUDIT = sa.Table(
    "audit",
    TABLES,
    sa.Column("id", _BIG_ID, primary_key=True),
    _filled("at", sa.String(32)),
    _filled("holder", sa.String(64)),
    sa.Column("key_name", sa.String(64)),
    sa.Column("call", sa.String(64)),
    _filled("action", sa.String(16)),
    _filled("details", sa.JSON),
)

# The log: an issued interval was settled, or that was taken back; the database forbids changes.
# `sign` is 1, or -1 for an entry that takes an earlier one back; `ranks` are the published forecast
# probabilities of less than the outcome and of zero, of each year of a band. `audit_id` is the
# transaction.
SETTLEMENT = sa.Table(
    "settlement",
    TABLES,
    sa.Column("id", _BIG_ID, primary_key=True),
    sa.Column(
        "interval_id", _BIG_ID, sa.ForeignKey("issued_interval.id"), nullable=False, index=True
    ),
    _filled("ranks", sa.LargeBinary),
    _filled("sign", sa.Integer),
    sa.Column("audit_id", _BIG_ID, sa.ForeignKey("audit.id"), nullable=False, index=True),
)

# The `ExcessCounts` of one cell and outcome year. `counts` are numbers of persons by coverage and
# excess; `missed` are numbers of intervals without the outcome, by coverage.
EXCESS_COUNTS = sa.Table(
    "excess_counts",
    TABLES,
    _key("stream_id", sa.ForeignKey("stream.id")),
    sa.Column("group", sa.String(64), primary_key=True),
    _key("horizon"),
    _key("year"),
    _filled("counts", sa.LargeBinary),
    _filled("missed", sa.LargeBinary),
)


def pack_numbers(numbers: NDArray[np.float64]) -> bytes:
    """Numbers as a column stores them: little-endian doubles."""
    return numbers.astype("<f8").tobytes()


def unpack_numbers(packed: bytes, *shape: int) -> NDArray[np.float64]:
    """The numbers that `pack_numbers` stored, in a shape; by default one row."""
    return np.frombuffer(packed, dtype="<f8").reshape(shape or -1)
