"""Are the circumstances drawn along paths those that people have: shares, dependence on earnings, persistence, beside the truth.

    python benchmarks/circumstances.py --register DIR [--bundle bundles/small] [--persons 4000] [--paths 40] [--origin 2002] [--seed 0]
        [--report FILE]

DIR is a generated register that the bundle was not trained on, its futures with `--future-records`. In-time, everybody of 20 to 60 years
at the end of --origin is followed to the panel's end; forward, from the panel's end over the drawn futures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evaluation.circumstances import (
    HORIZONS,
    as_markdown,
    at_origin,
    compare,
    measured,
    recorded,
    simulated,
    states,
    true_courses,
)
from evaluation.cross_section import followed
from evaluation.scripts import code_commit, command_line, options
from saga.data.origins import cut, last_year
from saga.data.reading import read_panel
from saga.forecaster import Forecaster

NOTE = """Distance: total variation distance of the model's shares of all codes from the true ones, in points (0: the same, 100: nothing in
common); in brackets what a perfect model would show, as the persons are a sample. With earnings: the same of codes and six groups of
earnings together (zero, fifths of the positive in that future), so that it also sees whether circumstances go with the right earnings."""


def main() -> int:
    """Simulates, measures and prints both settings."""
    parser = options(__doc__, persons=4_000, paths=40)
    parser.add_argument("--register", type=Path, required=True)
    parser.add_argument("--origin", type=int, default=2002)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle)
    panel = read_panel(args.register)
    if args.origin >= last_year(panel):
        parser.error(f"--origin must lie before the panel's last year, {last_year(panel)}")
    lines = ["# Circumstances along paths", "", f"`{command_line(__file__)}`", ""]
    lines += [
        f"Commit {code_commit()}, bundle `{forecaster.bundle.digest[:12]}`, panel `{panel.meta.panel_id}`.",
        "",
        NOTE,
        "",
    ]
    for setting, past in (("In-time", cut(panel, args.origin)), ("Forward", panel)):
        horizons = [
            h for h in HORIZONS if setting == "Forward" or h <= last_year(panel) - args.origin
        ]
        longest = max(horizons)
        who = followed(past, trained_on=forecaster.bundle.split["panel_id"], persons=args.persons)
        before = at_origin(who, forecaster.transforms)
        if setting == "In-time":
            truth = [recorded(panel, who, longest, forecaster.transforms)]
        else:
            truth = list(true_courses(args.register, who, longest, forecaster.transforms))
        drawn = simulated(
            forecaster, who, longest, paths=args.paths, seed=args.seed, progress=Progress(setting)
        )
        model, true = (
            measured(drawn, before, horizons),
            [measured(each, before, horizons) for each in truth],
        )
        lines += [f"## {setting}", "", as_markdown(compare(model, true, forecaster.transforms)), ""]
        lines += [
            "| years ahead | state | model, % | truth, % | over futures, sd |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {r['horizon']} | {r['state']} | {r['model']:.2f} | {r['true']:.2f} | {r['sd']:.2f} |"
            for r in states(model, true).iter_rows(named=True)
        ]
        lines += [""]
    page = "\n".join(lines)
    if args.report:
        args.report.write_text(page, encoding="utf-8")
    print(page)
    return 0


class Progress:
    """Persons done, on standard error, ten times a setting."""

    def __init__(self, setting: str) -> None:
        self.setting = setting

    def __call__(self, done: int, total: int) -> None:
        """`saga.forecaster.Progress`."""
        if done % max(1, total // 10) == 0:
            print(f"{self.setting}: {done:,} of {total:,}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
