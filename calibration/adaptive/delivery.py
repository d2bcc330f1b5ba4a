"""`saga calibrate --append`: a new delivery settles intervals and issues new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from saga.calibration.adaptive.adaptive_state import AdaptiveState
from saga.calibration.adaptive.issuance import INITIAL_STATE, AdaptedForecaster
from saga.calibration.adaptive.issued_intervals import (
    SPANS,
    collect_bands,
    collect_intervals,
    collect_values,
)
from saga.calibration.adaptive.ledger import Ledger, RecordCounts
from saga.calibration.adaptive.outcome_entries import SettlementReport

from saga.amount_warnings import require_unit
from saga.data.origins import Origins, history, last_year, origins_at, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of, shares_of
from saga.errors import InputError, Problem, UsageError
from saga.forecast_checks import check_panel
from saga.forecaster import Forecaster
from saga.keyed_random import sample_rows
from saga.requests import HORIZONS, MAX_HORIZON, Draws, Progress

N_PERSONS = 2_000  # forecast each year; a year has full weight in a cell of at least 300 persons


@dataclass(frozen=True)
class DeliveryReport:
    """Settled and recorded intervals of a delivery, its origin years, the state after it.

    `spans` are the recorded path bands and present values.
    """

    settled: SettlementReport
    recorded: RecordCounts
    spans: RecordCounts
    origins: tuple[int, ...]
    state: AdaptiveState


def apply_delivery(
    bundle: str | Path,
    panel: Panel,
    ledger: Ledger,
    *,
    since: int | None = None,
    n_persons: int = N_PERSONS,
    spans: Sequence[int] = SPANS,
    threads: int | None = None,
    progress: Progress | None = None,
) -> DeliveryReport:
    """Bring the ledger up to the panel's last year, one origin year after the other.

    The earnings up to an origin year settle all intervals about these years. Then calibration
    persons are forecast from that year under the new thresholds, and the intervals are recorded.
    Deliveries year by year and one delivery of all years give the same ledger. A second call with
    the same panel changes nothing. A call after an interrupted one continues it.

    Args:
        bundle: Directory of a calibrated bundle.
        panel: The panel with the new year.
        ledger: The ledger to update.
        since: First origin year; by default the year after the last one that a delivery finished,
            or the panel's last year if there is none. Intervals of other forecasts in the ledger
            do not count.
        n_persons: Calibration persons with a record in the year who are forecast, chosen by key.
        spans: Numbers of years of the path bands and present values that are recorded.
        threads: Persons forecast at a time; None for the number of cores.
        progress: Called with the persons done and the persons in all.

    Raises:
        UsageError: The bundle has no thresholds of prediction sets, or a span is out of range.
        InputError: The panel has no calibration persons.
        LedgerError: The database does not answer.
    """
    if not all(1 <= years <= MAX_HORIZON for years in spans):
        raise UsageError(f"Spans are 1 to {MAX_HORIZON} years.")
    split = Forecaster.load(bundle, threads=threads, facts=panel.meta.facts)
    if not split.calibrator.has_sets:
        fix = "Run `saga calibrate --method sets`"
        raise UsageError(
            "The bundle gives no intervals",
            [Problem("uncalibrated", "It has no thresholds to move", fix)],
        )
    digest, end = split.bundle.digest, last_year(panel)
    panel = split.bundle.salted(panel)
    people = panel.only(persons_of(panel, "calibration", shares_of(split.bundle.split)))
    newest = _sample_origins(people, end, n_persons)
    if not len(newest):
        fix = "Give a panel with some hundreds of persons."
        raise InputError(
            "There is nobody to forecast.",
            [Problem("too-few-persons", "No calibration persons in the last year", fix)],
        )
    # Checks the money before anything is settled.
    check_panel(history(people, newest), split.transforms)
    require_unit(people, split.transforms.reference)
    finished = ledger.delivered_until(digest)
    if finished is not None and not ledger.with_issued_intervals(panel.persons()):
        raise InputError.of(
            "There is nothing to compare the outcomes with",
            "other-persons",
            "No person of the panel was forecast in an earlier delivery",
            "Write ids as in the earlier deliveries, or begin another ledger",
            column="person_id",
        )
    start = since if since is not None else end if finished is None else finished + 1
    settled, recorded, in_spans = SettlementReport(), RecordCounts(), RecordCounts()
    for year in range(start, end + 1):
        settled += _settle(ledger, panel, year)
        origins = _sample_origins(people, year, n_persons)
        if not len(origins):
            continue
        adapted = AdaptedForecaster.of(split, ledger.state(digest))
        records = history(people, origins)
        for block in adapted.forecaster.marginals(records, progress=progress):
            issued = collect_intervals(block, split.calibrator, adapted.state, HORIZONS)
            recorded += ledger.record(digest, issued)
            for years in spans:
                bands = collect_bands(block, split.calibrator, adapted.state, years)
                in_spans += ledger.record(digest, bands)
        in_spans += _record_values(adapted, records, ledger, spans)
        ledger.mark_delivered(digest, year)
    settled += _settle(ledger, panel, end)
    state = ledger.state(digest) or INITIAL_STATE
    return DeliveryReport(settled, recorded, in_spans, tuple(range(start, end + 1)), state)


def _record_values(
    adapted: AdaptedForecaster, records: Panel, ledger: Ledger, spans: Sequence[int]
) -> RecordCounts:
    """Enter the present values of the next years, if the bundle has thresholds of them."""
    split, recorded = adapted.unadapted.calibrator, RecordCounts()
    if not split.has_present_values or not spans:
        return recorded
    draws = Draws(split.value_paths)
    for paths in adapted.forecaster.blocks(records, draws, to_horizon=max(spans)):
        for years in spans:
            issued = collect_values(paths, split, adapted.state, years)
            recorded += ledger.record(adapted.unadapted.bundle.digest, issued)
    return recorded


def _sample_origins(people: Panel, year: int, n_persons: int) -> Origins:
    """Sample by key: the same persons each year, also if others join the panel later."""
    origins = origins_at(people, year)
    person_ids = origins.person_id.tolist()
    return origins.take(sample_rows(person_ids, n_persons, "append", people.meta.panel_id))


def _settle(ledger: Ledger, panel: Panel, until: int) -> SettlementReport:
    """Settle all intervals about years up to `until`.

    Outcomes of settled years are passed again, so that revised amounts are reported.
    """
    first = ledger.first_outcome_year()
    if first is None or first > until:
        return SettlementReport()
    person_ids = np.array(ledger.with_issued_intervals(panel.persons()), dtype=np.str_)
    years = range(first, until + 1)
    origins = Origins(person_ids, np.full(len(person_ids), first - 1))
    amounts = realised_earnings(panel, origins, range(1, len(years) + 1))
    rows, columns = np.nonzero(~np.isnan(amounts))
    return ledger.settle(
        (str(person_ids[i]), years[j], float(amounts[i, j]))
        for i, j in zip(rows, columns, strict=True)
    )
