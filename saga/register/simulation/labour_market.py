"""Counties, industries, occupations and employers, and how education leads to them.

Sizes, premia and sensitivities to the cycle are rounded; they give the regional and industrial
pattern of the Swedish economy. The codes are those of SCB (SSYK 2012, SNI 2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from saga import schema
from saga.register.simulation.parameters import Section, read_columns, to_numbers

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EMPLOYERS_TAG, CLOSINGS_TAG = 0x656D70, 0x636C6F  # separate these random streams from others
EDUCATION_FIELDS = "0123456789"  # SUN2000Inr, one digit
MANAGER = "1"  # first digit of managers' codes in SSYK 2012
N_LEVELS = len(schema.EDUCATION_LEVELS)

_COUNTIES = read_columns("counties")  # in the order of schema.COUNTIES
_POPULATION = to_numbers(_COUNTIES["population_share"])
COUNTY_SHARE: Floats = _POPULATION / _POPULATION.sum()
COUNTY_UNEMPLOYMENT = to_numbers(_COUNTIES["relative_unemployment"])  # to the whole country
COUNTY_PREMIUM = to_numbers(_COUNTIES["pay_premium"])  # log
COUNTY_PULL_ON_IMMIGRANTS = to_numbers(_COUNTIES["pull_on_immigrants"])
COUNTY_PULL_ON_YOUNG = to_numbers(_COUNTIES["pull_on_young"])

_INDUSTRIES = read_columns("industries")
INDUSTRY_CODES = tuple(_INDUSTRIES["industry"])
INDUSTRY_CYCLE = to_numbers(_INDUSTRIES["cycle_sensitivity"])  # of job loss; mean near 1
INDUSTRY_PREMIUM = to_numbers(_INDUSTRIES["pay_premium"])  # log
INDUSTRY_LOG_EMPLOYER_SIZE = to_numbers(_INDUSTRIES["log_employer_size"])  # log persons
INDUSTRY_SIZE_TREND = to_numbers(_INDUSTRIES["size_trend"])  # log growth of the industry a year
INDUSTRY_OWN_FIRMS = to_numbers(_INDUSTRIES["own_firms"])  # relative to all industries

_OCCUPATIONS = read_columns("occupations")
OCCUPATION_CODES = tuple(_OCCUPATIONS["occupation"])
OCCUPATION_PREMIUM = to_numbers(_OCCUPATIONS["pay_premium"])  # log
OCCUPATION_PART_TIME: Bools = to_numbers(_OCCUPATIONS["part_time"]) > 0  # part time is common
IS_MANAGER: Bools = np.array([code.startswith(MANAGER) for code in OCCUPATION_CODES])
MANAGERS: Ints = np.flatnonzero(IS_MANAGER)


def draw_index(cumulative: Floats, u: Floats) -> Ints:
    """Inverse-CDF draws of indices (n,).

    `cumulative` are cumulative shares, (k,) or one row per draw (n, k); `u` (n,) is uniform.
    """
    if cumulative.ndim == 1:
        return np.minimum(np.searchsorted(cumulative, u, side="right"), len(cumulative) - 1)
    return np.asarray(
        np.minimum((cumulative <= u[:, None]).sum(axis=1), cumulative.shape[1] - 1), dtype=np.int64
    )


def cumulate(weights: Floats) -> Floats:
    """Cumulative shares along the last axis."""
    total = np.cumsum(weights, axis=-1)
    return np.asarray(total / total[..., -1:], dtype=np.float64)


@cache
def field_cdf() -> Floats:
    """Cumulative shares of fields of education (level 4, sex 2, field 10)."""
    table = read_columns("education_fields")
    shares = [to_numbers(table[f"field_{digit}"]) for digit in EDUCATION_FIELDS]
    return cumulate(np.stack(shares, axis=1).reshape(N_LEVELS, 2, len(EDUCATION_FIELDS)))


@cache
def occupation_cdf(p: Section) -> Floats:
    """Cumulative shares of occupations in a new job (level 4, field 10, sex 2, occupation)."""
    weights = np.zeros((N_LEVELS, len(EDUCATION_FIELDS), 2, len(OCCUPATION_CODES)))
    columns = ("weight", "education_level", "share_women", "education_fields")
    rows = zip(*(_OCCUPATIONS[column] for column in columns), strict=True)
    for j, (weight, level_cell, women_cell, fields) in enumerate(rows):
        usual_level, women = int(level_cell), float(women_cell)
        manager = p.new_managers if IS_MANAGER[j] else 1.0
        for level in range(N_LEVELS):
            # Below the usual level of an occupation entry is hard; above it, people prefer others.
            fall = p.underqualified if level < usual_level else p.overqualified
            by_level = np.exp(-fall * abs(usual_level - level))
            for k, digit in enumerate(EDUCATION_FIELDS):
                by_field = p.field_match if digit in fields and level > 0 else 1.0
                base = float(weight) * by_level * by_field * manager
                weights[level, k, :, j] = base * (1.0 - women), base * women
    return cumulate(weights)


@cache
def industry_cdf(year: int, p: Section) -> Floats:
    """Cumulative shares of industries by occupation in `year` (occupation, industry).

    The industries that the table names for an occupation have weights 1, 1/2, 1/3, ... in its
    order, times their size in `year` relative to the reference year. Others have a small weight.
    """
    trend_years = min(year, p.last_trend_year) - p.trend_reference_year
    relative_size = np.exp(INDUSTRY_SIZE_TREND * trend_years)
    weights = np.tile(p.industry_spill * relative_size, (len(OCCUPATION_CODES), 1))
    for j, codes in enumerate(_OCCUPATIONS["industries"]):
        for order, code in enumerate(c for c in codes.split() if c in INDUSTRY_CODES):
            k = INDUSTRY_CODES.index(code)
            weights[j, k] += relative_size[k] / (1.0 + order)
    return cumulate(weights)


@dataclass(frozen=True)
class Employers:
    """The employers of a register, sorted by industry; the same for all chunks of a seed.

    Attributes:
        per_industry: Number of employers in each industry.
        size: Number of persons (employer,).
        effect: Log pay premium; larger employers pay more (employer,).
        colleague_pay: Mean log pay of colleagues beyond the premium (employer,).
        hiring_cdf: Cumulative shares of an industry's jobs (industry, per_industry).
        parameters: Parameters of the pool and of closings.
    """

    per_industry: int
    size: Floats
    effect: Floats
    colleague_pay: Floats
    hiring_cdf: Floats
    parameters: Section

    @classmethod
    def draw(cls, seed: int, p: Section) -> Employers:
        """The pool of `seed`.

        Sizes are lognormal within an industry. Effects have the spread found by AKM decompositions
        (sd about .08 [M]).
        """
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, EMPLOYERS_TAG))))
        shape = (len(INDUSTRY_CODES), p.employers_per_industry)
        noise = rng.standard_normal(shape)
        mean_log_size = INDUSTRY_LOG_EMPLOYER_SIZE[:, None] - p.employer_size_shift
        log_size = mean_log_size + p.employer_size_sd * noise
        effect = p.employer_effect_sd * rng.standard_normal(shape) + p.employer_effect_by_size * (
            log_size - p.employer_effect_reference
        )
        size = np.maximum(np.round(np.exp(log_size)), 1.0)
        # Jobs are drawn, not employers: weight by size, with a bound for the very largest.
        largest = p.largest_employer * np.median(size, axis=1, keepdims=True)
        colleague_pay = p.colleague_mix_sd * rng.standard_normal(shape)
        return cls(
            per_industry=p.employers_per_industry,
            size=size.ravel(),
            effect=effect.ravel(),
            colleague_pay=colleague_pay.ravel(),
            hiring_cdf=cumulate(np.minimum(size, largest)),
            parameters=p,
        )

    def hire(self, industry: Ints, u: Floats) -> Ints:
        """Employer index of each new job; `industry` and the uniforms `u` are (n,)."""
        return industry * self.per_industry + draw_index(self.hiring_cdf[industry], u)

    def draw_closings(self, seed: int, draw: int | None, year: int, job_loss: float) -> Bools:
        """Flags of the employers that shed most of their jobs, more often small ones (employer,).

        Args:
            seed: Seed of the register.
            draw: Number of the macro draw; None for the years of the panel.
            year: Calendar year.
            job_loss: Share of the employed in the economy who lose their job in `year`.
        """
        p = self.parameters
        key = (seed, CLOSINGS_TAG, 0 if draw is None else draw + 1, year)
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
        factor = p.closing_smallest - p.closing_size_slope * np.log(self.size)
        factor = np.clip(factor, p.closing_floor, p.closing_smallest)
        return np.asarray(rng.random(len(self.size)) < p.closing_share * job_loss * factor)
