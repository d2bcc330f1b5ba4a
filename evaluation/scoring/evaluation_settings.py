"""Who is judged, from which origins, and what came true: the settings and samples of the protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.scoring.futures import true_futures
from saga.data.origins import (
    Origins,
    cut,
    draw_origins,
    eligible_origins,
    history,
    last_year,
    origins_at,
    realised_earnings,
)
from saga.data.panel import Panel
from saga.data.split import Part, persons_of
from saga.errors import InputError, Problem, UsageError
from saga.keyed_random import uniform_each
from saga.requests import MAX_HORIZON

Array = NDArray[Any]
SampleName = Literal["all", "paper"]
SplitName = Literal["person", "cohort"]
COHORTS: dict[Part, tuple[int, int]] = {
    "train": (1960, 1979),
    "calibration": (1980, 1982),
    "test": (1983, 1985),
}
WINDOW, POSITIVE, END_AGES, GAP = 10, 5, (26, 54), 2  # the paper's conditioning window


@dataclass(frozen=True)
class Setting:
    """Persons, their pasts, and what came true: (n, H) once (`draw` None), or once a drawn macro future."""

    name: str
    past: Panel
    origins: Origins
    outcomes: Sequence[tuple[int | None, Array]]

    @cached_property
    def digest(self) -> str:
        """Names the question: pasts, origins and outcomes."""
        parts = hashlib.sha256(self.past.digest.encode())
        parts.update(
            " ".join(self.origins.person_id.tolist()).encode() + self.origins.year.tobytes()
        )
        for draw, outcomes in self.outcomes:
            parts.update(f"{draw}".encode() + outcomes.tobytes())
        return parts.hexdigest()


@dataclass(frozen=True)
class Sample:
    """The panel's judged persons: `test` and `training` persons' records, `until` the year that fitting may see, `end` the panel's last.

    In-time everything lies in or before `until`. Forward the origin is that year, and outcomes are the panel's later years where it has
    any, else those of drawn futures.
    """

    test: Panel
    training: Panel
    until: int
    end: int
    seed: int
    sample: SampleName = "all"

    @classmethod
    def of(
        cls,
        panel: Panel,
        *,
        seed: int,
        persons: int | None = None,
        sample: SampleName = "all",
        split: SplitName = "person",
        until: int | None = None,
    ) -> Sample:
        """Test persons of the split (at most `persons`, a keyed choice) and its training persons, whose years end at `until`.

        `split` "cohort" keeps of each part the paper's birth years; persons stay on their side of the person split, so that nobody whom
        a bundle was trained on is judged. Raises InputError when nobody is left.
        """
        end = last_year(panel)
        tested = _part(panel, "test", split)
        if persons is not None and persons < len(tested):
            order = np.argsort(uniform_each(tested, "contest", panel.meta.panel_id))
            tested = sorted(tested[i] for i in order[:persons])
        if not tested:
            problem = Problem(
                "no-test-persons",
                "no person of the panel is in the test part",
                "Give a panel with more persons.",
            )
            raise InputError("There is nobody to be judged on", [problem])
        stop = end if until is None else min(until, end)
        training = cut(panel.only(_part(panel, "train", split)), stop)
        return cls(panel.only(tested), training, stop, end, seed, sample)

    def settings(self, horizons: Sequence[int], futures: Path | None = None) -> Iterator[Setting]:
        """`in-time`, and `forward` where there is something later: years of the panel after `until`, or drawn `futures`.

        A setting without any origin is refused with InputError, horizons that nobody's record reaches under the cohort split with
        UsageError (see `check_observable`).
        """
        known = cut(self.test, self.until)
        drawn = self.draw(known)
        yield self._setting(
            "in-time",
            known,
            drawn,
            [(None, realised_earnings(known, drawn, list(horizons), end=self.until))],
        )
        if self.until < self.end:
            last = self.at(known, self.until)
            yield self._setting(
                "forward",
                known,
                last,
                [(None, realised_earnings(self.test, last, list(horizons), end=self.end))],
            )
        elif futures is not None:
            last = self.at(known, self.until)
            yield self._setting(
                "forward",
                known,
                last,
                list(true_futures(futures, last, horizons, price_year=self.test.meta.price_year)),
            )

    def draw(self, known: Panel) -> Origins:
        """One origin a person by the calibration's rule: its horizons, not those of a table, decide the draw."""
        return draw_origins(
            known,
            max_horizon=MAX_HORIZON,
            seed=self.seed,
            end=self.until,
            among=self._eligible(known),
        )

    def at(self, known: Panel, year: int) -> Origins:
        """Everybody eligible in `year`."""
        found = origins_at(known, year)
        among = self._eligible(known)
        if among is None:
            return found
        ids = set(among.filter(pl.col("year") == year)["person_id"])
        return found.take(
            np.array([person in ids for person in found.person_id.tolist()], dtype=bool)
        )

    def check_observable(self, horizons: Sequence[int]) -> None:
        """Raises UsageError naming the horizons at which nobody's outcome lies in the panel: their cells could only be made up."""
        known = cut(self.test, self.until)
        eligible = self._eligible(known)
        first = (eligible_origins(known) if eligible is None else eligible)["year"].min()
        reach = self.until - int(first) if first is not None else 0  # type: ignore[arg-type]
        beyond = [h for h in horizons if h > reach]
        if beyond:
            message = f"no outcome exists {', '.join(map(str, beyond))} years ahead: these cohorts' records reach {reach}"
            problem = Problem(
                "not-observed", message, f"Ask for horizons up to {reach}, or use --split person."
            )
            raise UsageError("Cells that cannot be observed", [problem])

    def _eligible(self, known: Panel) -> pl.DataFrame | None:
        return paper_years(known) if self.sample == "paper" else None

    def _setting(
        self,
        name: str,
        known: Panel,
        origins: Origins,
        outcomes: Sequence[tuple[int | None, Array]],
    ) -> Setting:
        if not len(origins):
            fix = "Test persons need 3 years of known earnings and an age of 20 to 60 at the origin (--sample paper: more)."
            raise InputError(
                f"The {name} setting has no origin",
                [Problem("no-origins", "no test person is eligible", fix)],
            )
        return Setting(name, history(known, origins), origins, outcomes)


