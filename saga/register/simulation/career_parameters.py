"""Parameters of jobs, hours, absences and pay; marks as in `parameters`.

Rates and shares are fractions of persons in a year; terms of pay are in logs. "Rise" is the change
of joblessness over the year before, and 1.0 of it are 100 percentage points. The factor of a person
is `exp(a ability + b attachment - centre)`; ability, attachment and health are standard normal.
"""

from __future__ import annotations

from dataclasses import dataclass

from saga.register.simulation.curves import Knots, Steps


@dataclass(frozen=True)
class JobLossParameters:
    """Loss of a job: the rate of the economy, multiplied by factors of the job and the person."""

    # Multipliers. Job loss hits the less educated, the young and the foreign-born more [V]; the
    # sizes are [assumed].
    loss_by_education: tuple[float, ...] = (1.45, 1.05, 0.80, 0.62)
    loss_foreign: float = 1.6  # multiplier of those born outside the Nordic countries
    loss_young: float = 1.7  # multiplier below `loss_young_before`

    loss_young_before: int = 25  # age in years [assumed]
    loss_by_age: Steps = ((0, 1.4), (30, 1.0), (58, 1.15))  # multiplier from 25 on [assumed]
    # Multiplier by tenure: `long_tenure + new_job exp(-tenure / tenure_years)`; last in, first out.
    loss_long_tenure: float = 0.55  # [assumed]
    loss_new_job: float = 1.5  # [assumed]
    loss_tenure_years: float = 3.0  # years [assumed]

    cycle_by_industry: float = 1.0  # spread of the industries' sensitivities (industries.csv) [C]
    cycle_foreign: float = 8.0  # extra loss of the foreign-born per 1.0 of rise [assumed]
    loss_cycle: float = 38.0  # log loss per 1.0 of rise, times industry sensitivity - 1 [assumed]
    loss_by_industry: float = 0.35  # of the rate, per industry sensitivity - 1 [assumed]
    # Smallest and largest rise of unemployment that changes the spread of job loss [assumed].
    loss_rise_bounds: tuple[float, float] = (-0.015, 0.035)
    loss_ability: float = 0.22  # fall of log loss per standard deviation of ability [assumed]
    loss_attachment: float = 0.12  # fall of log loss per standard deviation of attachment [assumed]
    loss_centre: float = 0.035  # keeps the mean factor near 1 [assumed]
    loss_ceiling: float = 0.6  # largest rate of a person [assumed]
    loss_at_closing: float = 0.7  # rate in an employer that closes [assumed]


@dataclass(frozen=True)
class JobFindingParameters:
    """Return to work from unemployment and from outside the labour force."""

    finding_by_education: tuple[float, ...] = (0.75, 1.0, 1.12, 1.2)  # multiplier [assumed]
    # Multiplier by region of birth; lower from outside Europe [assumed].
    finding_by_region: tuple[float, ...] = (1.0, 0.95, 0.85, 0.62, 0.50, 0.8, 0.68, 0.52)
    # Multiplier of the hazard by age: falls before retirement [assumed].
    finding_by_age: Steps = ((0, 0.7), (20, 1.1), (25, 1.0), (50, 0.75), (57, 0.45))
    finding_settled_gain: float = 0.3  # rise of the region's multiplier, at most to 1 [assumed]
    finding_settled_years: float = 10.0  # years in the country until the whole rise [assumed]
    finding_ability: float = 0.18  # of the log hazard [assumed]
    finding_attachment: float = 0.25  # of the log hazard [assumed]
    finding_centre: float = 0.05  # keeps the mean factor near 1 [assumed]
    duration_dependence: float = 0.175  # fall of the log hazard a year without work [C]
    duration_cap: int = 6  # years after which the hazard falls no further [assumed]

    to_outside: float = 0.074  # of the unemployed who leave the labour force [C]
    # Factor of that share: `first_year + per_year x years of unemployment`, at most
    # `duration_cap` years.
    to_outside_first_year: float = 0.3  # [assumed]
    to_outside_per_year: float = 0.3  # [assumed]
    to_outside_attachment: float = 0.5  # fall of the log rate [assumed]
    to_outside_centre: float = 0.12  # keeps the mean factor near 1 [assumed]
    outside_finding: float = 0.24  # share of those outside who find work when finding is normal [C]
    outside_finding_reference: float = 0.6  # normal job finding of the economy [assumed]
    outside_duration: float = 0.27  # fall of the log rate a year outside [C]
    # Rise of the outside's finding, spread over some years: tax credits for work and tighter
    # insurance [M]; size [C].
    activation: float = 0.5
    activation_from: int = 2006
    activation_years: float = 6.0
    outside_work_attachment: float = 0.6  # of the log rate [assumed]
    outside_work_centre: float = 0.15  # keeps the mean factor near 1 [assumed]
    outside_work_by_age: Steps = ((0, 1.3), (30, 1.0), (55, 0.4))  # multiplier [assumed]
    outside_work_ceiling: float = 0.6  # largest rate of a person [assumed]
    outside_infant: float = 0.4  # multiplier of mothers of a small child [assumed]
    outside_infant_age: int = 2  # age in years below which a child counts as small [assumed]
    outside_seek: float = 0.12  # share of those outside who begin to look for work [assumed]
    outside_seek_attachment: float = 0.4  # of the log rate [assumed]
    outside_seek_by_age: Steps = ((0, 1.3), (30, 1.0), (55, 0.3))  # multiplier [assumed]
    outside_seek_ceiling: float = 0.3  # largest rate of a person [assumed]

    school_leaving: float = 0.45  # share of the year gone when school ends, in June [assumed]


