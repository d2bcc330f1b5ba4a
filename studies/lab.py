r"""Ideas of docs/method/lab.md that need no training: what do they do to the shipped network?

    python -m studies.lab --panel build/bundle/calibration --out build/lab
        [--bundle bundles/small] [--persons 3000] [--seed 0]

The panel must be a register of whose persons the network has learnt from none. Each row is the raw
network with one change, in-time, 1, 10 and 20 years ahead: CRPS and log score less those of the
network as it is (above 0: worse), with standard errors over persons, and the processor time.

- *first (last) block twice*: looping at test time; *without the last block*: what depth adds;
- *without head k of layer l*: what an attention head adds;
- *last 5 (15) years*: what bounded context loses;
- *50 similar persons*: the distribution of outcomes of the 50 persons with the nearest forecasts,
  pooled with the forecast by the weight that is best on the other half of the persons.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from saga.evaluation.placebos import last_years
from scipy.spatial import cKDTree

from saga.arrays import Floats
from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.distributions import Marginals, interpolate_rows
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.model import Saga
from saga.pages.format import markdown_table
from saga.requests import MAX_HORIZON
from saga.scores import marginal_scores
from studies.study_page import bundle_parser, page_head, publish_page, say

HORIZONS = (1, 10, 20)
NEIGHBOURS = 50
WEIGHTS = np.linspace(0.0, 1.0, 21)
METRICS = ("crps_log", "logscore")
Scores = dict[str, Floats]
Change = Callable[[Saga], object]


def main() -> int:
    """Score every change and write the page."""
    parser = bundle_parser(__doc__, n_persons=3_000, n_paths=None, report=False)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("build/lab"))
    args = parser.parse_args()
    everybody = read_panel(args.panel)
    people = everybody.only(sample_persons(everybody.persons(), args.persons, "lab", "persons"))
    end = last_year(people)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=args.seed, end=end)
    outcomes = realised_earnings(people, origins, list(HORIZONS), end=end)
    past, floor = history(people, origins), people.meta.floor
    forecaster = Forecaster.load(args.bundle)
    plain = forecasts_of(forecaster, past)
    unchanged = scores_of(plain, outcomes, floor)
    start = time.process_time()  # of a second run: the first one is cold
    forecasts_of(Forecaster.load(args.bundle), past)
    seconds = time.process_time() - start
    rows = []
    for name, change in changes(forecaster.model.network):
        start = time.process_time()
        forecasts = forecasts_of(changed(args.bundle, change), past)
        took = (time.process_time() - start) / seconds
        scores = scores_of(forecasts, outcomes, floor)
        rows.append([name, *differences(scores, unchanged), f"{took:.2f}"])
        say(" ".join(rows[-1]))
    for window in (5, 15):
        scores = scores_of(
            forecasts_of(forecaster, last_years(past, origins, window)), outcomes, floor
        )
        rows.append([f"last {window} years", *differences(scores, unchanged), ""])
    rows.append(["50 similar persons", *differences(pooled(plain, outcomes, floor), unchanged), ""])
    head = page_head(
        "The lab",
        __file__,
        bundle=forecaster.bundle.digest,
        panel=everybody.meta.panel_id,
        persons=len(origins),
    )
    columns = [f"{m}, {h}" for m in ("CRPS", "log score") for h in HORIZONS]
    text = f"{head}\n\n{markdown_table(['change', *columns, 'time'], rows)}"
    args.out.mkdir(parents=True, exist_ok=True)
    publish_page(text, args.out / "results.md")
    return 0


def changes(network: Saga) -> Iterator[tuple[str, Change]]:
    """The changes of the network, by name."""
    yield "first block twice", lambda n: n.decoder.insert(1, n.decoder[0])
    yield "last block twice", lambda n: n.decoder.append(n.decoder[-1])
    yield "without the last block", lambda n: n.decoder.pop(-1)
    for layer, block in enumerate(network.decoder.stack):
        for head in range(block.heads):
            name = f"without head {head + 1} of layer {layer + 1}"
            yield name, partial(remove_head, layer=layer, head=head)


def remove_head(network: Saga, *, layer: int, head: int) -> None:
    """Make the output of an attention head zero."""
    block = network.decoder.stack[layer]
    with torch.no_grad():
        block.out.weight[:, head * block.size : (head + 1) * block.size] = 0.0


def changed(bundle: Path, change: Change) -> Forecaster:
    """The forecaster of the bundle with a changed network."""
    forecaster = Forecaster.load(bundle)
    change(forecaster.model.network)
    return forecaster


def forecasts_of(forecaster: Forecaster, past: Panel) -> Marginals:
    """Raw distributions (n, 3)."""
    blocks = forecaster.marginals(past, recalibrate=False, n_horizons=HORIZONS[-1])
    return replace(Marginals.joined([block.at_horizons(HORIZONS) for block in blocks]), groups={})


def scores_of(marginals: Marginals, outcomes: Floats, floor: float | None) -> Scores:
    """CRPS of log earnings and log score, (n, 3) each, NaN without an outcome."""
    scores = marginal_scores(marginals, outcomes, floor)
    return {name: scores[name] for name in METRICS}


def differences(scores: Scores, unchanged: Scores) -> list[str]:
    """Mean difference and standard error of each metric and horizon, CRPS in per cent."""
    texts = []
    for name in METRICS:
        for k in range(len(HORIZONS)):
            d = scores[name][:, k] - unchanged[name][:, k]
            known = np.isfinite(d)
            mean, se = d[known].mean(), d[known].std(ddof=1) / np.sqrt(known.sum())
            if name == "crps_log":
                level = unchanged[name][known, k].mean() / 100
                texts.append(f"{mean / level:+.2f} % ({se / level:.2f})")
            else:
                texts.append(f"{mean:+.4f} ({se:.4f})")
    return texts


def pooled(plain: Marginals, outcomes: Floats, floor: float | None) -> Scores:
    """Scores of the forecasts pooled with the outcomes of persons with the nearest forecasts."""
    half = np.arange(len(plain)) % 2 == 0
    scores = {name: np.full(outcomes.shape, np.nan) for name in METRICS}
    for k in range(len(HORIZONS)):
        column = plain.at_horizon(k + 1)
        known = np.isfinite(outcomes[:, k]) & column.exists[:, 0]
        mixes = neighbours_of(column, outcomes[:, k], known)
        for judged in (half, ~half):
            by_weight = []
            for weight in WEIGHTS:
                cdf = (1 - weight) * column.cdf + weight * mixes
                mixed = replace(column, cdf=cdf, p_zero=cdf[..., 0])
                by_weight.append(scores_of(mixed, outcomes[:, [k]], floor))
            others = known & ~judged
            best = int(np.argmin([s["crps_log"][others, 0].mean() for s in by_weight]))
            for name in METRICS:
                scores[name][judged, k] = by_weight[best][name][judged, 0]
    return scores


def neighbours_of(column: Marginals, outcomes: Floats, known: NDArray[np.bool_]) -> Floats:
    """The distribution (n, 1, G) of the outcomes of the nearest other persons, on each grid."""
    logs = np.log(np.maximum(column.quantiles([0.1, 0.5, 0.9])[:, 0], 1.0))
    features = np.column_stack([logs, 5 * column.p_zero, column.origin_year / 10])
    features = np.nan_to_num(features / np.nanstd(features, axis=0))
    rows = np.flatnonzero(known)
    _, neighbours = cKDTree(features[rows]).query(features, NEIGHBOURS + 1)
    amounts = outcomes[rows][neighbours]
    same = rows[neighbours] == np.arange(len(column))[:, None]  # a person is no neighbour
    same[:, -1] |= ~same.any(axis=1)
    logs_of = np.log(np.maximum(amounts, 1e-300))[~same].reshape(len(column), NEIGHBOURS)
    levels = np.broadcast_to((np.arange(NEIGHBOURS) + 0.5) / NEIGHBOURS, logs_of.shape)
    cdf = interpolate_rows(column.grid[:, 0].astype(np.float64), np.sort(logs_of, axis=1), levels)
    zero = (logs_of < -600).mean(axis=1, keepdims=True)
    cdf = np.maximum(cdf, zero)
    cdf[:, 0], cdf[:, -1] = zero[:, 0], 1.0
    return np.asarray(cdf[:, None, :])


if __name__ == "__main__":
    sys.exit(main())
