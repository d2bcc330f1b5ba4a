"""What to do after a delivery, and the rule that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from saga.calibration.yearly.drift_tests import ALPHA, DriftTest

Action = Literal["keep", "recalibrate", "fine-tune", "retrain"]
YEARS_TO_RETRAIN = 3

COMMANDS: dict[Action, str] = {
    "keep": "Nothing to do. Deliver the next year in the same way.",
    "recalibrate": "saga calibrate BUNDLE --panel PANEL --out NEW",
    "fine-tune": "saga train --from BUNDLE --panel PANEL --out NEW, then saga calibrate NEW",
    "retrain": "saga train --panel PANEL --out NEW, then saga calibrate NEW",
}


@dataclass(frozen=True)
class YearTests:
    """The tests of one outcome year, and the test martingale after it."""

    year: int
    levels: tuple[DriftTest, ...]
    differences: tuple[DriftTest, ...]
    martingale: float

    @property
    def has_drift(self) -> bool:
        """Whether a group's coverage, or the coverage of all years together, alarms."""
        return any(test.alarm for test in self.levels) or self.martingale >= 1 / ALPHA

    @property
    def groups_differ(self) -> bool:
        """Whether the coverage of a group differs from that of the others."""
        return any(test.alarm for test in self.differences)


@dataclass(frozen=True)
class Recommendation:
    """An action, the rule that gave it, and the command that does it."""

    action: Action
    rule: str

    @property
    def command(self) -> str:
        """What to run."""
        return COMMANDS[self.action]


def recommend(years: Sequence[YearTests]) -> Recommendation:
    """The recommendation after the tests of these outcome years, ascending."""
    if not years:
        return Recommendation("keep", "No outcome of the forecasts one year ahead is known yet.")
    newest = years[-1]
    if not newest.levels:
        return Recommendation(
            "keep", f"Too few persons have an outcome in {newest.year} to judge the forecasts."
        )
    last = years[-YEARS_TO_RETRAIN:]
    if len(last) == YEARS_TO_RETRAIN and all(year.groups_differ for year in last):
        return Recommendation(
            "retrain",
            f"In {YEARS_TO_RETRAIN} outcome years in a row ({last[0].year} to {newest.year}) the "
            "coverage of groups differed: the network keeps ranking persons wrongly.",
        )
    if newest.groups_differ:
        groups = ", ".join(test.group for test in newest.differences if test.alarm)
        return Recommendation(
            "fine-tune",
            f"In {newest.year} the coverage of some groups differs from that of the others "
            f"({groups}): one map for all persons cannot correct this.",
        )
    if newest.has_drift:
        return Recommendation(
            "recalibrate",
            f"Coverage drifted up to {newest.year}, in all groups alike: new maps and thresholds "
            "are enough. Until then the ledger corrects it.",
        )
    return Recommendation(
        "keep",
        f"No test of {newest.year} alarms; together they alarm by chance in "
        f"{100 * ALPHA:.0f} % of years.",
    )
