"""The register's parameters, one dataclass a module, with the source of each value beside it.

Marks: [V] read in a public source, [M] from the literature by memory (a target band, not a quotation), [C] set so that the
simulated moments fall near [V] and [M] figures. No value was chosen by looking at a forecasting model's score.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class EconomyParameters:
    """Future macro process and the flows that a given unemployment rate implies (fractions a year)."""

    # Annual law of motion after 2022: two-state recession regime, mean-reverting unemployment, real wages, inflation.
    # Long-run means: unemployment about 7.5 % (mean 2000-2022 [V]), real wage growth 1.3 % (2010-19: 1.2 % [V]), inflation 2 %
    # (the central bank's target [V]).
    recession_start: float = 0.09  # three downturns (1991, 2008, 2020) in 33 years [V]
    recession_end: float = 0.45  # mean length just above two years, as 1991-93 and 2008-09 [V]
    recession_rise: float = (
        0.017  # points of unemployment a year in a downturn; 1991-93: 2.5, 2009: 2.1, 2020: 1.6 [V]
    )
    unemployment_mean: float = 0.068
    unemployment_reversion: float = 0.28
    unemployment_momentum: float = 0.30
    unemployment_sd: float = 0.005
    growth_mean: float = 0.013
    growth_on_unemployment: float = -0.35
    growth_on_inflation: float = -0.45  # nominal wages lag a price surprise: 2022 [V]
    growth_sd: float = 0.009
    inflation_mean: float = 0.02
    inflation_persistence: float = 0.55
    inflation_on_unemployment: float = -0.20
    inflation_sd: float = 0.009
    # Before 1990 (burn-in of lives only): the 1970-89 averages.
    past_unemployment: float = 0.022
    past_growth: float = 0.005  # 1970-95: 0.5 % a year [V]
    past_inflation: float = 0.078  # 1980-89 [V]
    felt: float = 1.0  # part of unemployment's movements around its mean that reaches jobs and pay: 0 is a world without cycles
    # Flow accounting: job finding falls with unemployment, job loss closes the identity u' = u (1 - f) + (1 - u) s.
    finding_at_two: float = (
        0.775  # yearly exit probability of the newly unemployed when unemployment is 2 % [C]
    )
    finding_slope: float = (
        2.3  # fall of that probability for a rise of unemployment by 1.0 (100 points) [C]
    )
    finding_floor: float = 0.35
    loss_floor: float = 0.008
    loss_scale: float = (
        0.42  # part of all job separations that end in unemployment and are not entrants' [C]
    )


@dataclass(frozen=True)
class PopulationParameters:
    """Cohorts, migration, death and family (hazards a year)."""

    # Gompertz death hazards, log hazard at 40 in 2010 and slope over age: life tables, men .0011 at 40 and .011 at 64 [M].
    death_level: tuple[float, float] = (-6.80, -7.40)  # men, women
    death_slope: tuple[float, float] = (0.0955, 0.1010)
    death_trend: float = -0.016
    death_by_education: tuple[float, ...] = (
        1.5,
        1.1,
        0.85,
        0.65,
    )  # gradient of the size found in Nordic registers [M]
    # Immigration: persons a year relative to one native cohort, spread over ages; foreign-born 20 % of the population in 2022 [M].
    immigration: float = 1.0  # scale of the flows
    immigration_age_mean: float = 27.0
    immigration_age_sd: float = 12.0
    emigration_native: float = 0.0020
    emigration_young: float = 0.0060  # extra, natives 19-33
    emigration_foreign: tuple[float, ...] = (
        0.0,
        0.045,
        0.040,
        0.012,
        0.010,
        0.050,
        0.020,
        0.012,
    )  # first five years, by region [M]
    temporary_share: float = 0.45
    temporary_return: float = 0.55
    county_move_at_20: float = 0.055  # between counties; falls with age [M]
    county_move_fall: float = 0.085
    # Families: first-birth age 24 (1970), 26 (1990), 29.5 (2020) [M]; childless at 45: women 12.5-14.3 %, men at 55 17.6-20.7 % [V].
    first_birth_age: tuple[float, float, float] = (24.0, 26.0, 29.5)
    first_birth_sd: float = 5.6
    first_birth_peak: float = 0.21
    father_lag: float = 2.4
    by_education: tuple[float, ...] = (-2.5, -1.0, 0.8, 2.4)  # years on the age at first birth [M]
    second_birth: tuple[float, ...] = (
        0.01,
        0.13,
        0.31,
        0.26,
        0.16,
        0.10,
        0.07,
        0.05,
        0.03,
        0.02,
    )  # by years since the first
    third_scale: float = 0.30
    fourth_scale: float = 0.22
    never_wants: tuple[float, float] = (0.125, 0.055)  # men, women [C]
    partner_peak: float = 0.17
    marriage: float = 0.07
    marriage_with_children: float = 0.10
    separation_cohabiting: float = 0.055
    separation_married: float = 0.016
    repartnering: float = 0.09
    assortative: float = 0.35  # correlation of spouses' earnings levels [M]
    # Parental leave, mean weeks a child in 1990, 2005 and 2022 (days paid, [M]).
    mother_leave: tuple[float, float, float] = (60.0, 55.0, 42.0)
    father_leave: tuple[float, float, float] = (4.0, 8.0, 14.0)


@dataclass(frozen=True)
class EducationParameters:
    """Shares of final attainment by birth year and sex; timing of study."""

    cohorts: tuple[int, ...] = (1926, 1935, 1945, 1955, 1965, 1975, 1985, 1995)
    # Long tertiary (3 years or more): 1945 17/15 ... 1985 43/29 [M]; the 2019 table for 20-64 in all: women 32, men 21.5 % [V].
    long_women: tuple[float, ...] = (0.07, 0.10, 0.17, 0.22, 0.225, 0.335, 0.485, 0.48)
    long_men: tuple[float, ...] = (0.08, 0.11, 0.15, 0.17, 0.16, 0.228, 0.28, 0.295)
    short_women: tuple[float, ...] = (0.05, 0.07, 0.11, 0.18, 0.165, 0.165, 0.195, 0.19)
    short_men: tuple[float, ...] = (0.05, 0.07, 0.10, 0.155, 0.155, 0.16, 0.175, 0.18)
    # Compulsory only: 1945 35, 1955 20, 1965 12, 1975 9, 1985 10 % [M]; women less, men more after 1960 (2019 table [V]).
    compulsory_women: tuple[float, ...] = (0.64, 0.52, 0.35, 0.19, 0.10, 0.075, 0.11, 0.14)
    compulsory_men: tuple[float, ...] = (0.60, 0.50, 0.35, 0.21, 0.14, 0.115, 0.15, 0.18)
    ability_correlation: float = 0.28  # of attainment with the earnings level [C]
    tertiary_start_spread: float = 2.6  # years after 19
    adult_return: float = 0.012  # share a year of 21-40 who go back to school, twice that in 1997-2002 (Knowledge Lift [M])


@dataclass(frozen=True)
class CareerParameters:
    """Labour states, wages and shocks. Logs unless said otherwise."""

    base: float = 13.111  # log full-time yearly pay of the reference person at the wage level of 2022 (SEK) [C]
    education_premium: tuple[float, ...] = (
        -0.03,
        0.0,
        0.0,
        0.0,
    )  # within occupation; +25 % tertiary in all [V]
    tertiary_rise: float = (
        0.07  # of the tertiary premium from 1992 to 2001 [V that it rose; size C]
    )
    experience_gain: tuple[float, ...] = (0.21, 0.25, 0.28, 0.32)
    experience_years: float = 9.0
    late_decline: float = 0.004  # a year of experience beyond 28
    # Women in 2010 beyond jobs, experience and care: with these the raw full-time gap is near the 10 % of 2022 [V]; larger before.
    women: float = 0.05  # 2010
    women_trend: float = 0.0042  # a year to 2022
    region_gap: tuple[float, ...] = (0.0, -0.03, -0.06, -0.13, -0.17, -0.03, -0.12, -0.15)
    region_assimilation: float = (
        12.0  # years over which two thirds of the entry gap (1.6 x the lasting one) closes [M]
    )
    ability_sd: tuple[float, float] = (
        0.212,
        0.174,
    )  # men, women: men's earnings are more unequal, most at the top (SCB 2020 [V])
    slope_sd: float = 0.0043  # of the yearly growth rate: heterogeneous profiles (Guvenen 2009) [C]
    slope_correlation: float = 0.35
    # Pareto top: log pay above `top_start` is stretched quadratically; a Gaussian tail so becomes exponential in logs, that is
    # Pareto, with index about 1 / (2 top_stretch sd^2). Top-1 % mean over P90 is 3.34 in 2020 [V].
    top_start: float = 0.395
    top_stretch: float = 2.1
    # Pay floors of collective agreements compress the bottom: below `floor_start` a log point of disadvantage costs only
    # `floor_slope`. Full-time P50/P10 is near 1.35 in Sweden against 1.6 at the top (P90/P50) [M].
    floor_start: float = 0.04
    floor_slope: float = 0.71
    # Persistent shock: rho and a two-normal mixture whose weight and mean depend on age, rank and the cycle (GKOS 2021;
    # Busch et al. 2022: skewness is procyclical, variance flat).
    persistence: float = 0.969
    small_shock_sd: float = 0.0285
    large_shock_sd: float = 0.13
    large_shock_share: float = 0.057
    large_shock_mean: float = -0.015
    large_shock_cycle: float = -8.5  # mean, per point (1.0) of rise in unemployment
    large_shock_rise: float = 16.0  # share, relative, per point (1.0) of rise
    # Transitory: overtime, bonus, unpaid days.
    quiet_sd: float = 0.030
    loud_sd: float = 0.34
    loud_share: float = 0.083
    # Scars of job loss: about 10-15 % at first and 5 % after ten years (Jacobson, LaLonde & Sullivan 1993; Eliason & Storrie 2006 [M]).
    scar_loss: float = 0.05
    scar_per_year: float = 0.08
    scar_fade: float = 0.90
    # Child penalty: Sweden about 26 % in the long run (Kleven et al. 2019 [M]); through hours, lost experience and this wage term.
    care_first: float = 0.18
    care_later: float = 0.065
    care_fade: float = 0.995
    # Separation and finding multipliers by education; the cycle hits men, the young and the foreign-born more [V, qualitative].
    cycle_by_industry: float = 1.0  # spread of the industries' sensitivities (structure.INDUSTRY)
    cycle_foreign: float = (
        8.0  # extra relative job loss of the foreign-born per point (1.0) of rise
    )
    loss_by_education: tuple[float, ...] = (1.45, 1.05, 0.80, 0.62)
    loss_foreign: float = 1.6
    loss_young: float = 1.7
    finding_by_education: tuple[float, ...] = (0.75, 1.0, 1.12, 1.2)
    finding_by_region: tuple[float, ...] = (1.0, 0.95, 0.85, 0.62, 0.50, 0.8, 0.68, 0.52)
    activation: float = 0.5  # rise of the outside's finding from 2006 to 2012: tax credits for work, tighter insurance [M]
    duration_dependence: float = 0.175
    to_outside: float = 0.074  # of the unemployed, a year
    outside_finding: float = 0.24
    outside_duration: float = 0.27
    quit_outside: float = 0.0064
    # Disability: era follows inflow into disability pension, high to 2004 and halved by the reform of 2008 [M].
    disability_at_45: float = 0.0046
    disability_slope: float = 0.075
    # Early retirement a year at 55-59, 60-64; higher in the 1990s [M].
    retirement: tuple[float, ...] = (
        0.006,
        0.007,
        0.009,
        0.011,
        0.014,
        0.038,
        0.050,
        0.060,
        0.075,
        0.09,
    )
    sickness_share: tuple[float, float] = (
        0.065,
        0.105,
    )  # men, women with a paid spell in a year [M]
    mother_quit: float = 1.2  # multiplier of leaving work while a child is under seven
    # Part time: share of employees, men and women; more with young children, the very young and in care and retail [M].
    part_time: tuple[float, float] = (0.11, 0.105)
    part_time_fall: float = (
        0.045  # relative, a year to 2010: women's part time fell from over 40 to under 30 % [M]
    )
    part_time_mother: float = 0.19
    # Casual work (summer, extra, odd jobs) of those without a regular job, by state: employed (n/a), unemployed, student, outside,
    # disabled, retired [C]; mean weeks in a year, of students and of others; hours a week relative to full time.
    casual: tuple[float, ...] = (0.0, 0.40, 0.90, 0.18, 0.15, 0.27)
    casual_sex: tuple[float, float] = (
        0.82,
        1.20,
    )  # men, women: young women work more beside school (2015 [V])
    casual_prime: float = 0.50  # relative frequency at 25-54
    casual_weeks: tuple[float, float] = (24.0, 16.0)
    casual_hours: float = 0.42
    job_change_sd: float = 0.06  # of the pay change that comes with a new employer
    job_change_at_25: float = 0.17
    job_change_fall: float = 0.040
    promotion: float = 0.007
    job_premia: float = (
        1.0  # scale of what occupation, industry, county and employer pay beyond the person
    )


@dataclass(frozen=True)
class SelfEmploymentParameters:
    """Firms of one's own: about a tenth of men at work and a twentieth of women; median yield well below an employee's pay [M]."""

    start: tuple[float, float] = (0.0080, 0.0047)  # share of employees a year, men and women
    stop: float = 0.075
    level: float = -0.37  # log, relative to the pay of an employee alike
    start_sd: float = 0.51
    persistence: float = 0.865
    shock_sd: float = 0.22
    transitory_sd: float = 0.12


@dataclass(frozen=True)
class BenefitParameters:
    """Levels of benefits and pensions; the rules by period stand in `benefits`."""

    generosity: float = 1.0  # scale of all of them; 0 switches them off
    insured: float = 0.61  # members of an unemployment insurance fund [M]
    disability_rate: float = 0.42  # of usual pay (64 % of an assessed income that lies below it [M]), up to 7.5 base amounts
    disability_guarantee: float = 1.85  # price base amounts
    pension_rate: float = 0.42  # early old-age and occupational pension, of usual pay
    pension_ceiling: float = 6.0  # price base amounts


@dataclass(frozen=True)
class RecordParameters:
    """What the register fails to hold (shares of cells)."""

    occupation_missing: float = (
        0.06  # SSYK coverage about 94-95 % of employees [M]; none before 2001 [V]
    )
    occupation_from: int = 2001
    earnings_missing: float = 0.002  # statements that never came
    capital_from: int = 1991
    education_missing_native: float = 0.006
    education_missing_new: float = (
        0.35  # foreign-born in their first four years; 2.8 % of all in 2019 [V]
    )
    education_break: int = 2000  # the new register raised levels: before, some long degrees stood as short ones [V]; the share [C]
    education_understated: float = 0.20
    workplace_missing: float = 0.025
    hours_missing: float = 0.04
    late_last_year: float = (
        0.05  # capital and employer cells not yet delivered for the last year of the panel
    )
    cohabitants_from: int = (
        2011  # dwelling register; before, only couples with common children are seen [V]
    )


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
