"""What a career gives by a pension rule: rights or a pension, years and ratios.

A career is one person's earnings from the first age that counts to the last, on each path. The past
is the same on all paths. Amounts are real; docs/method/pensions.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.pensions.pension_rules import PensionLaw, Years

FINAL_YEARS = 5  # whose mean are the final earnings of a ratio
BEST_YEARS = 15  # whose mean are the best earnings of a ratio
AMOUNTS = ("rights", "funded_rights")  # measures in money; the others are years or ratios
_EPSILON = 1e-6  # larger than binary rounding errors, which would move an amount over a limit


@dataclass(frozen=True, eq=False)
class Career:
    """One person's earnings year by year.

    Args:
        years: Consecutive calendar years, (n_year,); with best years up to the index age or later,
            whose wages count at every age, and with rights that are credited after their year up to
            as many years after the last age that is asked for.
        earnings: Earnings of each year on each path, real, (n_year, n_path); NaN: unknown.
            Years after the last age that is asked for are NaN.
        growth: Factor of real wages since the last year whose amounts the law knows; 1 up to it.
        birth_year: The person's.
    """

    years: Years
    earnings: Floats
    growth: Floats
    birth_year: int


def measures(law: PensionLaw, career: Career, ages: Sequence[int]) -> dict[str, Floats]:
    """What a career has given up to the end of the year of each age, each (n_age, n_path).

    - rights: The balance of a sum of rights, with the index of the year in which the last of them
      is credited, or the yearly pension of best years; real money.
    - funded_rights: The part of it that is funded, if the rule has one.
    - contribution_years: Years in which earnings gave a right.
    - years_without, years_LOW_to_HIGH, years_from_HIGH: Years without earnings, and with earnings
      in each band of index amounts.
    - ratio_final, ratio_best_15, ratio_lifetime: Rights over the divisor of the rule, relative to
      mean earnings of the last 5, the best 15 and all years at the wage level of that age. NaN if
      these are zero.

    NaN where a year up to that age is unknown. Raises ValueError if the career of a rule of best
    years ends before the index age.
    """
    of_law = _InLaw(law, career)
    rows = np.array(ages) + career.birth_year - int(career.years[0])
    of_years = {"contribution_years": _counted(of_law.pensionable > 0, of_law.unknown)}
    of_years |= of_law.bands()
    if law.rule.formula == "sum":
        of_years |= of_law.balances()
    result = {name: values[rows] for name, values in of_years.items()}
    if law.rule.formula == "best_years":
        result["rights"] = np.stack([of_law.best_years_pension(row) for row in rows.tolist()])
    divisor = law.rule.of_years("divisor", career.years[rows])[:, None]
    for name, reference in of_law.references(rows.tolist()).items():
        ratio = np.full(reference.shape, np.nan)
        np.divide(result["rights"] / divisor, reference, out=ratio, where=reference > 0)
        result[f"ratio_{name}"] = ratio
    amounts = [name for name in (*AMOUNTS, "contribution_years") if name in result]
    return {name: result[name] for name in dict.fromkeys([*amounts, *result])}


def pensionable(law: PensionLaw, years: Years, earnings: Floats, growth: Floats) -> Floats:
    """What counts of each year's earnings, in prices of the law; all (n_year, n_path).

    The fee is deducted from the income before the ceiling; NaN stays NaN.
    """
    rule = law.rule

    def of(name: str) -> Floats:
        return rule.of_years(name, years)[:, None]

    known = law.known_years(years)
    income = _down(earnings, of("income_step"))
    index = law.amount(rule.index, known, growth)
    floor = of("floor") * law.amount(rule.floor_index, known, growth)
    ceiling = of("ceiling") * law.amount(rule.ceiling_index, known, growth)
    fee = of("fee_rate") * np.minimum(income, of("fee_to") * index)
    step = of("fee_step")
    rounded = np.ceil((fee - _EPSILON) / np.where(step > 0, step, 1.0) - 0.5) * step
    net = income - np.where(step > 0, rounded, fee)
    counted = np.where(income + _EPSILON >= floor, np.minimum(net, ceiling), 0.0)
    return np.where(np.isnan(income), np.nan, counted)


class _InLaw:
    """A career in prices of the law, with what counts of each year."""

    def __init__(self, law: PensionLaw, career: Career) -> None:
        self.law, self.career = law, career
        self.years = law.known_years(career.years)
        self.to_law = law.to_law(self.years)[:, None]
        self.earnings = career.earnings * self.to_law
        self.unknown = np.isnan(self.earnings)
        self.index = law.amount(law.rule.index, self.years, career.growth)
        self.wages = self.index / self.to_law  # real
        self.pensionable = pensionable(law, career.years, self.earnings, career.growth)

    def balances(self) -> dict[str, Floats]:
        """Rights up to each year, indexed by the share of wage growth that they follow; real.

        A right is a nominal amount until it is credited. At the end of a year the balance has the
        index of the year in which the right of that year is credited.
        """
        rule, years = self.law.rule, self.career.years
        delay = int(rule.value("credited_after", rule.first_year))
        wages = self.wages[delay:]
        share = rule.of_years("indexing", years[delay:])[1:, None]
        growth = (wages[1:] / wages[:-1]) ** share
        prices = self.law.inflation(years[: len(wages)], delay)[:, None]
        result = {}
        rates = {"funded_rights": rule.of_years("funded_rate", years)}
        rates["rights"] = rates["funded_rights"] + rule.of_years("rate", years)
        for name, rate in rates.items():
            balance = (rate[:, None] * self.pensionable / self.to_law)[: len(wages)] / prices
            for row in range(1, len(balance)):
                balance[row] += balance[row - 1] * growth[row - 1]
            result[name] = balance * prices
        if not rates["funded_rights"].any():
            del result["funded_rights"]
        return result

    def best_years_pension(self, last: int) -> Floats:
        """Yearly pension of the best years up to the row `last`, real, (n_path,)."""
        rule, career = self.law.rule, self.career
        # The law is that of the year of eligibility, whichever age is asked for.
        year = career.birth_year + int(rule.value("eligibility_age", rule.first_year))
        at = int(rule.value("index_age", year)) + career.birth_year - int(career.years[0])
        if at >= len(self.index):
            raise ValueError("The career ends before the index age, whose wage level counts.")
        level = self.index[at]
        factor = np.where((np.arange(last + 1) >= at)[:, None], 1.0, level / self.index[: last + 1])
        n_best = int(rule.value("best_years", year))
        best = np.sort(self.pensionable[: last + 1] * factor, axis=0)[-n_best:]
        best = np.where(self.unknown[: last + 1].any(0), np.nan, best.sum(0))
        average = _down(best / (12 * n_best), np.array(rule.value("average_step", year)))
        step = np.array(rule.value("bend_step", year))
        bends = [
            _down(rule.value(name, year) * level + step / 2, step) for name in ("bend_1", "bend_2")
        ]
        shares = [rule.value(f"share_{k}", year) for k in (1, 2, 3)]
        lower = np.minimum(average, bends[0])
        middle = np.maximum(np.minimum(average, bends[1]) - lower, 0.0)
        upper = np.maximum(average - bends[1], 0.0)
        monthly = shares[0] * lower + shares[1] * middle + shares[2] * upper
        monthly = _down(monthly, np.array(rule.value("pension_step", year)))
        prices = self.law.to_law(self.law.known_years(np.array([year])))[0]
        return np.asarray(12 * monthly / prices)

    def bands(self) -> dict[str, Floats]:
        """Numbers of years up to each one, without earnings and in each band of index amounts."""
        limits = [0.0, *self.law.rule.bands]
        relative = (self.earnings + _EPSILON) / self.index
        inside = {"years_without": self.earnings == 0}
        for low, high in zip(limits, [*limits[1:], np.inf], strict=True):
            name = f"years_from_{low:g}" if high == np.inf else f"years_{low:g}_to_{high:g}"
            inside[name] = (relative >= low) & (relative < high) & (self.earnings > 0)
        return {name: _counted(flags, self.unknown) for name, flags in inside.items()}

    def references(self, rows: Sequence[int]) -> dict[str, Floats]:
        """Mean earnings to which rights are compared, at the wage level of each row; real."""
        result: dict[str, list[Floats]] = {"final": [], "best_15": [], "lifetime": []}
        relative = self.career.earnings / self.wages
        for row in rows:
            past, level = relative[: row + 1], self.wages[row]
            best = np.sort(past, axis=0)[-BEST_YEARS:]
            result["final"].append(past[-FINAL_YEARS:].mean(0) * level)
            result["best_15"].append(best.mean(0) * level)
            result["lifetime"].append(past.mean(0) * level)
        return {name: np.stack(values) for name, values in result.items()}


def _counted(flags: NDArray[np.bool_], unknown: NDArray[np.bool_]) -> Floats:
    """How many years up to each one are flagged; NaN from the first unknown one on."""
    return np.cumsum(np.where(unknown, np.nan, flags), axis=0)


def _down(amounts: Floats, step: Floats) -> Floats:
    """Amounts as whole multiples of a step, not above them; a step of 0 changes nothing."""
    safe = np.where(step > 0, step, 1.0)
    return np.where(step > 0, np.floor((amounts + _EPSILON) / safe) * safe, amounts)
