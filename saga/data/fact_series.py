"""The series of dated facts: meaning, unit and possible values of each."""

from __future__ import annotations

from dataclasses import dataclass

PRICE_BASE = "price base amounts"
INCOME_BASE = "income base amounts"


@dataclass(frozen=True)
class FactSeries:
    """A series: values lie in [lowest, highest].

    A `steady` series rises by less than half, and falls by less than a third, from one year to the
    next.
    """

    title: str
    unit: str
    lowest: float
    highest: float
    steady: bool = False


def _rate(title: str) -> FactSeries:
    return FactSeries(title, "share", 0.0, 1.0)


def _amount(title: str, *, steady: bool = False) -> FactSeries:
    return FactSeries(title, "SEK", 0.0, 1e7, steady)


def _in_base_amounts(title: str) -> FactSeries:
    return FactSeries(title, PRICE_BASE, 0.0, 100.0)


def _growth(title: str) -> FactSeries:
    return FactSeries(title, "per cent", -50.0, 50.0)


# Parameters of the income tax have the names of the fields of `saga.tax.swedish_tax.SwedishTax`.
TAX_SERIES: dict[str, FactSeries] = {
    "price_base_amount": FactSeries(
        "Price base amount (prisbasbelopp)", "SEK", 1_000.0, 1e6, steady=True
    ),
    "income_base_amount": FactSeries(
        "Income base amount (inkomstbasbelopp)", "SEK", 1_000.0, 1e6, steady=True
    ),
    "municipal_rate": FactSeries("Mean municipal and regional tax rate", "share", 0.1, 0.6),
    "state_threshold": _amount("Taxable income from which state tax is due (skiktgrans)"),
    "state_rate": _rate("State income tax"),
    "allowance_limit_1": _in_base_amounts("Basic allowance (grundavdrag): end of band 1"),
    "allowance_limit_2": _in_base_amounts("Basic allowance: end of band 2"),
    "allowance_limit_3": _in_base_amounts("Basic allowance: end of band 3"),
    "allowance_limit_4": _in_base_amounts("Basic allowance: end of band 4"),
    "allowance_amount_1": _in_base_amounts("Basic allowance, band 1: amount"),
    "allowance_amount_2": _in_base_amounts("Basic allowance, band 2: amount"),
    "allowance_share_2": _rate("Basic allowance, band 2: share of income added"),
    "allowance_amount_3": _in_base_amounts("Basic allowance, band 3: amount"),
    "allowance_amount_4": _in_base_amounts("Basic allowance, band 4: amount"),
    "allowance_share_4": _rate("Basic allowance, band 4: share of income subtracted"),
    "allowance_amount_5": _in_base_amounts("Basic allowance, band 5: amount"),
    "work_credit_limit_1": _in_base_amounts("Work credit (jobbskatteavdrag): end of band 1"),
    "work_credit_limit_2": _in_base_amounts("Work credit: end of band 2"),
    "work_credit_limit_3": _in_base_amounts("Work credit: end of band 3"),
    "work_credit_share_2": _rate("Work credit, band 2: share of income above band 1"),
    "work_credit_amount_3": _in_base_amounts("Work credit, band 3: amount"),
    "work_credit_share_3": _rate("Work credit, band 3: share of income above band 2"),
    "work_credit_amount_4": _in_base_amounts("Work credit, band 4: amount"),
    "work_credit_fall_from": _in_base_amounts("Work credit: income from which it falls"),
    "work_credit_fall_share": _rate("Work credit: share of income by which it falls"),
    "pension_fee_rate": _rate("General pension fee (allman pensionsavgift)"),
    "pension_fee_from": _in_base_amounts("Income from which the pension fee is due"),
    "pension_fee_to": FactSeries("Income to which the pension fee is due", INCOME_BASE, 0.0, 100.0),
    "income_credit_from": _amount("Credit for earned income: taxable income from which it rises"),
    "income_credit_share": _rate("Credit for earned income: share of taxable income"),
    "income_credit_most": _amount("Credit for earned income: maximum"),
    "temporary_credit_from": _amount("Temporary work credit: income from which it rises"),
    "temporary_credit_share": _rate("Temporary work credit: share of income"),
    "temporary_credit_most": _amount("Temporary work credit: maximum"),
    "temporary_credit_fall_from": _amount("Temporary work credit: income from which it falls"),
    "temporary_credit_fall_share": _rate("Temporary work credit: share by which it falls"),
    "temporary_credit_to": _amount("Temporary work credit: income at which it ends"),
}
MACRO_SERIES: dict[str, FactSeries] = {
    "unemployment": FactSeries(
        "Unemployment, by the definition of its year", "per cent", 0.5, 30.0
    ),
    "real_wage_growth": _growth("Growth of real wages"),
    "inflation": _growth("Growth of the consumer price index"),
}
PRICES = "consumer_price_index"
FACT_SERIES: dict[str, FactSeries] = {
    PRICES: FactSeries("Consumer price index, annual mean", "1980 = 100", 1.0, 1e6, steady=True),
    **MACRO_SERIES,
    "nominal_wage_growth": _growth("Growth of nominal wages"),
    **TAX_SERIES,
}
