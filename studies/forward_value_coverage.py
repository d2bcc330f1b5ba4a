"""Do present values cover too much forward because of their thresholds, or of macro futures?

    python -m studies.forward_value_coverage --register DIR [--bundle bundles/small] [--persons 400]
        [--paths 200] [--seed 0] [--report FILE]

DIR is a register with futures of ten years or more that the bundle has not seen. The intervals of
present values over ten years are those of the bundle's own calibration. Macro futures are estimated
or drawn by the rule of the register, as in `studies.forward_coverage`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from saga.evaluation.scoring.futures import true_futures

from saga.conformal.calibrator import Calibrator
from saga.data.origins import history, last_year, origins_at
from saga.data.reading import read_panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table
from saga.requests import Draws
from studies.coverage_forecasts import YEARS
from studies.coverage_in_time import value_covered
from studies.macro_rule import STATED, RuleProcess, with_process
from studies.study_page import bundle_parser, page_head, publish_page

HORIZONS = (1, 5, 10)


def main() -> None:
    """Forecast with both kinds of macro futures, judge in every future, print the page."""
    parser = bundle_parser(__doc__, n_persons=400, n_paths=200)
    parser.add_argument("--register", type=Path, required=True)
    args = parser.parse_args()
    stored = Forecaster.load(args.bundle, threads=1)
    calibrator, forecaster = stored.calibrator, stored.with_calibrator(Calibrator.identity())
    assert calibrator.grouping is not None
    assert forecaster.process is not None
    panel = read_panel(args.register)
    at_end = origins_at(panel, last_year(panel))
    chosen = at_end.person_id[np.linspace(0, len(at_end) - 1, args.persons).astype(int)]
    people = panel.only(np.unique(chosen).tolist())
    origins = origins_at(people, last_year(panel))
    records, groups = history(people, origins), calibrator.grouping.labels(people, origins)
    years, price_year = range(1, YEARS + 1), panel.meta.price_year
    futures = [y for _, y in true_futures(args.register, origins, years, price_year=price_year)]
    process = forecaster.process
    rule = RuleProcess(process.history, process.mean, process.transition, process.innovation)
    row_of = {person: i for i, person in enumerate(origins.person_id.tolist())}
    table = []
    for name, other in (("estimated", forecaster), ("rule", with_process(forecaster, rule))):
        blocks = other.marginals(records, recalibrate=False, n_horizons=YEARS)
        raw = Marginals.joined([replace(block, groups={}) for block in blocks])
        rows = [row_of[person] for person in raw.person_id.tolist()]
        marginals = calibrator.recalibrate(
            replace(raw, groups={key: labels[rows] for key, labels in groups.items()})
        )
        paths = other.simulate(
            records, Draws(args.paths, args.seed), to_horizon=YEARS, recalibrate=False
        )
        sets = calibrator.intervals(marginals, [STATED])
        shares = []
        for y in (future[rows] for future in futures):
            of_sets = np.nanmean(sets.covered(y)[..., 0], axis=0)[[h - 1 for h in HORIZONS]]
            values = value_covered(calibrator, paths, marginals, y, (STATED,))
            shares.append([*of_sets, np.nanmean(values)])
        columns = 100 * np.array(shares).T
        table.append([name, *(f"{c.mean():.1f} ({c.std(ddof=1):.1f})" for c in columns)])
    n = calibrator.thresholds_of_kind["present_value", YEARS].n
    page = [
        page_head("Present values forward", __file__, bundle=stored.bundle.digest[:12]),
        f"{len(origins):,} persons from {last_year(panel)}, {len(futures)} drawn futures of "
        f"{panel.meta.panel_id}; the threshold is from {n:,} persons. Coverage of 90 % sets, mean "
        "(standard deviation over futures), %.",
        markdown_table(
            ("macro", *(f"h = {h}" for h in HORIZONS), f"present value, {YEARS} years"), table
        ),
    ]
    publish_page("\n\n".join(page), args.report)


if __name__ == "__main__":
    main()