def paper_years(panel: Panel) -> pl.DataFrame:
    """Person-years that may end the paper's window: columns `person_id`, `year`.

    Ages 26 to 54; of the ten years up to this one the first has known earnings, of any three in a row one has, and five are positive.
    """
    known = panel.frame.filter(pl.col("earnings").is_not_null()).select(
        "person_id", "birth_year", "year", "earnings"
    )
    here, before = pl.col("year"), pl.col("year").shift(1).over("person_id")
    # The first year of the latest stretch without a gap of more than GAP years.
    start = (
        pl.when((here - before).fill_null(GAP + 2) > GAP + 1)
        .then(here)
        .forward_fill()
        .over("person_id")
    )
    rows = known.with_columns(start=start)
    earlier = rows.select("person_id", "earnings", other="year")
    pairs = (
        rows.drop("earnings")
        .join(earlier, on="person_id")
        .filter((here - pl.col("other")).is_between(0, WINDOW - 1))
    )
    windows = pairs.group_by("person_id", "year").agg(
        pl.col("start").first(),
        age=(here - pl.col("birth_year")).first(),
        first=pl.col("other").min(),
        positive=(pl.col("earnings") > 0).sum(),
    )
    kept = windows.filter(
        pl.col("start") <= here - WINDOW + 1,
        pl.col("first") == here - WINDOW + 1,
        pl.col("positive") >= POSITIVE,
        pl.col("age").is_between(*END_AGES),
    )
    return kept.select("person_id", "year").sort("person_id", "year")


def _part(panel: Panel, part: Part, split: SplitName) -> list[str]:
    persons = persons_of(panel, part)
    if split == "person":
        return persons
    born = panel.frame.filter(pl.col("birth_year").is_between(*COHORTS[part]))["person_id"].unique()
    return sorted(set(persons) & set(born))
