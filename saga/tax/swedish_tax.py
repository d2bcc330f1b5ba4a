"""Swedish income tax of one year on labour earnings, for persons below the age of other rules.

Inkomstskattelag (1999:1229), chapters 63, 65 and 67; docs/method/tax.md has the formulas. Older
persons have higher allowances and credits: until 2022 those who are 65 or older at the start of the
year, from 2023 on those of 66 or older. All income counts as labour earnings; public-service,
burial and church fees are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise

import numpy as np

from saga.arrays import Floats
from saga.data.facts import Facts
from saga.errors import UsageError

Table = tuple[tuple[float, float, float], ...]  # income above, amount, share of the income

_STEP = 100.0  # SEK: income and allowances are counted in whole hundreds
_TABLE_TOP = 2_000_000.0  # SEK: lower earnings take their tax from a table by whole hundreds
_EPSILON = 1e-6  # SEK: larger than binary rounding errors, which would change a rounded amount


@dataclass(frozen=True)
class SwedishTax:
    """Parameters of a year's tax; `saga.data.facts.TAX_SERIES` has their titles and units.

    Raises:
        UsageError: If the limits of bands do not ascend.
    """

    price_base_amount: float
    income_base_amount: float
    municipal_rate: float
    state_threshold: float
    state_rate: float
    allowance_limit_1: float
    allowance_limit_2: float
    allowance_limit_3: float
    allowance_limit_4: float
    allowance_amount_1: float
    allowance_amount_2: float
    allowance_share_2: float
    allowance_amount_3: float
    allowance_amount_4: float
    allowance_share_4: float
    allowance_amount_5: float
    work_credit_limit_1: float
    work_credit_limit_2: float
    work_credit_limit_3: float
    work_credit_share_2: float
    work_credit_amount_3: float
    work_credit_share_3: float
    work_credit_amount_4: float
    work_credit_fall_from: float
    work_credit_fall_share: float
    pension_fee_rate: float
    pension_fee_from: float
    pension_fee_to: float
    income_credit_from: float
    income_credit_share: float
    income_credit_most: float
    temporary_credit_from: float
    temporary_credit_share: float
    temporary_credit_most: float
    temporary_credit_fall_from: float
    temporary_credit_fall_share: float
    temporary_credit_to: float

    def __post_init__(self) -> None:
        for part in ("allowance_limit", "work_credit_limit"):
            names = [item.name for item in fields(self) if item.name.startswith(part)]
            for lower, upper in pairwise(names):
                if not getattr(self, lower) < getattr(self, upper):
                    raise UsageError(
                        f"The limits of a tax rule do not ascend: {upper} is not above {lower}. "
                        "Correct one of them."
                    )

    @classmethod
    def of(cls, facts: Facts, year: int) -> SwedishTax:
        """The tax of a year. Raises UsageError if the facts lack a parameter of the year."""
        names = [item.name for item in fields(cls)]
        lacking = [name for name in names if year not in facts.series[name].values]
        if lacking:
            years = set.intersection(*(set(facts.series[name].values) for name in names))
            raise UsageError(
                f"There are no tax facts of {year} ({lacking[0]} is missing). Use se-{min(years)} "
                f"to se-{max(years)}, or give facts that contain {year}."
            )
        return cls(**{name: facts.series[name].values[year] for name in names})

    def breakdown(self, earnings: Floats) -> dict[str, Floats]:
        """Every item of the assessment of earnings (SEK of the year, any shape), in whole SEK.

        Credits are taken in the order of the law, none larger than the tax that it reduces: the
        pension fee's credit from municipal and state tax, the work credit from the remaining
        municipal tax, the two others from all remaining tax.
        """
        base = self.price_base_amount
        income = np.floor((earnings + _EPSILON) / _STEP) * _STEP
        allowance = self._allowance(income)
        taxable = income - allowance
        municipal = _whole(self.municipal_rate * taxable)
        state = _whole(self.state_rate * np.maximum(taxable - self.state_threshold, 0.0))
        fee_base = np.where(
            income >= self.pension_fee_from * base,
            np.minimum(income, self.pension_fee_to * self.income_base_amount),
            0.0,
        )
        # To the nearest hundred, an exact fifty down.
        fee = np.ceil((self.pension_fee_rate * fee_base - _EPSILON) / _STEP - 0.5) * _STEP
        remaining = municipal + state
        fee_credit = np.minimum(fee, remaining)
        remaining = remaining - fee_credit
        work = np.minimum(self._work_credit(income, allowance), np.minimum(municipal, remaining))
        remaining = remaining - work
        rise = self.income_credit_share * (taxable - self.income_credit_from)
        general = np.minimum(_whole(np.clip(rise, 0.0, self.income_credit_most)), remaining)
        remaining = remaining - general
        temporary = np.minimum(self._temporary_credit(income), remaining)
        total = remaining - temporary + fee
        return {
            "allowance": allowance,
            "municipal": municipal,
            "state": state,
            "pension_fee": fee,
            "pension_fee_credit": fee_credit,
            "work_credit": work,
            "income_credit": general,
            "temporary_credit": temporary,
            "tax": total,
            "net": earnings - total,
        }

    def tax(self, earnings: Floats) -> Floats:
        """Annual tax with the pension fee, SEK of the year, of earnings; NaN stays NaN."""
        hundreds, top = (earnings + _EPSILON) / _STEP, _TABLE_TOP / _STEP
        tax = np.full(earnings.shape, np.nan)
        inside, above = hundreds < top, hundreds >= top
        tax[inside] = _tax_by_hundred(self)[hundreds[inside].astype(np.int64)]
        tax[above] = self.breakdown(earnings[above])["tax"]
        return tax

    def _allowance(self, income: Floats) -> Floats:
        base = self.price_base_amount
        table: Table = (
            (0.0, self.allowance_amount_1, 0.0),
            (self.allowance_limit_1, self.allowance_amount_2, self.allowance_share_2),
            (self.allowance_limit_2, self.allowance_amount_3, 0.0),
            (self.allowance_limit_3, self.allowance_amount_4, -self.allowance_share_4),
            (self.allowance_limit_4, self.allowance_amount_5, 0.0),
        )
        _, amount, share = _bracket(table, income / base)
        return np.minimum(
            np.ceil((amount * base + share * income - _EPSILON) / _STEP) * _STEP, income
        )

    def _work_credit(self, income: Floats, allowance: Floats) -> Floats:
        base = self.price_base_amount
        table: Table = (
            (0.0, 0.0, 1.0),
            (self.work_credit_limit_1, self.work_credit_limit_1, self.work_credit_share_2),
            (self.work_credit_limit_2, self.work_credit_amount_3, self.work_credit_share_3),
            (self.work_credit_limit_3, self.work_credit_amount_4, 0.0),
        )
        above, amount, share = _bracket(table, income / base)
        counted = amount * base + share * (income - above * base)
        credit = (counted - allowance) * self.municipal_rate
        beyond = np.maximum(income - self.work_credit_fall_from * base, 0.0)
        return _whole(np.maximum(credit - self.work_credit_fall_share * beyond, 0.0))

    def _temporary_credit(self, income: Floats) -> Floats:
        rising = np.clip(
            self.temporary_credit_share * (income - self.temporary_credit_from),
            0.0,
            self.temporary_credit_most,
        )
        beyond = np.maximum(income - self.temporary_credit_fall_from, 0.0)
        falling = np.maximum(rising - self.temporary_credit_fall_share * beyond, 0.0)
        return _whole(np.where(income >= self.temporary_credit_to, 0.0, falling))


@lru_cache(maxsize=128)
def _tax_by_hundred(policy: SwedishTax) -> Floats:
    return policy.breakdown(np.arange(0.0, _TABLE_TOP, _STEP))["tax"]


def _bracket(table: Table, income: Floats) -> tuple[Floats, Floats, Floats]:
    """The columns of `table` in the last row whose first entry lies below `income`."""
    rows = np.array(table)
    row = np.maximum(np.searchsorted(rows[:, 0], income) - 1, 0)
    return rows[row, 0], rows[row, 1], rows[row, 2]


def _whole(amount: Floats) -> Floats:
    """Truncated to whole SEK."""
    return np.floor(amount + _EPSILON)
