"""Parameters of migration, death and family; marks as in `parameters`.

Rates and shares are a year and fractions.
"""

from __future__ import annotations

from dataclasses import dataclass

from saga.register.simulation.curves import Knots, Steps


@dataclass(frozen=True)
class DeathParameters:
    """Gompertz death rates."""

    # Log rate at 40 in 2010, men and women, and slope over age: life tables, men .0011 at 40 and
    # .011 at 64 [M].
    death_level: tuple[float, float] = (-6.80, -7.40)
    death_slope: tuple[float, float] = (0.0955, 0.1010)
    death_reference_age: int = 40
    death_trend: float = -0.016  # of the log rate, a year
    death_reference_year: int = 2010

    # Multiplier by education: a gradient of the size found in Nordic registers [M].
    death_by_education: tuple[float, ...] = (1.5, 1.1, 0.85, 0.65)
    death_health: float = 0.25  # of the log rate, per standard deviation of bad health [assumed]
    death_disabled: float = 0.9  # rise of the log rate, disabled [assumed]
    death_jobless: float = 0.35  # rise of the log rate, unemployed or outside [assumed]


@dataclass(frozen=True)
class MigrationParameters:
    """Cohorts, immigration, emigration and moves between counties."""

    female_share: float = 0.492  # of a cohort [assumed]
    # Immigration: persons per year relative to one native cohort, spread over ages; foreign-born
    # 20 % of the population in 2022 [M].
    immigration: float = 1.0  # scale of the flows
    immigration_age_mean: float = 27.0
    immigration_age_sd: float = 12.0
    # By year, relative to about 100,000 births: migration statistics, rounded [M].
    immigration_flow: Knots = (
        (1945, 0.08), (1955, 0.12), (1968, 0.26), (1972, 0.16), (1983, 0.14), (1989, 0.32),
        (1993, 0.38), (1996, 0.20), (2001, 0.30), (2006, 0.54), (2012, 0.62), (2016, 0.95),
        (2019, 0.68), (2022, 0.54),
    )  # fmt: skip

    immigration_first_year: int = 1945  # earlier immigrants are counted as natives [assumed]
    # A cohort with more possible years of entry than this has all its immigrants [assumed].
    immigration_whole_years: int = 56
    # Share of arrivals of working age who look for work at once, by region of birth; the others
    # learn the language first [assumed].
    seek_at_arrival: tuple[float, ...] = (0.9, 0.9, 0.85, 0.5, 0.35, 0.7, 0.6, 0.35)
    arrival_school_age: int = 19  # older arrivals have finished their education [assumed]
    arrival_work_age: int = 20  # age in years from which experience abroad counts [assumed]
    arrival_experience: float = 0.5  # years of experience per year abroad [assumed]

    emigration_native: float = 0.0020  # share of natives a year [assumed]
    emigration_young: float = 0.0060  # more at `emigration_young_ages` [assumed]
    emigration_young_ages: tuple[int, int] = (19, 33)  # years [assumed]
    # First five years, by region of birth [M].
    emigration_foreign: tuple[float, ...] = (0.0, 0.045, 0.040, 0.012, 0.010, 0.050, 0.020, 0.012)
    emigration_by_stay: Steps = ((0, 1.0), (5, 0.45), (12, 0.2))  # foreign: multiplier [assumed]
    # Natives: multiplier `at_compulsory + by_level x level of education`.
    emigration_at_compulsory: float = 0.7  # [assumed]
    emigration_by_level: float = 0.3  # [assumed]
    emigration_with_children: float = 0.4  # multiplier [assumed]
    emigration_by_age: Steps = ((0, 1.0), (51, 0.3))  # multiplier [assumed]
    temporary_share: float = 0.45  # of the natives who leave, for a time only [assumed]
    temporary_share_foreign: float = 0.25  # of the foreign-born who leave [assumed]
    temporary_return: float = 0.55  # of those abroad for a time who return [assumed]

    # Moves between counties at 20; they fall with age [M].
    county_move_at_20: float = 0.055
    county_move_fall: float = 0.085  # of the log rate, a year of age
    county_move_reference_age: int = 20

    county_move_by_age: Steps = ((0, 0.25), (19, 1.0))  # multiplier [assumed]
    county_move_with_children: float = 0.6  # multiplier [assumed]
    county_move_by_plan: tuple[float, float] = (0.8, 1.4)  # multiplier: others, tertiary [assumed]
    county_pull_age: int = 30  # age in years up to which large cities attract movers [assumed]


