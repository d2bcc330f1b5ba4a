"""Bands and present values in the ledger: enter them, settle them, and take settlements back.

A span is settled when the outcomes of all its years are known. They arrive years apart, so their
amounts are kept, encrypted with the ledger's key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import PRESENT_VALUE, SPAN_KINDS, ExcessCounts
from saga.calibration.adaptive.database import key_batches
from saga.calibration.adaptive.issued_spans import (
    IssuedSpans,
    band_scores_of,
    judge_band,
    judge_value,
    span_scores,
    unmoved,
)
from saga.calibration.adaptive.ledger_tables import (
    BandScaleRow,
    ExcessCountsRow,
    Holder,
    OutcomeRow,
    SpanRow,
    SpanSettlementRow,
    Stream,
    pack_thresholds,
    unpack_thresholds,
)
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from saga.calibration.adaptive.settlement_counts import HorizonYear, add_new_counts, unpack_counts
from saga.calibration.adaptive.span_rescoring import Scales, read_scales
from sqlalchemy import Connection, Row, bindparam, insert, select, update

PersonYear = tuple[bytes, int]


class SpanEntry(NamedTuple):
    """An entry of the log of spans; see `SpanSettlementRow`."""

    row: Row[Any]
    probability: float
    p_zero: float
    sign: int
    ranks: bytes


def enter_spans(
    connection: Connection, stream_id: int, persons: Sequence[bytes], issued: IssuedSpans
) -> tuple[int, int, int]:
    """Enter issued spans; how many are new, entered before, and late.

    Late ones are about a year whose outcome is known.
    """
    known: set[PersonYear] = set()
    late: set[PersonYear] = set()
    for batch in key_batches(persons):
        entered = select(SpanRow.person, SpanRow.origin_year).where(
            SpanRow.stream_id == stream_id,
            SpanRow.kind == issued.kind,
            SpanRow.years == issued.years,
            SpanRow.person.in_(batch),
        )
        known |= {(person, origin) for person, origin in connection.execute(entered)}
        outcomes = select(OutcomeRow.person, OutcomeRow.year).where(OutcomeRow.person.in_(batch))
        late |= {(person, year) for person, year in connection.execute(outcomes)}
    rows: list[dict[str, Any]] = []
    n_late = 0
    origins = issued.origin_year.tolist()
    known_forecasts = zip(persons, origins, issued.forecasts, issued.cells, strict=True)
    for i, (person, origin, packed, cells) in enumerate(known_forecasts):
        if (person, origin) in known:
            continue
        if any((person, origin + h) in late for h in range(1, issued.years + 1)):
            n_late += 1
            continue
        rows.append(
            {
                "stream_id": stream_id,
                "person": person,
                "origin_year": origin,
                "kind": issued.kind,
                "years": issued.years,
                "base": pack_thresholds(issued.base),
                "issued": pack_thresholds(issued.issued),
                "distribution": packed,
                "cells": cells,
                "levels": pack_thresholds(issued.levels[i]),
            }
        )
    if rows:
        _store_scales(connection, stream_id, issued)
        connection.execute(insert(SpanRow), rows)
    return len(rows), len(persons) - len(rows) - n_late, n_late


def _store_scales(connection: Connection, stream_id: int, issued: IssuedSpans) -> None:
    known = set(read_scales(connection, stream_id))
    missing = [
        {
            "stream_id": stream_id,
            "horizon": horizon,
            "knots": pack_thresholds(knots),
            "values": pack_thresholds(values),
        }
        for horizon, (knots, values) in issued.scales.items()
        if horizon not in known
    ]
    if missing:
        connection.execute(insert(BandScaleRow), missing)


def spans_about(
    connection: Connection, person_years: Iterable[PersonYear], *, waiting: bool
) -> list[Row[Any]]:
    """The spans that are about one of these persons and years, waiting or settled."""
    keys = set(person_years)
    spans = []
    for batch in key_batches([person for person, _ in keys]):
        content = SpanRow.distribution if waiting else SpanRow.sealed
        of_persons = (
            select(SpanRow.__table__)
            .where(SpanRow.person.in_(batch), content.is_not(None))
            .order_by(SpanRow.id)
        )
        spans += [
            row
            for row in connection.execute(of_persons)
            if any((row.person, year) in keys for year in _years_of(row))
        ]
    return spans


def span_years(rows: Iterable[Row[Any]]) -> set[PersonYear]:
    """The persons and years that spans are about."""
    return {(row.person, year) for row in rows for year in _years_of(row)}


def _years_of(row: Row[Any]) -> range:
    return range(row.origin_year + 1, row.origin_year + row.years + 1)


def settle_spans(
    connection: Connection, key: PseudonymKey, rows: Sequence[Row[Any]]
) -> list[SpanEntry]:
    """Judge those of the waiting spans whose outcomes are all known; their log entries."""
    amounts = _known_amounts(connection, key, {row.person for row in rows})
    scales: dict[int, Scales] = {}
    entries: list[SpanEntry] = []
    for row in rows:
        known = [amounts.get((row.person, year)) for year in _years_of(row)]
        if any(amount is None for amount in known):
            continue
        if row.stream_id not in scales:
            scales[row.stream_id] = read_scales(connection, row.stream_id)
        outcomes = np.array(known, dtype=np.float64)
        entries.append(_judge(row, outcomes, scales[row.stream_id]))
    if entries:
        connection.execute(
            _set_content(),
            [
                {
                    "row": row.id,
                    "distribution": None,
                    "sealed": key.seal(row.distribution, row.person),
                }
                for row, *_ in entries
            ],
        )
    return entries


def _judge(row: Row[Any], outcomes: NDArray[np.float64], scales: Scales) -> SpanEntry:
    if row.kind == PRESENT_VALUE:
        ranks = judge_value(row.distribution, outcomes)
        probability, p_zero = ranks[0].tolist()
    else:
        ranks = judge_band(row.distribution, outcomes)
        probability, p_zero = float(band_scores_of(ranks[None], scales)[0]), 0.0
    levels = unpack_thresholds(row.levels).reshape(len(ranks), -1)
    return SpanEntry(row, probability, p_zero, 1, pack_thresholds(unmoved(ranks, levels)))


def reopen_spans(
    connection: Connection, key: PseudonymKey, rows: Sequence[Row[Any]]
) -> list[SpanEntry]:
    """Take settled spans back, so that they wait again; their log entries."""
    last: dict[int, Row[Any]] = {}
    for batch in key_batches([row.id for row in rows]):
        log = select(SpanSettlementRow.__table__).where(SpanSettlementRow.span_id.in_(batch))
        last |= {
            event.span_id: event for event in connection.execute(log.order_by(SpanSettlementRow.id))
        }
    if rows:
        connection.execute(
            _set_content(),
            [
                {"row": row.id, "distribution": key.unseal(row.sealed, row.person), "sealed": None}
                for row in rows
            ],
        )
    return [
        SpanEntry(row, event.probability, event.p_zero, -1, event.ranks)
        for row in rows
        for event in (last[row.id],)
    ]


def _known_amounts(
    connection: Connection, key: PseudonymKey, persons: set[bytes]
) -> Mapping[PersonYear, float]:
    amounts: dict[PersonYear, float] = {}
    for batch in key_batches(sorted(persons)):
        known = select(OutcomeRow.person, OutcomeRow.year, OutcomeRow.sealed_amount).where(
            OutcomeRow.person.in_(batch)
        )
        for person, year, sealed in connection.execute(known):
            if sealed is not None:
                amounts[person, year] = unseal_amount(key, sealed, person)
    return amounts


def seal_amount(key: PseudonymKey, amount: float, person: bytes) -> bytes:
    """An amount encrypted with the ledger's key; it stays until the outcome is withdrawn."""
    return key.seal(struct.pack("<d", amount), person)


