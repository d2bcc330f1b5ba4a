"""The register's parameters, one dataclass per mechanism.

A comment gives unit and source of each value. A comment above a group of fields applies to all of
them, up to the next blank line. Marks:

- [V] read in a public source
- [M] from the literature by memory (a target band, not a quotation)
- [C] set so that the simulated moments fall near [V] and [M] figures
- [assumed] no source; the note says what the value does

"Per 1.0 of rise" is the effect of a rise of the unemployment rate by 1.0, that is by 100 points; a
rise by one point has a hundredth of it.

No value was chosen by looking at a forecasting model's score.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saga.register.simulation.benefit_parameters import BenefitParameters
from saga.register.simulation.career_parameters import CareerParameters
from saga.register.simulation.curves import Steps
from saga.register.simulation.population_parameters import PopulationParameters


@dataclass(frozen=True)
class EconomyParameters:
    """Future macro process, and the flows that a given unemployment rate implies (a year)."""

    # Process after 2022: two-state recession regime, mean-reverting unemployment, real wages,
    # inflation. Long-run means: unemployment about 7.5 % (mean 2000-2022 [V]), real wage growth
    # 1.3 % (2010-19: 1.2 % [V]), inflation 2 % (the central bank's target [V]).
    recession_start: float = 0.09  # three downturns (1991, 2008, 2020) in 33 years [V]
    recession_end: float = 0.45  # mean length just above two years, as 1991-93 and 2008-09 [V]
    # Rise of unemployment a year in a downturn; 1991-93: .025, 2009: .021, 2020: .016 [V].
    recession_rise: float = 0.017
    unemployment_mean: float = 0.068  # without downturns, which raise it to about 7.5 % [C]
    unemployment_reversion: float = 0.28  # of the gap to the mean [assumed]
    unemployment_momentum: float = 0.30  # of the last change [assumed]
    unemployment_sd: float = 0.005  # of its innovation [assumed]
    unemployment_floor: float = 0.025  # lowest rate [assumed]
    growth_mean: float = 0.013  # of real wages [V]
    growth_on_unemployment: float = -0.35  # of wage growth, per 1.0 of rise [assumed]
    growth_on_inflation: float = -0.45  # wages lag surprising prices, as in 2022 [V]
    growth_sd: float = 0.009  # of its innovation [assumed]
    inflation_mean: float = 0.02  # the central bank's target [V]
    inflation_persistence: float = 0.55  # of the gap to the mean [assumed]
    inflation_on_unemployment: float = -0.20  # of inflation, per 1.0 of rise [assumed]
    inflation_sd: float = 0.009  # of its innovation [assumed]

    # Before 1990 (only for the years before the panel): the averages of 1970-89.
    past_unemployment: float = 0.022  # [M]
    past_growth: float = 0.005  # 1970-95: 0.5 % a year [V]
    past_inflation: float = 0.078  # 1980-89 [V]

    # Part of unemployment's movements that reaches jobs and pay; 0: no cycle [assumed].
    felt: float = 1.0
    # Nominal interest follows inflation with a lag.
    past_real_interest: float = 0.03  # above inflation before 1990 [assumed]
    interest_persistence: float = 0.75  # weight of last year's interest [assumed]
    real_interest: float = 0.012  # above inflation in the long run [assumed]

    # Flows: job finding falls with unemployment, and job loss solves u' = u (1 - f) + (1 - u) s.
    finding_at_two: float = 0.775  # of the newly unemployed when unemployment is 2 % [C]
    finding_slope: float = 2.3  # fall of that share for a rise of unemployment by 1.0 [C]
    finding_reference: float = 0.02  # unemployment at which `finding_at_two` applies [assumed]
    finding_floor: float = 0.35  # smallest job finding [assumed]
    finding_ceiling: float = 0.85  # largest job finding [assumed]
    loss_floor: float = 0.008  # smallest job loss [assumed]
    # Share of this loss that hits persons at work; the rest are entrants without a job [C].
    loss_scale: float = 0.42


@dataclass(frozen=True)
class LabourMarketParameters:
    """Employers, and how education leads to occupations and industries."""

    employers_per_industry: int = 120  # in each industry [assumed]
    employer_size_shift: float = 0.4  # log persons below the size of industries.csv [assumed]
    employer_size_sd: float = 1.2  # of log size within an industry [assumed]
    employer_effect_sd: float = 0.07  # of the log pay premium; AKM decompositions: near .08 [M]
    employer_effect_by_size: float = 0.012  # log pay per log person [assumed]
    employer_effect_reference: float = 4.5  # log persons of an employer without premium [assumed]
    colleague_mix_sd: float = 0.12  # sd of colleagues' log pay, without the premium [assumed]
    largest_employer: float = 40.0  # times the median: weight of the largest in hiring [assumed]
    closing_share: float = 0.25  # share of employers that close, times job loss [assumed]
    # Multiplier by size: `smallest - size_slope x log persons`, at least the floor.
    closing_smallest: float = 2.2  # [assumed]
    closing_size_slope: float = 0.28  # [assumed]
    closing_floor: float = 0.25  # [assumed]

    # Weight of an occupation in a new job.
    underqualified: float = 1.9  # fall of log weight per level of education too low [assumed]
    overqualified: float = 1.05  # fall of log weight per level of education too high [assumed]
    field_match: float = 7.0  # multiplier if the field of education fits [assumed]
    new_managers: float = 0.25  # multiplier of managers' occupations [assumed]
    industry_spill: float = 0.002  # weight of industries other than the occupation's [assumed]
    trend_reference_year: int = 2005  # industries have the sizes of industries.csv [assumed]
    last_trend_year: int = 2030  # industries keep their sizes from then on [assumed]


@dataclass(frozen=True)
class EducationParameters:
    """Shares of final attainment by birth year and sex; timing of study."""

    # Final attainment at these birth years. Long tertiary (3 years or more): 1945 17/15 ... 1985
    # 43/29 [M]; the 2019 table for 20-64 in all: women 32, men 21.5 % [V].
    cohorts: tuple[int, ...] = (1926, 1935, 1945, 1955, 1965, 1975, 1985, 1995)
    long_women: tuple[float, ...] = (0.07, 0.10, 0.17, 0.22, 0.225, 0.335, 0.485, 0.48)
    long_men: tuple[float, ...] = (0.08, 0.11, 0.15, 0.17, 0.16, 0.228, 0.28, 0.295)
    short_women: tuple[float, ...] = (0.05, 0.07, 0.11, 0.18, 0.165, 0.165, 0.195, 0.19)
    short_men: tuple[float, ...] = (0.05, 0.07, 0.10, 0.155, 0.155, 0.16, 0.175, 0.18)

    # Compulsory only: 1945 35, 1955 20, 1965 12, 1975 9, 1985 10 % [M]; women less, men more after
    # 1960 (2019 table [V]).
    compulsory_women: tuple[float, ...] = (0.64, 0.52, 0.35, 0.19, 0.10, 0.075, 0.11, 0.14)
    compulsory_men: tuple[float, ...] = (0.60, 0.50, 0.35, 0.21, 0.14, 0.115, 0.15, 0.18)

    ability_correlation: float = 0.28  # of attained education with ability [C]
    upper_secondary_years: int = 3  # length of study [assumed]
    # Of those with compulsory school only, the share who try upper secondary school:
    # `(birth year - first) / years`, within bounds; after 1970 nearly all do [assumed].
    dropout_first: int = 1950
    dropout_years: int = 30
    dropout_bounds: tuple[float, float] = (0.1, 0.95)

    tertiary_first_age: int = 19  # earliest start in years [assumed]
    tertiary_last_start: int = 38  # latest planned start, age in years [assumed]
    tertiary_start_spread: float = 2.6  # mean years from the earliest start to the plan [assumed]
    tertiary_before: int = 45  # age in years from which nobody starts [assumed]
    tertiary_enrolment: float = 0.6  # share a year who start when their age has come [assumed]
    tertiary_years: tuple[int, int] = (3, 5)  # length of study, short and long [assumed]

    # Share a year who go back to school, doubled in 1997-2002 (Knowledge Lift [M]).
    adult_return: float = 0.012
    adult_ages: tuple[int, int] = (21, 45)
    knowledge_lift: Steps = ((0, 1.0), (1997, 2.0), (2003, 1.0))

    adult_by_work: tuple[float, float] = (2.2, 0.5)  # multiplier: jobless, employed [assumed]
    adult_by_age: Steps = ((0, 1.4), (31, 0.7))  # multiplier [assumed]


@dataclass(frozen=True)
class SelfEmploymentParameters:
    """Firms of the self-employed."""

    # About a tenth of men at work and a twentieth of women have one; median yield well below an
    # employee's pay [M]; set to it [C].
    start: tuple[float, float] = (0.0080, 0.0047)  # share of employees a year, men and women
    stop: float = 0.075  # share of firms a year
    level: float = -0.37  # log yield, relative to the pay of a similar employee
    start_sd: float = 0.51  # of the first log yield
    persistence: float = 0.865  # of log yield
    shock_sd: float = 0.22  # of its innovation
    transitory_sd: float = 0.12  # of its transitory part

    start_by_age: Steps = ((0, 0.4), (25, 0.8), (35, 1.2))  # multiplier [assumed]
    start_of_hired: float = 3.0  # multiplier if the job is new [assumed]


@dataclass(frozen=True)
class RecordParameters:
    """What the register does not record (shares of table cells)."""

    occupation_missing: float = 0.06  # SSYK coverage about 94-95 % of employees [M]
    occupation_from: int = 2001  # first year with occupations [V]
    # Occupations come from samples among small employers: half of the missing cells are theirs.
    occupation_missing_by_size: Steps = ((0, 2.0), (20, 0.85))  # multiplier, by persons [assumed]
    earnings_missing: float = 0.002  # share of income statements not delivered [assumed]
    capital_from: int = 1991  # first year with capital income [assumed]
    education_missing_native: float = 0.006  # [assumed]
    # Foreign-born in their first years in the country; 2.8 % of all in 2019 [V].
    education_missing_new: float = 0.35
    education_new_years: int = 4  # years in the country [assumed]
    education_new_age: int = 18  # age in years at entry above which it can be unknown [assumed]
    # The new register raised levels: before it, some long degrees were recorded as short ones [V];
    # the share [C].
    education_break: int = 2000
    education_understated: float = 0.20

    workplace_missing: float = 0.025  # share of rows without workplace [assumed]
    hours_missing: float = 0.04  # share of rows without working time [assumed]
    late_last_year: float = 0.05  # no capital or employer in the last year [assumed]
    # Dwelling register; before it, only couples with common children are seen [V].
    cohabitants_from: int = 2011

    full_time_from: float = 0.95  # hours relative to full time that count as full time [assumed]
    # Mean earnings of colleagues, who work part of the year and part time, over full-time pay.
    colleague_earnings: float = 0.80  # [assumed]
    colleague_noise: float = 0.04  # sd of its log from year to year [assumed]
    employer_size_noise: float = 0.06  # sd of log size from year to year [assumed]


@dataclass(frozen=True)
class Parameters:
    """All parameters of the register."""

    economy: EconomyParameters = field(default_factory=EconomyParameters)
    population: PopulationParameters = field(default_factory=PopulationParameters)
    education: EducationParameters = field(default_factory=EducationParameters)
    careers: CareerParameters = field(default_factory=CareerParameters)
    self_employment: SelfEmploymentParameters = field(default_factory=SelfEmploymentParameters)
    benefits: BenefitParameters = field(default_factory=BenefitParameters)
    records: RecordParameters = field(default_factory=RecordParameters)
    labour_market: LabourMarketParameters = field(default_factory=LabourMarketParameters)