@dataclass(frozen=True)
class UnionParameters:
    """Unions: formation, marriage, separation, widowhood; the partner's work and earnings."""

    union_first_age: int = 18  # age in years from which unions begin [assumed]
    partner_peak: float = 0.17  # rate of a first union at the peak age [assumed]
    union_peak_age: tuple[float, float] = (26.0, 24.0)  # men, women, from 1990 on [assumed]
    # Years by which the peak was earlier [assumed].
    union_earlier: Knots = ((1970, 3.0), (1990, 0.0))
    union_width: tuple[float, float] = (4.0, 9.0)  # years, before and after the peak [assumed]
    union_late: float = 0.015  # extra rate up to `union_late_before` [assumed]
    union_late_before: int = 50  # age in years [assumed]
    union_ability: float = 0.10  # of the log rate [assumed]
    union_attachment: float = 0.15  # of the log rate [assumed]
    repartnering: float = 0.09  # rate of a later union [assumed]
    repartnering_fall: float = 0.05  # of the log rate, a year beyond `repartnering_age` [assumed]
    repartnering_age: int = 40  # age in years [assumed]
    marriage: float = 0.07  # share a year of cohabitants without children [assumed]
    marriage_with_children: float = 0.10  # share a year of cohabitants with children [assumed]
    separation_cohabiting: float = 0.055  # share of cohabitants a year [assumed]
    separation_married: float = 0.016  # share of spouses a year [assumed]
    separation_fall: float = 0.03  # of the log rate, a year beyond `separation_age` [assumed]
    separation_age: int = 35  # age in years [assumed]
    children_leave: tuple[float, float] = (0.62, 0.22)  # men, women without custody [assumed]
    # Death of the partner: log rate at the reference age, slope, multiplier of men and women.
    partner_death_level: float = -9.3  # [assumed]
    partner_death_slope: float = 0.095  # [assumed]
    partner_death_age: int = 20  # [assumed]
    partner_death_by_sex: tuple[float, float] = (0.8, 1.8)  # [assumed]

    assortative: float = 0.35  # correlation of spouses' earnings levels [M]
    assortative_education: float = (
        0.5  # weight of a level of education, that of ability is 1 [assumed]
    )
    partner_level_sd: float = 0.19  # of the partner's lasting log pay [assumed]
    partner_start_sd: float = 0.15  # of the partner's first shock [assumed]
    partner_persistence: float = 0.95  # of the partner's shock [assumed]
    partner_shock_sd: float = 0.09  # of the innovation of the partner's shock [assumed]
    partner_works_at_start: float = 0.82  # share of new partners at work [assumed]
    partner_loss: float = 0.9  # the partner's, times the economy's job loss [assumed]
    partner_exit_by_age: Steps = ((0, 0.03), (57, 0.10))  # further exits from work [assumed]
    partner_finding: float = 0.45  # the partner's, times the economy's job finding [assumed]
    partner_finding_by_age: Steps = ((0, 1.0), (55, 0.5))  # multiplier [assumed]
    partner_shift: float = 0.02  # log pay below that of the reference person [assumed]
    partner_experience_gain: float = 0.28  # log pay [assumed]
    partner_experience_years: float = 9.0  # years over which two thirds of it come [assumed]
    partner_first_age: int = 19  # age in years at which the gain begins [assumed]
    wife_gap: float = 0.24  # log pay of a female partner below a male one's [assumed]
    # Earnings of a female partner by age of the youngest child, relative to none [assumed].
    wife_by_child_age: Steps = ((0, 0.45), (1, 0.62), (3, 0.84), (12, 1.0))


@dataclass(frozen=True)
class BirthParameters:
    """Births by parity, and parental leave."""

    # Age at first birth 24 (1970), 26 (1990), 29.5 (2020) [M]; childless at 45: women 12.5-14.3 %,
    # men at 55 17.6-20.7 % [V].
    first_birth_age: tuple[float, float, float] = (24.0, 26.0, 29.5)
    first_birth_years: tuple[int, int, int] = (1970, 1990, 2020)
    first_birth_sd: float = 5.6  # years
    first_birth_peak: float = 0.21
    father_lag: float = 2.4  # years

    first_birth_width: tuple[float, float] = (0.8, 1.15)  # of the sd, before and after it [assumed]
    by_education: tuple[float, ...] = (-2.5, -1.0, 0.8, 2.4)  # years on the age at first birth [M]
    # Rate of a second birth by years since the first [assumed].
    second_birth: tuple[float, ...] = (
        0.01, 0.13, 0.31, 0.26, 0.16, 0.10, 0.07, 0.05, 0.03, 0.02,
    )  # fmt: skip
    third_scale: float = 0.30  # third birth: times the rate of the second [assumed]
    fourth_scale: float = 0.22  # fourth birth: times the rate of the third [assumed]
    never_wants: tuple[float, float] = (0.125, 0.055)  # men, women without a wish for children [C]
    birth_ages: tuple[int, int] = (18, 52)  # first and last age, years [assumed]
    birth_end_age: tuple[float, float] = (52.0, 44.0)  # men, women: the rate is 0 [assumed]
    birth_end_years: float = 8.0  # years over which the rate falls to 0 [assumed]
    birth_in_union: tuple[float, float] = (0.12, 1.65)  # multiplier: single, in a union [assumed]
    birth_foreign: float = 1.15  # multiplier of those born outside Europe [assumed]

    # Parental leave, mean weeks a child in 1990, 2005 and 2022 (days paid, [M]).
    mother_leave: tuple[float, float, float] = (60.0, 55.0, 42.0)
    father_leave: tuple[float, float, float] = (4.0, 8.0, 14.0)
    leave_years: tuple[int, int, int] = (1990, 2005, 2022)

    mother_leave_sd: float = 0.25  # relative to the mean [assumed]
    mother_leave_bounds: tuple[float, float] = (0.3, 1.9)  # relative to the mean [assumed]
    father_leave_longest: float = 40.0  # weeks [assumed]
    father_first_weeks: float = 2.0  # weeks taken at the birth [assumed]
    father_first_share: float = 0.2  # of his leave that falls in the year of birth [assumed]


@dataclass(frozen=True)
class FamilyParameters(BirthParameters, UnionParameters):
    """All parameters of families."""


@dataclass(frozen=True)
class PopulationParameters(FamilyParameters, MigrationParameters, DeathParameters):
    """All parameters of the population."""
