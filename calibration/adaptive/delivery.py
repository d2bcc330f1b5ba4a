"""`saga calibrate --append`: a new delivery of the panel settles what was promised about it, and is promised about in turn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.adaptive.adaptive_state import AdaptiveState
from calibration.adaptive.issuance import INITIAL_STATE, AdaptedForecaster
from calibration.adaptive.issued_intervals import collect_intervals
from calibration.adaptive.ledger import Ledger, RecordCounts, SettlementReport
from saga.data.origins import Origins, history, last_year, origins_at, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import InputError, Problem, UsageError
from saga.forecaster import Forecaster, Progress
from saga.keyed_random import sample_rows
from saga.requests import MAX_HORIZON, Draws

PERSONS = 2_000  # promised something each year; a year counts in full from 300 a cell on


@dataclass(frozen=True)
class DeliveryReport:
    """What a delivery changed: what it settled, what was promised from which origin years, and the state afterwards."""

    settled: SettlementReport
    recorded: RecordCounts
    origins: tuple[int, ...]
    state: AdaptiveState


def apply_delivery(
    bundle: str | Path,
    panel: Panel,
    store: Ledger,
    *,
    since: int | None = None,
    persons: int = PERSONS,
    draws: Draws = Draws(n_paths=200),
    workers: int = 1,
    progress: Progress | None = None,
) -> DeliveryReport:
    """Bring the ledger up to the panel's last year.

    Origin year by origin year, from `since` (by default the one after the last that a delivery has finished, or the panel's last year where
    none has; so an interrupted delivery, given again, goes on, and promises of forecasts in the same ledger do not count): first the
    earnings up to that year settle what was promised to anybody; then `persons` of the calibration persons with a record in that year,
    chosen by key, are forecast from it under the thresholds of that moment, and the promises recorded. Deliveries year by year and one
    delivery of all years give the same ledger, and a second call with the same panel changes nothing. Raises UsageError for a bundle
    without thresholds, InputError where the panel has no calibration persons, LedgerError.
    """
    split = Forecaster.load(bundle, workers=workers)
    if not split.calibrator.has_sets:
        raise UsageError(
            "The bundle gives no intervals",
            [
                Problem(
                    "uncalibrated",
                    "It has no thresholds to move",
                    "Run `saga calibrate --method sets`",
                )
            ],
        )
    digest, end = split.bundle.digest, last_year(panel)
    people = panel.only(persons_of(panel, "calibration"))
    newest = _chosen(people, end, persons)
    if not len(newest):
        fix = "Give a panel with some hundreds of persons."
        raise InputError(
            "There is nobody to forecast.",
            [Problem("too-few-persons", "No calibration persons in the last year", fix)],
        )
    split.check(history(people, newest))  # in the bundle's money, before anything is settled
    before = store.delivered_until(digest)
    start = since if since is not None else end if before is None else before + 1
    settled, recorded = SettlementReport(), RecordCounts()
    for year in range(start, end + 1):
        settled += _settle(store, panel, year)
        origins = _chosen(people, year, persons)
        if not len(origins):
            continue
        now = AdaptedForecaster.of(split, store.state(digest)).forecaster
        for block in now.blocks(
            history(people, origins), draws, to_horizon=MAX_HORIZON, progress=progress
        ):
            made = collect_intervals(
                block, split.calibrator, now.calibrator, range(1, MAX_HORIZON + 1)
            )
            recorded += store.record(digest, made)
        store.mark_delivered(digest, year)
    settled += _settle(store, panel, end)
    return DeliveryReport(
        settled, recorded, tuple(range(start, end + 1)), store.state(digest) or INITIAL_STATE
    )


def _chosen(people: Panel, year: int, persons: int) -> Origins:
    """The same persons year after year, as far as they have a record; it does not matter who else joins the panel later."""
    origins = origins_at(people, year)
    ids = origins.person_id.tolist()
    return origins.take(sample_rows(ids, persons, "append", people.meta.panel_id))


def _settle(store: Ledger, panel: Panel, until: int) -> SettlementReport:
    """Hand over the earnings of everybody in the ledger, of all years up to `until` that it has promises about: revisions are noticed."""
    first = store.first_outcome_year()
    if first is None or first > until:
        return SettlementReport()
    known = np.array(store.with_issued_intervals(panel.persons()), dtype=np.str_)
    years = range(first, until + 1)
    amounts = realised_earnings(
        panel, Origins(known, np.full(len(known), first - 1)), range(1, len(years) + 1)
    )
    row, column = np.nonzero(~np.isnan(amounts))
    return store.settle(
        (str(known[i]), years[j], float(amounts[i, j])) for i, j in zip(row, column, strict=True)
    )
