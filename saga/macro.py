"""The economy as the model sees it: observed macro series, a process for the years after them, and scenarios.

A calendar year enters a forecast only by three series (unemployment, real wage growth, inflation; fractions), so that
years after the panel exist. After the origin no realised macro is used: futures are drawn from a vector autoregression
fitted on history up to the cut-off, or follow a scenario.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from saga.errors import InputError, Problem, UsageError
from saga.keyed import uniforms

Floats = NDArray[np.float64]
SERIES = ("unemployment", "real_wage_growth", "inflation")
SCENARIOS = ("baseline", "recession-1990s", "high-growth")
_UNEMPLOYMENT_RANGE = (0.005, 0.30)
_RANGES = (_UNEMPLOYMENT_RANGE, (-0.5, 0.5), (-0.5, 0.5))  # of what a scenario may say, in the order of SERIES

# Sweden 1990-2022, per cent: unemployment as published, real wage growth, CPI inflation. Unemployment: chartingtheglobe.com;
# inflation: SCB, 2006-22 read, before from memory; wages: Mediation Office, from memory, checked against its decade means.
_SWEDEN = """
1990 1.7 -1.1 10.5;1991 3.1 -3.6 9.3;1992 5.6 2.3 2.3;1993 9.1 -1.7 4.6;1994 9.4 0.2 2.2;1995 8.8 0.8 2.5;1996 9.6 5.6 0.5;
1997 9.9 4.0 0.5;1998 8.2 3.8 -0.1;1999 6.7 3.0 0.4;2000 5.6 2.7 1.0;2001 6.0 1.9 2.5;2002 6.1 2.0 2.1;2003 6.7 1.6 1.9;
2004 7.5 2.9 0.4;2005 7.9 2.7 0.4;2006 7.2 1.7 1.4;2007 6.2 1.1 2.2;2008 6.3 0.8 3.5;2009 8.4 3.7 -0.3;2010 8.7 1.3 1.3;
2011 7.9 -0.2 2.6;2012 8.1 2.1 0.9;2013 8.1 2.5 0.0;2014 8.0 3.0 -0.2;2015 7.5 2.4 0.0;2016 7.1 1.4 1.0;2017 6.8 0.5 1.8;
2018 6.4 0.5 2.0;2019 6.9 0.8 1.8;2020 8.5 1.6 0.5;2021 8.9 0.5 2.2;2022 7.5 -5.6 8.4
"""

# Labour-market programmes, share of the labour force [from memory]: jobless, but not counted as unemployed by the definition of before
# 2007. Negative: the present definition counts more than the jobless of the one before (students who look for work).
_PROGRAMME_YEARS = (1989, 1990, 1991, 1992, 1993, 1994, 1996, 1998, 2000, 2003, 2006, 2008)
_PROGRAMMES = (0.012, 0.012, 0.020, 0.036, 0.050, 0.058, 0.052, 0.045, 0.030, 0.022, 0.016, -0.005)


@dataclass(frozen=True)
class MacroHistory:
    """Observed series: `values` of shape (n_year, 3) in the order of SERIES, fractions, for consecutive years from `first_year`."""

    first_year: int
    values: Floats

    @property
    def last_year(self) -> int:
        """Last observed year."""
        return self.first_year + len(self.values) - 1

    def until(self, year: int) -> MacroHistory:
        """The history known at the end of `year`."""
        return MacroHistory(self.first_year, self.values[: max(0, year - self.first_year + 1)])


def sweden_as_published() -> MacroHistory:
    """Swedish series 1990-2022 as fractions, unemployment by the definition of its year."""
    rows = [[float(x) for x in row.split()] for row in _SWEDEN.replace("\n", "").split(";")]
    return MacroHistory(int(rows[0][0]), np.array(rows)[:, 1:] / 100)


def sweden() -> MacroHistory:
    """Swedish series 1990-2022 as fractions, unemployment by the present definition throughout.

    The definition of 2007 counts who is in a labour-market programme and looks for work. By the one before, a third of the jobless of
    the 1990s were not unemployed, and 2009, with fewer out of work, had nearly the unemployment of 1994.
    """
    published = sweden_as_published()
    values = published.values.copy()
    years = range(published.first_year, published.last_year + 1)
    values[:, 0] += [programmes(year) - programmes(published.last_year) for year in years]
    return MacroHistory(published.first_year, values)


def programmes(year: int) -> float:
    """Jobless people whom the unemployment rate published for that year did not count, a share of the labour force."""
    return float(np.interp(year, _PROGRAMME_YEARS, _PROGRAMMES))


@dataclass(frozen=True)
class MacroProcess:
    """First-order vector autoregression of (log unemployment, real wage growth, inflation) with Gaussian innovations.

    Fitted by ridge regression towards zero on standardised series (33 years identify little more), spectral radius capped below one
    so that futures are stationary. `history` ends at the cut-off.
    """

    history: MacroHistory
    mean: Floats
    transition: Floats
    innovation: Floats

    @classmethod
    def fit(cls, history: MacroHistory, *, law: MacroHistory | None = None, ridge: float = 1.0, max_radius: float = 0.95) -> MacroProcess:
        """Estimate from at least ten years of `law`, by default `history`: the series by whose movement later years are drawn, where
        that is not the one that people answer to."""
        law = law or history
        if len(law.values) < 10:
            raise UsageError(
                f"A macro process needs at least 10 years of history, got {len(law.values)}. Use a later cut-off, "
                "or leave the economy out of the panel (macro: none)."
            )
        x = _state(law.values)
        mean, scale = x.mean(0), x.std(0)
        z = (x - mean) / scale
        past, now = z[:-1], z[1:]
        a = np.linalg.solve(past.T @ past + ridge * np.eye(3), past.T @ now).T
        radius = float(np.abs(np.linalg.eigvals(a)).max())
        a *= min(1.0, max_radius / radius)
        residual = now - past @ a.T
        covariance = residual.T @ residual / max(1, len(residual) - 4)
        return cls(history, mean, scale[:, None] * a / scale[None, :], scale[:, None] * np.linalg.cholesky(covariance))

    def draw(self, seed: int, paths: int, from_year: int, to_year: int, scenario: Scenario | None = None) -> Floats:
        """Macro paths of the years from_year+1 .. to_year, shape (paths, n_year, 3).

        Starts from the state of `from_year`: as observed, or as the scenario gives it, or the long-run mean. Path k draws on the numbers
        keyed by (seed, k, year), so that it does not depend on how many paths are drawn. Years that the scenario gives are taken from it.
        """
        years = range(from_year + 1, to_year + 1)
        out = np.empty((paths, len(years), 3))
        x = np.broadcast_to(self._at(from_year, scenario), (paths, 3))
        given = scenario.rows if scenario else {}
        for i, year in enumerate(years):
            if year in given:
                x = np.broadcast_to(_state(np.array([given[year]]))[0], (paths, 3))
            else:
                shock = ndtri(uniforms(3 * paths, "macro", seed, year)).reshape(paths, 3)
                x = self.mean + (x - self.mean) @ self.transition.T + shock @ self.innovation.T
            out[:, i] = _series(x)
        return out

    def observed(self, until: int) -> Scenario:
        """The economy as it came, up to `until`: for futures that are to follow it."""
        known = self.history.until(until)
        return Scenario("observed", {known.first_year + i: (row[0], row[1], row[2]) for i, row in enumerate(known.values.tolist())})

    def unemployment(self, year: int, scenario: Scenario | None = None) -> float:
        """Unemployment from which futures after `year` start, a fraction."""
        return float(_series(self._at(year, scenario)[None])[0, 0])

    def _at(self, year: int, scenario: Scenario | None) -> Floats:
        """The state (3,) of a year from which futures start: observed, else given by the scenario, else the long-run mean."""
        index = year - self.history.first_year
        if 0 <= index < len(self.history.values):
            known = self.history.values[index]
        elif scenario and year in scenario.rows:
            known = np.array(scenario.rows[year])
        else:
            return self.mean
        state: Floats = _state(known[None])[0]
        return state

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, for macro.json."""
        return {
            "series": list(SERIES),
            "first_year": self.history.first_year,
            "history": self.history.values.tolist(),
            "mean": self.mean.tolist(),
            "transition": self.transition.tolist(),
            "innovation": self.innovation.tolist(),
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> MacroProcess:
        """Inverse of `as_dict`."""
        history = MacroHistory(int(d["first_year"]), np.array(d["history"], dtype=float))
        return cls(history, np.array(d["mean"]), np.array(d["transition"]), np.array(d["innovation"]))


def _state(values: Floats) -> Floats:
    """Series -> autoregressive state: unemployment in logs keeps it positive."""
    return np.column_stack([np.log(np.clip(values[:, 0], *_UNEMPLOYMENT_RANGE)), values[:, 1:]])


def _series(state: Floats) -> Floats:
    return np.column_stack([np.clip(np.exp(state[:, 0]), *_UNEMPLOYMENT_RANGE), state[:, 1:]])


@dataclass(frozen=True)
class Scenario:
    """Macro values that futures must follow: year -> (unemployment, real wage growth, inflation), fractions."""

    name: str
    rows: Mapping[int, tuple[float, float, float]]

    @property
    def digest(self) -> str:
        """sha256 of the rows: two files of one name are not one scenario."""
        return hashlib.sha256(repr(sorted(self.rows.items())).encode()).hexdigest()


def scenario_from(source: str | Path | Sequence[Mapping[str, float]] | Scenario | None, process: MacroProcess) -> Scenario | None:
    """A scenario from a name of SCENARIOS, a CSV file, or rows, or itself; None and "baseline" mean drawn futures.

    A file or rows give `year,unemployment,real_wage_growth,inflation` as fractions; years not given are drawn.
    """
    if source is None or source == "baseline":
        return None
    if isinstance(source, Scenario):
        return source
    if isinstance(source, (str, Path)):
        if source in SCENARIOS:
            return _named(str(source), process)
        path = Path(source)
        if not path.is_file():
            raise UsageError(f"Scenario '{source}' is neither a file nor one of {', '.join(SCENARIOS)}.")
        try:
            with path.open(newline="", encoding="utf-8-sig") as handle:
                rows = list(csv.DictReader(handle))
        except (UnicodeDecodeError, csv.Error):
            fix = f"Give a CSV file in UTF-8 with the columns {', '.join(('year', *SERIES))}."
            raise InputError("The scenario cannot be used.", [Problem("scenario", f"{path} is not CSV text", fix)]) from None
        return _from_rows(path.stem, rows)
    return _from_rows("given", list(source))


def _from_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> Scenario:
    columns = ("year", *SERIES)
    problems: list[Problem] = []
    out: dict[int, tuple[float, float, float]] = {}
    for number, row in enumerate(rows, start=1):
        missing = [c for c in columns if row.get(c) in (None, "")]
        if missing:
            problems.append(
                Problem(
                    "scenario",
                    f"Scenario row {number} lacks {', '.join(missing)}",
                    f"Give the columns {', '.join(columns)}, separated by commas.",
                )
            )
            continue
        try:
            given, values = float(row["year"]), tuple(float(row[c]) for c in SERIES)
        except (TypeError, ValueError):
            problems.append(
                Problem("scenario", f"Scenario row {number} holds a value that is not a number", "Use numbers; shares as fractions.")
            )
            continue
        if not given.is_integer():
            problems.append(Problem("scenario", f"Scenario row {number} gives no whole year", "Give a calendar year, such as 2023."))
            continue
        year = int(given)
        wrong = [(c, low, high) for c, v, (low, high) in zip(SERIES, values, _RANGES, strict=True) if not low <= v <= high]
        for column, low, high in wrong:
            fix = f"Give a fraction (0.07 for 7 %) from {low:g} to {high:g}."
            problems.append(Problem("scenario", f"{column} is out of range", fix, year=year, column=column))
        if wrong:
            continue
        if year in out:
            problems.append(Problem("scenario", "A scenario year appears twice", "Keep one row a year.", year=year))
        out[year] = (values[0], values[1], values[2])
    if not rows:
        problems.append(Problem("scenario", "The scenario has no rows", f"Give the columns {', '.join(columns)}."))
    if problems:
        raise InputError("The scenario cannot be used.", problems)
    return Scenario(name, out)


def _named(name: str, process: MacroProcess) -> Scenario:
    """Named scenarios start in the year after the process's history."""
    start = process.history.last_year
    last = process.history.values[-1]
    rows: dict[int, tuple[float, float, float]] = {}
    if name == "recession-1990s":
        # Sweden 1991-97 replayed: the rise of unemployment over its 1990 level is added to today's level.
        past = sweden().values
        for i in range(1, 8):
            rows[start + i] = (float(last[0] + past[i, 0] - past[0, 0]), float(past[i, 1]), float(past[i, 2]))
    else:
        for i in range(1, 11):
            unemployment = last[0] + (0.05 - last[0]) * min(1.0, i / 5)
            rows[start + i] = (float(unemployment), 0.03, 0.02)
    return Scenario(name, rows)


def log_wage_index(growth: Floats) -> Floats:
    """Cumulated log real wage growth over the last axis, starting at the first year's growth."""
    return np.cumsum(np.log1p(growth), axis=-1)