@dataclass(frozen=True)
class LabourExitParameters:
    """Exits from work: out of the labour force, disability pension, early retirement."""

    quit_outside: float = 0.0064  # of the employed who leave the labour force [C]
    quit_by_age: Steps = ((0, 3.0), (23, 1.0), (60, 1.6))  # multiplier [assumed]
    quit_attachment: float = 0.8  # fall of the log rate [assumed]
    quit_centre: float = 0.3  # keeps the mean factor near 1 [assumed]
    quit_foreign: float = 1.8  # multiplier of those born outside the EU [assumed]
    mother_quit: float = 1.2  # multiplier of mothers of a child below `mother_quit_age` [assumed]
    mother_quit_age: int = 7  # school age in years [assumed]

    # Disability: inflow into disability pension was high up to 2004; the reform of 2008 halved
    # it [M].
    disability_at_45: float = 0.0046  # rate at `disability_reference_age` [C]
    disability_slope: float = 0.075  # of the log rate, a year of age
    disability_reference_age: int = 45
    # Multiplier by year: inflow under the rules of the time [M].
    disability_by_year: Knots = (
        (1990, 1.0), (1993, 1.5), (1998, 0.9), (2004, 1.6), (2006, 1.0), (2009, 0.40), (2022, 0.35),
    )  # fmt: skip

    disability_health: float = 0.85  # of the log rate, per sd of bad health [assumed]
    disability_health_centre: float = 0.36  # keeps the mean factor near 1 [assumed]
    disability_by_education: tuple[float, ...] = (1.5, 1.1, 0.8, 0.5)  # multiplier [assumed]
    disability_by_sex: tuple[float, float] = (0.8, 1.25)  # multiplier, men and women [assumed]
    disability_sick_weeks: float = 13.0  # weeks of sickness that raise the risk [assumed]
    disability_sick: float = 12.0  # multiplier after that many weeks [assumed]
    disability_ceiling_rate: float = 0.6  # largest rate of a person [assumed]
    disability_partial: float = 0.4  # of the employed who keep working at half degree [assumed]
    disability_return: float = 0.010  # of the disabled who return to the labour force [assumed]
    disability_of_unemployed: float = 3.0  # multiplier [assumed]
    disability_of_unemployed_ceiling: float = 0.3  # largest rate of an unemployed person [assumed]
    disability_of_outside: float = 1.5  # multiplier [assumed]
    disability_of_outside_ceiling: float = 0.1  # largest rate of a person outside [assumed]

    # Early retirement a year at 55-59 and 60-64; higher in the 1990s [M].
    retirement: tuple[float, ...] = (
        0.006, 0.007, 0.009, 0.011, 0.014, 0.038, 0.050, 0.060, 0.075, 0.09,
    )  # fmt: skip
    retirement_first_age: int = 55
    # Multiplier by year [M].
    retirement_by_year: Knots = ((1990, 1.1), (1994, 1.6), (1998, 1.4), (2010, 0.55), (2020, 0.45))

    retirement_attachment: float = 0.25  # fall of the log rate of the employed [assumed]
    retirement_of_unemployed: float = 4.0  # multiplier [assumed]
    retirement_of_unemployed_ceiling: float = 0.5  # largest rate [assumed]
    retirement_of_outside: float = 2.0  # multiplier [assumed]


