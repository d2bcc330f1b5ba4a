"""Test persons, their origins and outcomes: the settings and samples of an evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import numpy as np
import polars as pl
from saga.evaluation.scoring.futures import true_futures

from saga.arrays import Array
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
from saga.data.split import Part, assign_folds, persons_of, units_of
from saga.errors import InputError, Problem, UsageError
from saga.keyed_random import sample_persons
from saga.register.validation.register_arrays import (
    PAPER_LAST_AGES,
    PAPER_POSITIVE_YEARS,
    PAPER_WINDOW,
)
from saga.requests import MAX_HORIZON

SampleName = Literal["all", "paper"]
SplitName = Literal["person", "cohort"]
# Birth years of the parts of the paper's split by cohort.
COHORTS: dict[Part, tuple[int, int]] = {
    "train": (1960, 1979),
    "calibration": (1980, 1982),
    "test": (1983, 1985),
}
GAP = 2  # longest gap in years of the paper's window before an origin


@dataclass(frozen=True)
class Setting:
    """Persons, their histories and outcomes.

    `outcomes` are pairs of the number of a future and the outcomes (n, H) in it; the number is None
    if the outcomes are those of the panel.
    """

    name: str
    past: Panel
    origins: Origins
    outcomes: Sequence[tuple[int | None, Array]]

    @cached_property
    def digest(self) -> str:
        """Identify histories, origins and outcomes."""
        digest = hashlib.sha256(self.past.digest.encode())
        persons = " ".join(self.origins.person_id.tolist())
        digest.update(persons.encode() + self.origins.year.tobytes())
        for draw, outcomes in self.outcomes:
            digest.update(f"{draw}".encode() + outcomes.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Sample:
    """Records of the panel's `test` and `training` persons.

    `until` is the last year that fitting may use, `end` the panel's last year. In-time, origins and
    outcomes lie in or before `until`. Forward, the origin is that year, and outcomes are of the
    panel's later years if there are any, otherwise of drawn futures.
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
    ) -> Self:
        """Test persons of the split and its training persons, whose years end at `until`.

        Args:
            panel: All persons.
            seed: Seed of the origins.
            persons: Largest number of test persons, reproducibly at random; None: all.
            sample: "all", or "paper": only origins of `paper_years`.
            split: "person", or "cohort": of each part of the person split only persons born in the
                paper's years, so that no training person of a bundle is tested.
            until: Last year that fitting may use.

        Raises:
            InputError: If there is no test person.
        """
        tested, trained = (_part(panel, part, split) for part in ("test", "train"))
        tested = sample_persons(tested, persons, "contest", panel.meta.panel_id)
        if not tested:
            problem = Problem(
                "no-test-persons",
                "no person of the panel is in the test part",
                "Give a panel with more persons.",
            )
            raise InputError("There are no test persons", [problem])
        return cls._of_persons(panel, tested, trained, seed, sample, until)

    @classmethod
    def of_folds(
        cls,
        panel: Panel,
        n_folds: int,
        *,
        seed: int,
        persons: int | None = None,
        sample: SampleName = "all",
        until: int | None = None,
    ) -> Iterator[Self]:
        """A sample per fold: its persons are tested, and all others are training persons.

        Every person is tested once. Families are not divided (`saga.data.split.units_of`).

        Args:
            panel: All persons.
            n_folds: Number of folds.
            seed: Seed of the origins.
            persons: Largest number of test persons of all folds, reproducibly at random.
            sample: As in `of`.
            until: Last year that fitting may use.

        Raises:
            InputError: If a fold has no person.
        """
        units, ids = units_of(panel), panel.persons()
        folds = assign_folds(panel.meta.split_key, units, n_folds)
        if len(np.unique(folds)) < n_folds:
            message = f"{len(set(units))} persons or families cannot fill {n_folds} folds"
            problem = Problem(
                "too-few-persons", message, "Use fewer folds, or a panel with more persons."
            )
            raise InputError("The panel is too small for these folds", [problem])
        chosen = set(sample_persons(ids, persons, "contest", panel.meta.panel_id))
        for fold in range(n_folds):
            inside = [person for person, k in zip(ids, folds, strict=True) if k == fold]
            outside = [person for person, k in zip(ids, folds, strict=True) if k != fold]
            tested = [person for person in inside if person in chosen]
            yield cls._of_persons(panel, tested, outside, seed, sample, until)

    @classmethod
    def _of_persons(
        cls,
        panel: Panel,
        tested: Sequence[str],
        trained: Sequence[str],
        seed: int,
        sample: SampleName,
        until: int | None,
    ) -> Self:
        end = last_year(panel)
        stop = end if until is None else min(until, end)
        return cls(panel.only(tested), cut(panel.only(trained), stop), stop, end, seed, sample)

    def settings(self, horizons: Sequence[int], futures: Path | None = None) -> Iterator[Setting]:
        """The setting `in-time`, and `forward` if the panel has later years or `futures` are given.

        Raises InputError if a setting has no origin.
        """
        observed = cut(self.test, self.until)
        origins = self.draw(observed)
        outcomes = realised_earnings(observed, origins, list(horizons), end=self.until)
        yield self._setting("in-time", observed, origins, [(None, outcomes)])
        if self.until == self.end and futures is None:
            return
        last = self.at(observed, self.until)
        if self.until < self.end:
            outcomes = realised_earnings(self.test, last, list(horizons), end=self.end)
            yield self._setting("forward", observed, last, [(None, outcomes)])
        elif futures is not None:
            price_year = self.test.meta.price_year
            draws = list(true_futures(futures, last, horizons, price_year=price_year))
            yield self._setting("forward", observed, last, draws)

    def draw(self, panel: Panel) -> Origins:
        """One origin per person, drawn as in calibration; it does not depend on the horizons."""
        return draw_origins(
            panel,
            max_horizon=MAX_HORIZON,
            seed=self.seed,
            end=self.until,
            among=self._eligible(panel),
        )

    def at(self, panel: Panel, year: int) -> Origins:
        """All persons that are eligible in `year`."""
        origins = origins_at(panel, year)
        among = self._eligible(panel)
        if among is None:
            return origins
        ids = set(among.filter(pl.col("year") == year)["person_id"])
        return origins.take(
            np.array([person in ids for person in origins.person_id.tolist()], dtype=bool)
        )

    def check_observable(self, horizons: Sequence[int]) -> None:
        """Raise UsageError if the panel has no outcome at one of the horizons."""
        panel = cut(self.test, self.until)
        eligible = self._eligible(panel)
        first = (eligible_origins(panel) if eligible is None else eligible)["year"].min()
        reach = self.until - int(first) if first is not None else 0  # type: ignore[arg-type]
        beyond = [h for h in horizons if h > reach]
        if beyond:
            message = (
                f"no outcome exists {', '.join(map(str, beyond))} years ahead: "
                f"the records of these cohorts reach {reach} years"
            )
            fix = f"Give horizons up to {reach}, or use --split person."
            raise UsageError(
                "A horizon cannot be observed", [Problem("not-observed", message, fix)]
            )

    def _eligible(self, panel: Panel) -> pl.DataFrame | None:
        return paper_years(panel) if self.sample == "paper" else None

    def _setting(
        self,
        name: str,
        panel: Panel,
        origins: Origins,
        outcomes: Sequence[tuple[int | None, Array]],
    ) -> Setting:
        if not len(origins):
            fix = (
                "Test persons need 3 years of known earnings and an age of 20 to 60 at the origin "
                "(more with --sample paper)."
            )
            raise InputError(
                f"The {name} setting has no origin",
                [Problem("no-origins", "no test person is eligible", fix)],
            )
        return Setting(name, history(panel, origins), origins, outcomes)


