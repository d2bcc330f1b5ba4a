"""Income tax on annual labour earnings: Swedish rules of 2022 under age 65, and the paper's rule.

A policy is a frozen dataclass whose fields have title, unit and source, so that a reform is
`dataclasses.replace(Sweden2022(), state_rate=0.25)`. Earnings of every year are taxed by the rules
of 2022 in prices of 2022: brackets follow prices, not wages. All income counts as labour earnings;
public-service, burial and church fees are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from saga.errors import UsageError
from saga.requests import TaxName

Array = NDArray[np.float64]

MONEY = "SEK of 2022"  # currency and prices of all rules
_STEP = 100.0  # SEK: income and allowances are counted in whole hundreds
_TABLE_TOP = 2_000_000.0  # SEK: lower earnings take their tax from a table by whole hundreds
_EPSILON = 1e-6  # SEK: larger than binary rounding errors, which would change a rounded amount


def _parameter(value: Any, title: str, unit: str, source: str) -> Any:
    return field(default=value, metadata={"title": title, "unit": unit, "source": source})


class Policy(Protocol):
    """A tax rule."""

    def tax(self, earnings: Array) -> Array:
        """Annual tax, SEK 2022, of annual earnings, SEK 2022, of any shape; NaN stays NaN."""


@dataclass(frozen=True)
class Sweden2022:
    """Swedish income tax of 2022 under 65 at the start of the year (Inkomstskattelag).

    Act 1999:1229, chapters 63, 65 and 67.
    """

    price_base_amount: float = _parameter(
        48_300.0,
        "Price base amount (prisbasbelopp)",
        "SEK",
        "Tax Agency, amounts and per cent 2022",
    )
    income_base_amount: float = _parameter(
        71_000.0,
        "Income base amount (inkomstbasbelopp)",
        "SEK",
        "Tax Agency, amounts and per cent 2022",
    )
    municipal_rate: float = _parameter(
        0.3224,
        "Mean municipal and regional tax rate",
        "share",
        "SKR, tax rates 2022 (20.67 + 11.56, rounded)",
    )
    state_threshold: float = _parameter(
        540_700.0,
        "Taxable income from which state tax is due (skiktgrans)",
        "SEK",
        "Tax Agency 2022",
    )
    state_rate: float = _parameter(
        0.20, "State income tax", "share", "IL 65:5; no upper bracket since 2020"
    )
    basic_allowance: tuple[tuple[float, float, float], ...] = _parameter(
        (
            (0.0, 0.423, 0.0),
            (0.99, 0.225, 0.20),
            (2.72, 0.770, 0.0),
            (3.11, 1.081, -0.10),
            (7.88, 0.293, 0.0),
        ),
        "Basic allowance (grundavdrag): above income, amount, share of income added",
        "price base amounts, price base amounts, share",
        "IL 63:3; rounded up to 100",
    )
    work_credit: tuple[tuple[float, float, float], ...] = _parameter(
        ((0.0, 0.0, 1.0), (0.91, 0.91, 0.3874), (3.24, 1.813, 0.128), (8.08, 2.432, 0.0)),
        "Work credit (jobbskatteavdrag), less the allowance, times the municipal rate: "
        "above income, amount, share of what is above",
        "price base amounts, price base amounts, share",
        "IL 67:7 as of SFS 2021:1160",
    )
    work_credit_phase_out: tuple[float, float] = _parameter(
        (13.54, 0.03),
        "Phase-out of that credit: from income, rate",
        "price base amounts, share",
        "IL 67:7 as of SFS 2021:1160",
    )
    pension_fee_rate: float = _parameter(
        0.07, "General pension fee (allman pensionsavgift)", "share", "Act 1994:1744"
    )
    pension_fee_from: float = _parameter(
        0.423, "Income from which the fee is due", "price base amounts", "Act 1994:1744"
    )
    pension_fee_to: float = _parameter(
        8.07, "Income to which the fee is due", "income base amounts", "Act 1994:1744"
    )
    income_credit: tuple[float, float, float] = _parameter(
        (40_000.0, 0.0075, 1_500.0),
        "Credit for earned income: from taxable income, rate, maximum",
        "SEK, share, SEK",
        "IL 67:46-47, 2021 on",
    )
    temporary_credit: tuple[float, float, float, float, float, float] = _parameter(
        (60_000.0, 0.0125, 2_250.0, 300_000.0, 0.01125, 500_000.0),
        "Temporary credit on work income 2021-22: from income, rate, maximum, "
        "falling from income, rate of fall, to income",
        "SEK, share, SEK, SEK, share, SEK",
        "Prop. 2020/21:200",
    )

    def breakdown(self, earnings: Array) -> dict[str, Array]:
        """Every item of the assessment of earnings (SEK a year, any shape), in whole SEK.

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
        start, rate, maximum = self.income_credit
        general = np.minimum(_whole(np.clip(rate * (taxable - start), 0.0, maximum)), remaining)
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

    def tax(self, earnings: Array) -> Array:
        """Annual tax with the pension fee, SEK 2022, of annual earnings; NaN stays NaN."""
        inside = earnings < _TABLE_TOP
        tax = np.full(earnings.shape, np.nan)
        tax[inside] = _tax_by_hundred(self)[
            ((earnings[inside] + _EPSILON) / _STEP).astype(np.int64)
        ]
        above = earnings >= _TABLE_TOP
        tax[above] = self.breakdown(earnings[above])["tax"]
        return tax

    def _allowance(self, income: Array) -> Array:
        base = self.price_base_amount
        _, amount, share = _bracket(self.basic_allowance, income / base)
        return np.minimum(
            np.ceil((amount * base + share * income - _EPSILON) / _STEP) * _STEP, income
        )

    def _work_credit(self, income: Array, allowance: Array) -> Array:
        base = self.price_base_amount
        above, amount, share = _bracket(self.work_credit, income / base)
        top, rate = self.work_credit_phase_out
        credit = (amount * base + share * (income - above * base) - allowance) * self.municipal_rate
        return _whole(np.maximum(credit - rate * np.maximum(income - top * base, 0.0), 0.0))

    def _temporary_credit(self, income: Array) -> Array:
        start, rate, maximum, falling_from, fall, to = self.temporary_credit
        rising = np.clip(rate * (income - start), 0.0, maximum)
        return _whole(
            np.where(
                income >= to,
                0.0,
                np.maximum(rising - fall * np.maximum(income - falling_from, 0.0), 0.0),
            )
        )