@dataclass(frozen=True)
class JobChangeParameters:
    """New jobs: occupation and industry, moves from job to job, promotions."""

    keep_occupation: float = 0.25  # share who keep the occupation in a new job, at least [assumed]
    keep_occupation_by_experience: float = 0.06  # rise a year of experience [assumed]
    keep_occupation_ceiling: float = 0.8  # largest share [assumed]
    keep_industry: float = 0.55  # of those who keep the occupation, also the industry [assumed]
    new_start_experience: float = 1.5  # years below which the occupation is drawn again [assumed]

    job_change_sd: float = 0.06  # of the log pay change that comes with a new employer [C]
    job_change_gain: float = 0.025  # mean log pay change [assumed]
    job_change_at_25: float = 0.17  # share who change employers at the reference age [assumed]
    job_change_fall: float = 0.040  # of the log rate, a year of age [assumed]
    job_change_reference_age: int = 25  # age in years [assumed]
    job_change_first_age: int = 20  # age in years below which the rate is constant [assumed]
    job_change_cycle: float = 18.0  # relative fall per 1.0 of rise of unemployment [assumed]
    job_change_cycle_bounds: tuple[float, float] = (0.55, 1.3)  # of that factor [assumed]
    # Multiplier by tenure: `long_tenure + new_job exp(-tenure / tenure_years)`.
    job_change_long_tenure: float = 0.6  # [assumed]
    job_change_new_job: float = 0.9  # [assumed]
    job_change_tenure_years: float = 3.0  # years [assumed]

    promotion: float = 0.007  # of employees who become managers [assumed]
    promotion_ability: float = 0.9  # of the log rate [assumed]
    promotion_centre: float = 0.4  # keeps the mean factor near 1 [assumed]
    promotion_by_education: tuple[float, ...] = (0.35, 0.8, 1.2, 1.8)  # multiplier [assumed]
    promotion_experience: float = 6.0  # least years of experience [assumed]
    promotion_before: int = 58  # age in years from which nobody is promoted [assumed]
    promotion_unpaid: float = 0.6  # of the manager's premium that is not paid at once [assumed]
    promotion_reference: float = 0.12  # premium of the occupation left, roughly [assumed]
    manager_stays: float = 0.97  # share of managers who stay managers [assumed]


@dataclass(frozen=True)
class WorkingTimeParameters:
    """Part time and casual work."""

    # Part time: share of employees, men and women; more with young children, among the very young
    # and in care and retail [M]; set to it [C].
    part_time: tuple[float, float] = (0.11, 0.105)
    # Relative, a year up to 2010: women's part time fell from over 40 to under 30 % [M]; size [C].
    part_time_fall: float = 0.045
    part_time_year: int = 2010
    part_time_fall_years: int = 25  # years before `part_time_year` over which it fell

    part_time_mother: float = 0.19  # more after a birth, at the first child's care penalty [C]
    part_time_care_from: float = 0.01  # care penalty from which a mother counts [assumed]
    part_time_care_ceiling: float = 1.2  # largest factor of `part_time_mother` [assumed]
    # Multiplier in other occupations and in those where part time is common (occupations.csv).
    part_time_by_occupation: tuple[float, float] = (0.85, 1.5)  # [assumed]
    part_time_attachment: float = 0.30  # fall of the log share [assumed]
    part_time_ability: float = 0.15  # fall of the log share [assumed]
    # More at some ages [assumed].
    part_time_by_age: Steps = ((0, 0.40), (21, 0.22), (24, 0.10), (27, 0.0), (61, 0.08))
    part_time_ceiling: float = 0.95  # largest share [assumed]
    # Hours of part time relative to full time: `shortest + range sqrt(uniform)`.
    part_time_shortest: float = 0.30  # [assumed]
    part_time_range: float = 0.60  # [assumed]
    hours_change_by_age: Steps = ((0, 0.10), (32, 0.035))  # share who choose hours again [assumed]
    hours_change_leave: float = 20.0  # weeks of leave after which hours are chosen again [assumed]

    # Casual work (summer, extra and odd jobs) of those without a regular job, by state: employed
    # (not used), unemployed, student, outside, disabled, retired [C]. Mean weeks in a year, of
    # students and of others; hours a week relative to full time.
    casual: tuple[float, ...] = (0.0, 0.40, 0.90, 0.18, 0.15, 0.27)
    casual_weeks: tuple[float, float] = (24.0, 16.0)
    casual_hours: float = 0.42
    casual_prime: float = 0.50  # relative frequency in `casual_prime_ages`
    casual_prime_ages: tuple[int, int] = (25, 54)

    # Men, women: young women work more while at school (2015 [V]).
    casual_sex: tuple[float, float] = (0.82, 1.20)
    casual_school: Steps = ((0, 0.29), (17, 0.42), (19, 1.0))  # students: multiplier [assumed]
    casual_attachment: float = 0.3  # of the log frequency [assumed]
    casual_attachment_ceiling: float = 0.4  # largest rise of the log frequency [assumed]
    casual_longest: float = 40.0  # weeks [assumed]
    casual_pay: float = 0.75  # pay an hour relative to a regular job [assumed]


