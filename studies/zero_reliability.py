"""How reliable is `p_zero`, the forecast probability of no earnings?

    python -m studies.zero_reliability REGISTER [--bundle bundles/small]
        [--horizons 1,5,10,20] [--persons N] [--seed 0] [--report FILE]

REGISTER is a generated register of another seed than the bundle's, with `future/draw=k`. Its test
persons are forecast as in the contest: in-time from one origin each, forward from the last year.
The table shows, for bins of the forecast probability, the share of persons without earnings. ± is
its standard error: in-time over persons; forward over persons (each with a share of futures) and
over futures together, because all persons of a future share its economy. The miscalibration is that
part of the Brier score (Murphy 1973), over the same bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.scoring.evaluation_settings import Sample, Setting

from saga.cli.options import parse_horizons
from saga.data.origins import history
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table
from saga.requests import check_horizons
from studies.study_page import bundle_parser, page_head, publish_page

Array = NDArray[np.float64]
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
MIN_PERSONS = 30  # of a bin that is shown


def main() -> None:
    """Print one table per setting."""
    parser = bundle_parser(__doc__, n_persons=None, n_paths=None)
    parser.add_argument("register", type=Path)
    parser.add_argument("--horizons", default="1,5,10,20")
    args = parser.parse_args()
    horizons = check_horizons(parse_horizons(args.horizons))
    forecaster, panel = Forecaster.load(args.bundle), read_panel(args.register)
    sample = Sample.of(
        panel, seed=args.seed, persons=args.persons, until=forecaster.bundle.config["until"]
    )
    parts = [
        page_head(
            "Reliability of p_zero",
            __file__,
            bundle=forecaster.bundle.digest[:12],
            register=panel.meta.panel_id,
        )
    ]
    for setting in sample.settings(horizons, args.register):
        forecasts = zero_probabilities(forecaster, setting, horizons)
        outcomes = np.stack([future for _, future in setting.outcomes])  # (draw, person, horizon)
        rows, totals = [], []
        for j, h in enumerate(horizons):
            observed = ~np.isnan(outcomes[:, :, j]).all(0)
            y = outcomes[:, observed, j]
            table = reliability(forecasts[observed, j], np.where(np.isnan(y), np.nan, y == 0))
            rows += [[str(h), *cells] for cells in table.rows]
            totals.append(
                f"h = {h}: Brier {table.brier:.4f}, "
                f"of which miscalibration {table.miscalibration:.5f}"
            )
        header = ["h", "p_zero", "persons", "mean p_zero, %", "without earnings, %"]
        parts += [f"## {setting.name}", markdown_table(header, rows), "; ".join(totals) + "."]
    publish_page("\n\n".join(parts), args.report)


def zero_probabilities(forecaster: Forecaster, setting: Setting, horizons: Sequence[int]) -> Array:
    """`p_zero` of the setting's persons in its order, (n_person, n_horizon); NaN beyond age 64."""
    blocks = forecaster.marginals(history(setting.past, setting.origins))
    p_zero = [block.at_horizons(horizons).p_zero for block in blocks]
    return np.concatenate(p_zero).astype(np.float64)


@dataclass(frozen=True)
class Reliability:
    """Rows of text by bin, the Brier score, and the part of it that is miscalibration."""

    rows: list[list[str]]
    brier: float
    miscalibration: float


def reliability(p_zero: Array, zero: Array) -> Reliability:
    """The reliability table of probabilities (n,).

    `zero` (n_draw, n) is 1 if there were no earnings, NaN if unknown.
    """
    bins = np.clip(np.searchsorted(EDGES, p_zero, side="right") - 1, 0, len(EDGES) - 2)
    observed, rows, miscalibration = ~np.isnan(zero), [], 0.0
    for j in np.unique(bins):
        part = zero[:, bins == j]
        share, mean, n = float(np.nanmean(part)), float(p_zero[bins == j].mean()), part.shape[1]
        miscalibration += observed[:, bins == j].sum() / observed.sum() * (share - mean) ** 2
        over_persons = np.nanmean(part, 0).std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        draws = len(part)
        over_draws = np.nanmean(part, 1).std(ddof=1) / np.sqrt(draws) if draws > 1 else 0.0
        if n >= MIN_PERSONS:
            error = float(np.hypot(over_persons, over_draws))
            rows.append(
                [
                    f"{EDGES[j]:.0%} to {EDGES[j + 1]:.0%}",
                    f"{n:,}",
                    f"{100 * mean:.1f}",
                    f"{100 * share:.1f} ± {100 * error:.1f}",
                ]
            )
    return Reliability(rows, float(np.nanmean((p_zero - zero) ** 2)), miscalibration)


if __name__ == "__main__":
    main()