@dataclass(frozen=True)
class PaperRule:
    """The paper's rule: flat municipal tax, one state bracket and the pension fee; no credits.

    As written it takes at least 32.4 % of any income, so the paper's mean effective rates of 29 to
    31 % cannot come from it alone.
    """

    municipal_rate: float = _parameter(0.324, "Municipal tax", "share", "the paper")
    state_threshold: float = _parameter(
        554_900.0, "Earnings from which state tax is due", "SEK", "the paper"
    )
    state_rate: float = _parameter(0.20, "State tax", "share", "the paper")
    pension_fee_rate: float = _parameter(0.07, "Pension fee", "share", "the paper")
    pension_fee_to: float = _parameter(
        8.07 * 71_000.0,
        "Earnings to which the fee is due (8.07 income base amounts)",
        "SEK",
        "the paper",
    )

    def tax(self, earnings: Array) -> Array:
        """Annual tax, SEK 2022, of annual `earnings`, SEK 2022, any shape; NaN stays NaN."""
        state = self.state_rate * np.maximum(earnings - self.state_threshold, 0.0)
        return (
            self.municipal_rate * earnings
            + state
            + self.pension_fee_rate * np.minimum(earnings, self.pension_fee_to)
        )


@dataclass(frozen=True)
class NoTax:
    """No tax: net equals gross."""

    def tax(self, earnings: Array) -> Array:
        """Zero in the shape of `earnings`; NaN stays NaN."""
        return earnings * 0.0


POLICIES: dict[TaxName, Policy] = {"se-2022": Sweden2022(), "paper": PaperRule(), "none": NoTax()}


def income_tax(earnings: NDArray[np.floating[Any]], policy: TaxName | Policy = "se-2022") -> Array:
    """Annual tax of annual earnings, both SEK 2022 and of one shape; NaN stays NaN.

    `policy` is a name of `POLICIES` or a policy. Raises UsageError for an unknown name or for
    earnings below zero.
    """
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise UsageError(f"There is no tax rule {policy!r}. Use one of {', '.join(POLICIES)}.")
        policy = POLICIES[policy]
    amounts = np.asarray(earnings, dtype=np.float64)
    if bool((amounts < 0.0).any()) or bool(np.isinf(amounts).any()):
        raise UsageError(
            "Tax is defined for finite earnings from zero up, but some are negative or infinite. "
            "Correct the earnings first."
        )
    return policy.tax(amounts)


def parameters(policy: Any) -> list[dict[str, Any]]:
    """The parameters of a policy dataclass: name, value, title, unit and source of each."""
    return [
        {"name": item.name, "value": getattr(policy, item.name), **item.metadata}
        for item in fields(policy)
    ]


@lru_cache(maxsize=8)
def _tax_by_hundred(policy: Sweden2022) -> Array:
    return policy.breakdown(np.arange(0.0, _TABLE_TOP, _STEP))["tax"]


def _bracket(
    table: tuple[tuple[float, float, float], ...], income: Array
) -> tuple[Array, Array, Array]:
    """The columns of `table` in the last row whose first entry lies below `income`."""
    rows = np.array(table)
    row = np.maximum(np.searchsorted(rows[:, 0], income) - 1, 0)
    return rows[row, 0], rows[row, 1], rows[row, 2]


def _whole(amount: Array) -> Array:
    """Truncated to whole SEK."""
    return np.floor(amount + _EPSILON)