def unseal_amount(key: PseudonymKey, sealed: bytes, person: bytes) -> float:
    """The amount that `seal_amount` encrypted."""
    return float(struct.unpack("<d", key.unseal(sealed, person))[0])


def write_span_log(
    connection: Connection, entries: Sequence[SpanEntry], audit_id: int
) -> dict[int, set[str]]:
    """Add entries to the log and to the counts; the cells that changed, stream -> kinds."""
    changed: dict[int, set[str]] = {}
    if not entries:
        return changed
    connection.execute(
        insert(SpanSettlementRow),
        [
            {
                "span_id": entry.row.id,
                "probability": entry.probability,
                "p_zero": entry.p_zero,
                "sign": entry.sign,
                "audit_id": audit_id,
                "ranks": entry.ranks,
            }
            for entry in entries
        ],
    )
    streams = sorted({row.stream_id for row, *_ in entries})
    for stream_id in streams:
        of_stream = [entry for entry in entries if entry[0].stream_id == stream_id]
        for kind, cells in count_spans(of_stream).items():
            changed.setdefault(stream_id, set()).add(kind)
            for (years, year), counts in cells.items():
                add_new_counts(connection, stream_id, kind, years, year, counts)
    return changed


def count_spans(entries: Sequence[SpanEntry]) -> dict[str, dict[HorizonYear, ExcessCounts]]:
    """Counts of log entries: kind -> (number of years, last outcome year) -> counts."""
    cells: dict[tuple[str, HorizonYear, int], list[SpanEntry]] = {}
    for entry in entries:
        row, sign = entry.row, entry.sign
        cell = (row.kind, (row.years, row.origin_year + row.years), sign)
        cells.setdefault(cell, []).append(entry)
    total: dict[str, dict[HorizonYear, ExcessCounts]] = {}
    for (kind, key, sign), of_cell in cells.items():
        probability = np.array([entry.probability for entry in of_cell])
        p_zero = np.array([entry.p_zero for entry in of_cell])
        base, issued = (
            np.stack([unpack_thresholds(getattr(entry.row, name)) for entry in of_cell])
            for name in ("base", "issued")
        )
        counts = ExcessCounts.of(span_scores(kind, probability, p_zero), base, issued)
        counts = counts if sign == 1 else -counts
        before = total.setdefault(kind, {}).get(key)
        total[kind][key] = counts if before is None else before + counts
    return total