@dataclass(frozen=True)
class SicknessParameters:
    """Sickness and care of sick children: weeks away from work."""

    sickness_share: tuple[float, float] = (0.065, 0.105)  # men, women with a paid spell a year [M]
    # Multiplier by year: sickness absence rose up to 2002 and fell after it [assumed].
    sickness_by_year: Knots = (
        (1990, 1.1), (1997, 0.75), (2002, 1.35), (2008, 0.8), (2010, 0.7), (2022, 0.85),
    )  # fmt: skip
    sickness_health: float = 0.55  # of the log share, per sd of bad health [assumed]
    sickness_centre: float = 0.15  # keeps the mean factor near 1 [assumed]
    # Multiplier by age: `at_zero + by_age x age`.
    sickness_at_zero: float = 0.55  # [assumed]
    sickness_by_age: float = 0.011  # [assumed]
    sickness_worked: float = 4.0  # least weeks of work in the year [assumed]
    # Length of a spell: a Pareto tail above the shortest, cut at two and a half years.
    sickness_shortest: float = 4.0  # weeks [assumed]
    sickness_tail: float = 1.1  # index of the tail [assumed]
    sickness_longest: float = 130.0  # weeks [assumed]

    child_care_weeks: tuple[float, float] = (0.9, 1.6)  # mean weeks, fathers and mothers [assumed]
    child_care_age: int = 9  # age in years from which sick children need no care [assumed]
    child_care_worked: float = 10.0  # least weeks of work in the year [assumed]
    child_care_longest: float = 10.0  # weeks [assumed]


