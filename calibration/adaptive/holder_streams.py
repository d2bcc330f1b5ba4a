"""Streams: the issued intervals of one holder and bundle, with their adaptive state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from saga.calibration.adaptive.adaptive_state import AdaptiveState, CellState
from saga.calibration.adaptive.ledger_tables import (
    COMMON_ID,
    Holder,
    StateRow,
    StateVersion,
    Stream,
)
from saga.calibration.adaptive.tenancy import COMMON
from sqlalchemy import Connection, Row, insert, literal, select


def holder_id(connection: Connection, name: str) -> int:
    """The row of a holder, which is made if it is missing."""
    known = connection.scalar(select(Holder.id).where(Holder.name == name))
    if known is not None:
        return int(known)
    new = insert(Holder).values(name=name).returning(Holder.id)
    return connection.execute(new).scalar_one()


def find_stream(connection: Connection, holder: str, bundle: str) -> Row[Any] | None:
    """The holder's stream of a bundle; before it has one, that of the common holder."""
    query = (
        select(Stream.__table__)
        .join(Holder)
        .where(Stream.bundle == bundle, Holder.name.in_((holder, COMMON)))
        .order_by((Holder.name == holder).desc())
    )
    return connection.execute(query).first()


def open_stream(connection: Connection, holder: int, bundle: str) -> int:
    """The holder's stream of a bundle; a new one begins with the state of the common one."""
    query = select(Stream.__table__).where(Stream.bundle == bundle)
    streams = {stream.holder_id: stream for stream in connection.execute(query)}
    common = streams.get(COMMON_ID)
    if holder in streams:
        return int(streams[holder].id)
    version = 0 if common is None else common.version
    new = insert(Stream).values(holder_id=holder, bundle=bundle, version=version)
    stream_id = connection.execute(new.returning(Stream.id)).scalar_one()
    if common is not None:
        for rows in (StateRow, StateVersion):
            columns = [column for column in rows.__table__.columns if column.name != "stream_id"]
            of_common = select(literal(stream_id), *columns).where(rows.stream_id == common.id)
            names = ["stream_id", *(column.name for column in columns)]
            connection.execute(insert(rows).from_select(names, of_common))
    return stream_id


def state_of(version: int, cells: Mapping[tuple[str, int, float], CellState]) -> AdaptiveState:
    """The state of cells; its last year is the latest of theirs."""
    years = [cell.last_year for cell in cells.values() if cell.last_year is not None]
    return AdaptiveState(version, max(years, default=None), cells)


def read_state(connection: Connection, stream_id: int) -> AdaptiveState:
    """The stored state of a stream."""
    query = (
        select(Stream.version, StateRow.__table__)
        .outerjoin(StateRow, StateRow.stream_id == Stream.id)
        .where(Stream.id == stream_id)
    )
    rows = connection.execute(query).all()
    cells = {}
    for row in rows:
        if row.group is not None:
            values = {field.name: getattr(row, field.name) for field in fields(CellState)}
            values["experts"] = tuple(row.experts)
            cells[row.group, row.horizon, row.coverage] = CellState(**values)
    return state_of(rows[0].version, cells)
