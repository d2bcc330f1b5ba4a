"""Parameters of benefits, pensions and capital.

The rules are outlines, from memory. Base amounts are the price base amounts of the year. The module
`parameters` explains the marks.
"""

from __future__ import annotations

from dataclasses import dataclass

from saga.register.simulation.curves import Knots, Steps


@dataclass(frozen=True)
class InsuranceParameters:
    """Sickness, parental and unemployment insurance: rates and ceilings by year."""

    generosity: float = 1.0  # scale of all benefits; 0 switches them off [assumed]
    usual_pay_unknown: float = 12.0  # log usual yearly pay of those who never had any [assumed]

    # Sickness benefit: share of usual pay up to the ceiling (base amounts); the employer pays the
    # first weeks [M].
    sickness_rate: Steps = ((0, 0.9), (1993, 0.8))
    sickness_ceiling: Steps = ((0, 7.5), (2018, 8.0), (2022, 10.0))
    sickness_waiting: Steps = ((0, 0.2), (1992, 2.0))  # weeks

    # Parental benefit: share of usual pay up to the ceiling (base amounts), or the flat amount
    # (SEK a day, indexed to prices after 2022) [M].
    parental_rate: Steps = ((0, 0.9), (1995, 0.75), (1998, 0.78))
    parental_ceiling: Steps = ((0, 7.5), (2007, 10.0))
    parental_flat: Steps = ((0, 60.0), (2002, 180.0), (2013, 250.0))

    parental_experience: float = 0.8  # years of work that entitle to the rate [assumed]
    parental_drawn: float = 0.8  # share of the days of leave for which benefit is drawn [assumed]

    insured: float = 0.61  # share in an unemployment insurance fund [M], adjusted to benefits [C]
    # Unemployment benefit: share of usual pay up to a daily ceiling (SEK) [M].
    unemployment_rate: Steps = ((0, 0.9), (1993, 0.8))
    unemployment_ceiling: Knots = (
        (1990, 495), (1997, 580), (2001, 580), (2002, 680), (2014, 680), (2015, 910), (2019, 910),
        (2020, 1200),
    )  # fmt: skip

    unemployment_later: float = 0.75  # multiplier of the rate after a year [assumed]
    unemployment_basic: float = 0.22  # of the ceiling, for those not insured [assumed]
    unemployment_experience: float = 0.7  # years of work that entitle [assumed]
    unemployment_longest: int = 5  # years of unemployment after which nothing is paid [assumed]
    unemployment_waiting: float = 1.0  # weeks [assumed]


@dataclass(frozen=True)
class PensionParameters:
    """Disability, old-age and widows' pensions."""

    # Share of usual pay. The rule is 64 % of an assessed income, which is below usual pay [M]; the
    # value is adjusted [C].
    disability_rate: float = 0.42
    disability_ceiling: float = 7.5  # base amounts of usual pay
    disability_guarantee: float = 1.85  # base amounts

    disability_experience: float = 1.0  # years of work that entitle to more [assumed]
    pension_rate: float = 0.42  # early old-age and occupational pension, of usual pay [C]
    pension_ceiling: float = 6.0  # base amounts [assumed]
    work_pension_age: int = 60  # age in years after which some at work draw a pension [assumed]
    work_pension_share: float = 0.04  # by which their share rises with each year [assumed]
    work_pension_rate: float = 0.25  # of usual pay [assumed]
    widow_born_before: int = 1945  # widows' pensions were abolished in 1990 [M]
    widow_age: int = 35  # age in years after which a widow has one [assumed]
    widow_pension: float = 0.9  # base amounts [assumed]


@dataclass(frozen=True)
class SupportParameters:
    """Study aid, child allowance, social assistance and housing supplement, in base amounts."""

    study_aid: Steps = ((0, 0.22), (20, 0.55))  # by age [assumed]
    child_allowance: tuple[float, float] = (0.05, 0.27)  # for each child: men, women [assumed]
    assistance_age: int = 20  # age in years from which it is paid [assumed]
    assistance_income: float = 1.6  # household income below which it is paid [assumed]
    # Share of the entitled who apply: born in the EU, born outside it [assumed].
    assistance_use: tuple[float, float] = (0.3, 0.6)

    assistance_least: float = 0.4  # smallest amount [assumed]
    assistance_range: float = 1.2  # largest amount less the smallest one [assumed]
    housing_ages: tuple[int, int] = (19, 28)  # ages at which it is paid without children [assumed]
    housing_base: float = 0.25  # amount without what follows [assumed]
    housing_by_child: float = 0.17  # more for each of the first three children [assumed]
    housing_disabled: float = 0.45  # more for disabled persons [assumed]
    housing_free_income: float = 2.6  # household income above which it falls [assumed]
    housing_taper: float = 0.2  # fall per SEK of income above that [assumed]
    housing_least: float = 0.03  # smallest amount that is paid [assumed]
    # Share of the entitled who apply: disabled, with children, others [assumed].
    housing_use: tuple[float, float, float] = (0.6, 0.65, 0.2)


@dataclass(frozen=True)
class CapitalParameters:
    """Wealth, mortgages and capital income; SEK at the wage level of 2022."""

    wealth_growth: float = 0.01  # log, a year [assumed]
    wealth_sd: float = 0.12  # log, a year [assumed]
    wealth_return: float = 0.022  # paid out a year [assumed]
    saving: float = 0.035  # of earnings [assumed]
    saving_by_slope: float = 0.5  # rise of log saving per sd of individual growth [assumed]
    saving_slope_sd: float = 0.0055  # that sd [assumed]
    house_purchase: tuple[float, float] = (0.035, 0.13)  # a year: single, in a union [assumed]
    house_ages: tuple[int, int] = (25, 49)  # years [assumed]
    house_earnings: float = 120_000.0  # least earnings, SEK at the wage level of 2022 [assumed]
    mortgage_size: float = 1.8  # times earnings [assumed]
    mortgage_remaining: float = 0.965  # share left after a year [assumed]
    mortgage_least: float = 30_000.0  # SEK; less is paid off at once [assumed]
    gain_share: float = 0.055  # share of persons with a capital gain in a year [assumed]
    gain_size: float = 0.12  # smallest gain, share of wealth [assumed]
    gain_tail: float = 0.6  # exponent of the Pareto tail of gains [assumed]
    gain_largest: float = 40.0  # times the smallest gain [assumed]


@dataclass(frozen=True)
class BenefitParameters(
    CapitalParameters, SupportParameters, PensionParameters, InsuranceParameters
):
    """All parameters of benefits and capital."""