@dataclass(frozen=True)
class PayParameters:
    """Log pay of a person and a job, and its shocks."""

    base: float = 13.111  # log full-time yearly pay of the reference person, SEK 2022 [C]
    # Within occupation; +25 % tertiary in all [V].
    education_premium: tuple[float, ...] = (-0.03, 0.0, 0.0, 0.0)
    # Of the tertiary premium, over the years before `tertiary_rise_to` [V that it rose; size C].
    tertiary_rise: float = 0.07
    tertiary_rise_to: int = 2001
    tertiary_rise_years: float = 9.0

    # Gain of experience by level of education, and years for two thirds of it [assumed].
    experience_gain: tuple[float, ...] = (0.21, 0.25, 0.28, 0.32)
    experience_years: float = 9.0
    late_decline: float = 0.004  # a year of experience beyond `late_decline_from` [assumed]
    late_decline_from: float = 28.0  # years of experience [assumed]

    # Women in 2010 beyond jobs, experience and care, set [C] so that the raw full-time gap is near
    # the 10 % of 2022 [V]; larger before.
    women: float = 0.05
    women_trend: float = 0.0042  # a year to 2022
    women_reference_year: int = 2010

    # Lasting gap by region of birth [assumed].
    region_gap: tuple[float, ...] = (0.0, -0.03, -0.06, -0.13, -0.17, -0.03, -0.12, -0.15)
    region_assimilation: float = 12.0  # years over which two thirds of the entry gap close [M]
    region_entry_gap: float = 0.6  # extra gap at entry relative to the lasting one [assumed]
    region_raised: float = 0.5  # share of the gap of those who grew up in Sweden [assumed]
    # Men's earnings are more unequal than women's, most at the top (SCB 2020 [V]); sizes [C].
    ability_sd: tuple[float, float] = (0.212, 0.174)
    slope_sd: float = 0.0043  # of yearly growth: heterogeneous profiles (Guvenen 2009) [C]
    slope_correlation: float = 0.35  # of growth with ability [assumed]
    slope_reference: float = 10.0  # years of experience at which growth has no effect [assumed]
    # Scale of what occupation, industry, county and employer pay [assumed].
    job_premia: float = 1.0
    pay_without_job: float = -0.15  # log pay of a person who never had a job [assumed]

    # Pareto top: log pay above `top_start` is stretched quadratically. A Gaussian tail so becomes
    # exponential in logs, that is Pareto, with index about 1 / (2 top_stretch sd^2). The mean of
    # the top 1 % over P90 is 3.34 in 2020 [V]; set to it [C].
    top_start: float = 0.395
    top_stretch: float = 2.1
    # Pay floors of collective agreements compress the bottom: below `floor_start` a log point of
    # disadvantage costs only `floor_slope`. Full-time P50/P10 is near 1.35 in Sweden, against 1.6
    # at the top (P90/P50) [M]; set to it [C].
    floor_start: float = 0.04
    floor_slope: float = 0.71
    # Persistent shock: rho and a two-normal mixture whose weight and mean depend on age, rank and
    # the cycle (GKOS 2021; Busch et al. 2022: skewness is procyclical, variance flat). Sizes [C].
    persistence: float = 0.969
    small_shock_sd: float = 0.0285
    large_shock_sd: float = 0.13
    large_shock_share: float = 0.057
    large_shock_mean: float = -0.015
    large_shock_cycle: float = -8.5  # mean, per 1.0 of rise in unemployment
    large_shock_rise: float = 16.0  # share, relative, per 1.0 of rise

    start_shock_sd: float = 0.06  # sd of the persistent shock at 16 [assumed]
    large_shock_cycle_bounds: tuple[float, float] = (-0.012, 0.03)  # of the rise [assumed]
    large_shock_by_age: Steps = ((0, 1.5), (30, 1.0))  # multiplier of the share [assumed]
    large_shock_hired: float = 1.8  # multiplier of the share in a new job [assumed]
    large_shock_by_rank: float = 0.7  # fall of the log share per log point of pay [assumed]
    large_shock_rank_ceiling: float = 0.3  # log pay above which it falls no further [assumed]
    large_shock_mean_by_rank: float = 0.12  # fall of the mean per log point above 0 [assumed]
    large_shock_mean_by_age: float = 0.002  # fall of the mean a year of age [assumed]
    large_shock_mean_age: int = 40  # age in years at which age has no effect [assumed]
    rank_centre: float = 0.1  # log pay, beyond the base, of the middle rank [assumed]
    rank_bounds: tuple[float, float] = (-0.6, 1.2)  # log pay counted as rank [assumed]

    # Transitory shock of a year: overtime, bonus, unpaid days; a mixture of two normals, of which
    # the "loud" one has the larger spread [C].
    quiet_sd: float = 0.030
    loud_sd: float = 0.34
    loud_share: float = 0.083

    # Scars of job loss: about 10-15 % at first and 5 % after ten years (Jacobson, LaLonde &
    # Sullivan 1993; Eliason & Storrie 2006 [M]); loss set to it [C].
    scar_loss: float = 0.05
    scar_per_year: float = 0.08
    scar_fade: float = 0.90

    scar_tenure_cap: float = 10.0  # years of tenure beyond which the scar grows no more [assumed]
    scar_tenure_years: float = 5.0  # years of tenure for the mean scar [assumed]
    scar_idle_from: float = 0.1  # share of a year without work that leaves no scar [assumed]
    scar_ceiling: float = 0.5  # largest scar, log points [assumed]

    # Child penalty: Sweden about 26 % in the long run (Kleven et al. 2019 [M]); through hours, lost
    # experience and this term of pay; first loss set to it [C].
    care_first: float = 0.18
    care_later: float = 0.065
    care_fade: float = 0.995


@dataclass(frozen=True)
class CareerParameters(
    PayParameters,
    SicknessParameters,
    WorkingTimeParameters,
    JobChangeParameters,
    LabourExitParameters,
    JobFindingParameters,
    JobLossParameters,
):
    """All parameters of work and pay."""