@dataclass(frozen=True)
class SpanCoverage:
    """Settled bands or present values of one outcome year: persons, and share inside by coverage.

    Shares are None for coverages without thresholds.
    """

    kind: str
    years: int
    year: int
    persons: int
    inside: tuple[float | None, ...]


def read_span_coverage(connection: Connection, bundle: str, holder: str) -> list[SpanCoverage]:
    """The coverage of a holder's settled bands and present values, from their counts."""
    rows = connection.execute(
        select(ExcessCountsRow.__table__)
        .join(Stream, Stream.id == ExcessCountsRow.stream_id)
        .join(Holder)
        .where(
            Stream.bundle == bundle, Holder.name == holder, ExcessCountsRow.group.in_(SPAN_KINDS)
        )
        .order_by(ExcessCountsRow.group, ExcessCountsRow.horizon, ExcessCountsRow.year)
    )
    table = []
    for row in rows:
        counts = unpack_counts(row.counts, row.missed)
        persons = counts.persons
        inside = tuple(
            1 - missed / n if n else None
            for missed, n in zip(counts.missed.tolist(), persons.tolist(), strict=True)
        )
        table.append(SpanCoverage(row.group, row.horizon, row.year, int(persons.max()), inside))
    return table


def _set_content() -> Any:
    return (
        update(SpanRow.__table__)  # type: ignore[arg-type]  # a table, not a subquery
        .where(SpanRow.id == bindparam("row"))
        .values(distribution=bindparam("distribution"), sealed=bindparam("sealed"))
    )
