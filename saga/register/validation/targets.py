"""The targets of a register: the table `targets.csv` and the rule of its bands.

Marks: V read in a public source; D derived from such figures; M recalled from the literature or
from general knowledge, not to be quoted; P published by the authors of the SAGA paper
(arXiv 2605.19014) on a register that is not public. Only targets marked V or D are enforced, each
on the concept and population of its source. The others are reported.

The rule of the bands was fixed before any register was compared with this table. The bands of the
topic "Social statistics" were fixed later, by authors who knew the parameters of the simulation.
Each shows what one mechanism does, but is no evidence for the simulation.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

TARGETS_FILE = Path(__file__).with_name("targets.csv")
PAPER_TOPIC = "Sample of the paper"

RELATIVE_MARGIN = 0.05  # of an amount or a ratio of amounts
ABSOLUTE_MARGIN = 0.02  # of a share or a Gini coefficient
MARGIN_ERRORS = 3.0  # standard errors of the simulated value, added on both sides

Band = Literal["amount", "ratio", "share", "gini", "range", "above", "below", "not_rebuilt"]
WITH_VALUE = ("amount", "ratio", "share", "gini", "not_rebuilt")


@dataclass(frozen=True)
class RegisterTarget:
    """One row of `targets.csv`.

    Attributes:
        key: Name of the statistic; the part before the first dot is its `family`.
        topic: Heading under which the row is printed.
        concept: What is measured.
        population: Ages, years and groups.
        statistic: The statistic of the concept in the population.
        band: Rule of the band (see `bounds`). `not_rebuilt`: the register lacks the data to measure
            it; banded as a share.
        value: The published figure; a `range` has `low` and `high` instead, a sign has neither.
        low: Lower end of a `range`.
        high: Upper end of a `range`.
        enforced: Whether a check fails if the value lies outside the band.
        mark: How the figure is known: V, D, M or P; None without a figure.
        source: Where the figure is from.
        note: Further remarks on the figure.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    key: str
    topic: str
    concept: str
    population: str
    statistic: str
    band: Band
    value: float | None = None
    low: float | None = None
    high: float | None = None
    enforced: bool = False
    mark: Literal["V", "D", "M", "P"] | None = None
    source: str = ""
    note: str = ""

    @property
    def family(self) -> str:
        """The part of the key before the first dot."""
        return self.key.split(".")[0]

    def bounds(self, se: float) -> tuple[float | None, float | None]:
        """Lowest and highest simulated value that agrees, given its standard error.

        None is unbounded. A sign agrees if the value is more than 3 standard errors beyond zero.
        """
        margin = MARGIN_ERRORS * se
        if self.band == "above":
            return margin, None
        if self.band == "below":
            return None, -margin
        if self.low is not None and self.high is not None:
            return self.low - margin, self.high + margin
        if self.value is None:
            return None, None
        relative = self.band in ("amount", "ratio")
        margin += abs(self.value) * RELATIVE_MARGIN if relative else ABSOLUTE_MARGIN
        return self.value - margin, self.value + margin


def read_targets(
    families: Collection[str], file: Path = TARGETS_FILE
) -> tuple[RegisterTarget, ...]:
    """All targets, in the order of the file.

    Args:
        families: First words of keys for which there is a measure.
        file: CSV file with the columns of `RegisterTarget`.

    Raises:
        ValueError: If a row has another column, an unknown band or mark, an unknown or repeated
            key, a band without its value, or is enforced without a public source.
    """
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(lines)]
    targets = TypeAdapter(tuple[RegisterTarget, ...]).validate_python(rows)
    counts = Counter(target.key for target in targets)
    for target in targets:
        if counts[target.key] > 1:
            raise ValueError(f"{file.name}: the key {target.key} is not unique")
        if target.band != "not_rebuilt" and target.family not in families:
            raise ValueError(f"{file.name}: no measure for the key {target.key}")
        if (target.value is None) == (target.band in WITH_VALUE) or (
            (target.low is None or target.high is None) == (target.band == "range")
        ):
            raise ValueError(f"{file.name}: {target.key} lacks the value of its band {target.band}")
        if target.enforced and target.mark not in ("V", "D"):
            raise ValueError(f"{file.name}: {target.key} is enforced without a public source")
    return targets