def paper_years(panel: Panel) -> pl.DataFrame:
    """Last years of windows that satisfy the paper's rules: columns `person_id`, `year`.

    A window has ten years and ends at age 26 to 54. Earnings are known in its first year and in at
    least one of any three consecutive years, and positive in at least five years.
    """
    with_earnings = panel.frame.filter(pl.col("earnings").is_not_null()).select(
        "person_id", "birth_year", "year", "earnings"
    )
    year, previous = pl.col("year"), pl.col("year").shift(1).over("person_id")
    # The first year of the latest stretch without a gap of more than GAP years.
    start = (
        pl.when((year - previous).fill_null(GAP + 2) > GAP + 1)
        .then(year)
        .forward_fill()
        .over("person_id")
    )
    rows = with_earnings.with_columns(start=start)
    earlier = rows.select("person_id", "earnings", other="year")
    pairs = (
        rows.drop("earnings")
        .join(earlier, on="person_id")
        .filter((year - pl.col("other")).is_between(0, PAPER_WINDOW - 1))
    )
    windows = pairs.group_by("person_id", "year").agg(
        pl.col("start").first(),
        age=(year - pl.col("birth_year")).first(),
        first=pl.col("other").min(),
        positive=(pl.col("earnings") > 0).sum(),
    )
    ends = windows.filter(
        pl.col("start") <= year - PAPER_WINDOW + 1,
        pl.col("first") == year - PAPER_WINDOW + 1,
        pl.col("positive") >= PAPER_POSITIVE_YEARS,
        pl.col("age").is_between(*PAPER_LAST_AGES),
    )
    return ends.select("person_id", "year").sort("person_id", "year")


def _part(panel: Panel, part: Part, split: SplitName) -> list[str]:
    persons = persons_of(panel, part)
    if split == "person":
        return persons
    born = panel.frame.filter(pl.col("birth_year").is_between(*COHORTS[part]))["person_id"].unique()
    return sorted(set(persons) & set(born))
