"""Where people live and work: counties, industries, occupations and employers, and how education leads to them.

Sizes, premia, cyclical sensitivities are rounded magnitudes (labour-force and wage-structure statistics, from memory), enough for the
regional and industrial pattern of the Swedish economy; the codes are those of SCB (SSYK 2012, SNI 2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Population share, relative unemployment, log pay premium, in the order of schema.COUNTIES.
_COUNTY = np.array(
    [
        (0.235, 0.85, 0.09), (0.037, 0.85, 0.03), (0.029, 1.15, 0.00), (0.045, 1.12, -0.01), (0.036, 0.85, -0.01), (0.020, 0.85, -0.03),
        (0.024, 1.08, -0.03), (0.006, 0.95, -0.06), (0.015, 1.18, -0.03), (0.133, 1.18, 0.01), (0.032, 0.90, 0.01), (0.168, 0.98, 0.02),
        (0.027, 1.10, -0.04), (0.030, 1.05, -0.02), (0.027, 1.15, 0.00), (0.028, 1.05, -0.03), (0.028, 1.22, -0.03), (0.024, 1.15, -0.03),
        (0.013, 1.05, -0.05), (0.026, 1.02, -0.03), (0.024, 1.12, 0.00),
    ]
)  # fmt: skip
COUNTY_SHARE: Floats = _COUNTY[:, 0] / _COUNTY[:, 0].sum()
COUNTY_RISK: Floats = _COUNTY[:, 1]
COUNTY_PREMIUM: Floats = _COUNTY[:, 2]

# SNI 2007 -> sensitivity of job loss to the cycle, log pay premium, log of a typical employer's size, yearly trend of its size.
INDUSTRY: dict[str, tuple[float, float, float, float]] = {
    "01": (0.4, -0.10, 1.5, -0.020),
    "10": (0.7, 0.00, 4.5, -0.012),
    "16": (1.5, 0.00, 4.0, -0.015),
    "17": (1.2, 0.06, 5.5, -0.020),
    "20": (0.9, 0.08, 5.3, -0.005),
    "24": (1.6, 0.05, 6.0, -0.018),
    "25": (1.7, 0.00, 3.6, -0.010),
    "26": (1.5, 0.08, 5.0, -0.015),
    "28": (1.6, 0.05, 5.2, -0.012),
    "29": (1.8, 0.05, 6.5, -0.010),
    "35": (0.4, 0.08, 5.0, -0.003),
    "41": (1.7, 0.04, 3.6, 0.008),
    "42": (1.4, 0.05, 4.4, 0.004),
    "43": (1.6, 0.03, 2.6, 0.008),
    "45": (1.1, 0.00, 3.2, -0.004),
    "46": (1.1, 0.05, 3.5, 0.000),
    "47": (0.9, -0.06, 3.6, 0.002),
    "49": (1.0, 0.00, 4.2, 0.000),
    "52": (1.1, 0.01, 4.5, 0.006),
    "55": (1.5, -0.08, 3.4, 0.008),
    "56": (1.4, -0.12, 2.5, 0.015),
    "58": (1.0, 0.03, 4.0, -0.015),
    "61": (0.9, 0.08, 6.0, -0.015),
    "62": (1.2, 0.09, 3.8, 0.030),
    "64": (0.6, 0.14, 5.8, 0.000),
    "65": (0.5, 0.10, 5.8, -0.004),
    "68": (0.6, 0.02, 3.0, 0.004),
    "69": (0.7, 0.06, 3.0, 0.012),
    "70": (1.0, 0.10, 3.5, 0.025),
    "71": (1.1, 0.05, 3.6, 0.015),
    "72": (0.6, 0.06, 4.8, 0.005),
    "73": (1.3, 0.02, 2.8, 0.005),
    "78": (2.2, -0.05, 5.2, 0.040),
    "80": (0.8, -0.04, 5.0, 0.010),
    "81": (1.0, -0.09, 4.4, 0.012),
    "84": (0.3, 0.01, 6.5, 0.000),
    "85": (0.3, -0.03, 6.2, 0.006),
    "86": (0.25, -0.01, 7.0, 0.004),
    "87": (0.35, -0.05, 6.2, 0.006),
    "88": (0.35, -0.06, 6.2, 0.006),
    "93": (0.9, -0.08, 2.8, 0.010),
    "94": (0.5, -0.02, 3.2, 0.000),
    "96": (0.8, -0.14, 1.8, 0.004),
}
INDUSTRY_CODES: tuple[str, ...] = tuple(INDUSTRY)
_INDUSTRY = np.array(list(INDUSTRY.values()))
INDUSTRY_CYCLE: Floats = _INDUSTRY[:, 0]
INDUSTRY_PREMIUM: Floats = _INDUSTRY[:, 1]
INDUSTRY_SIZE: Floats = _INDUSTRY[:, 2]
INDUSTRY_TREND: Floats = _INDUSTRY[:, 3]

# SSYK 2012 -> weight, usual education level 0-3, share of women, log pay premium, fields of education, industries.
OCCUPATION: dict[str, tuple[float, int, float, float, str, str]] = {
    "112": (0.5, 3, 0.25, 0.62, "35", "46 70 28 62"),
    "121": (0.7, 3, 0.45, 0.52, "3", "64 70 84 46"),
    "131": (0.5, 3, 0.25, 0.48, "53", "62 61"),
    "137": (0.8, 2, 0.18, 0.38, "5", "28 29 25 24 20"),
    "141": (0.8, 3, 0.65, 0.28, "1", "85"),
    "151": (0.8, 3, 0.78, 0.26, "7", "86 87 88"),
    "173": (0.8, 1, 0.45, 0.22, "38", "47 45 56"),
    "213": (0.7, 3, 0.55, 0.10, "46", "72 84 20"),
    "214": (3.2, 3, 0.22, 0.20, "5", "71 28 29 26 62 42"),
    "216": (0.5, 3, 0.52, 0.12, "5", "71 84"),
    "221": (1.3, 3, 0.50, 0.46, "7", "86"),
    "222": (3.2, 3, 0.88, 0.06, "7", "86 87"),
    "226": (0.5, 3, 0.72, 0.14, "7", "86"),
    "231": (0.9, 3, 0.46, 0.12, "41235", "85 72"),
    "233": (2.0, 3, 0.56, 0.02, "1", "85"),
    "234": (3.8, 3, 0.86, -0.03, "1", "85"),
    "241": (1.8, 3, 0.52, 0.26, "3", "64 69 70 65"),
    "242": (3.0, 3, 0.62, 0.14, "32", "84 70 86"),
    "243": (1.0, 3, 0.55, 0.18, "3", "73 46 58"),
    "251": (3.2, 3, 0.24, 0.22, "54", "62 64 61 84"),
    "261": (0.6, 3, 0.56, 0.30, "3", "69 84"),
    "264": (0.6, 3, 0.54, 0.05, "23", "58 94"),
    "266": (1.4, 3, 0.82, -0.01, "37", "88 84"),
    "311": (2.6, 2, 0.20, 0.10, "5", "71 28 26 35 43"),
    "331": (2.2, 2, 0.68, 0.08, "3", "64 69 65 46"),
    "332": (3.0, 2, 0.32, 0.16, "35", "46 45 58"),
    "333": (1.4, 2, 0.48, 0.10, "3", "68 82 78 52"),
    "335": (1.2, 2, 0.68, 0.02, "3", "84"),
    "341": (1.4, 2, 0.70, -0.06, "73", "88 94 84"),
    "351": (1.4, 2, 0.22, 0.08, "54", "62 61 84"),
    "411": (4.4, 1, 0.78, -0.04, "38", "84 46 69 86"),
    "422": (1.2, 1, 0.66, -0.06, "38", "61 64 49 86"),
    "432": (2.6, 1, 0.25, -0.02, "85", "52 46 49"),
    "512": (1.6, 1, 0.48, -0.10, "8", "56 85 87"),
    "513": (1.2, 1, 0.62, -0.16, "8", "56 55"),
    "515": (1.3, 1, 0.30, -0.06, "58", "68 81"),
    "522": (6.0, 1, 0.64, -0.11, "38", "47 45"),
    "531": (3.4, 1, 0.86, -0.15, "17", "85 88"),
    "532": (6.2, 1, 0.88, -0.09, "7", "87 88 86"),
    "534": (2.6, 1, 0.76, -0.13, "7", "87 88"),
    "541": (1.2, 1, 0.28, 0.00, "8", "80 84"),
    "611": (1.4, 1, 0.28, -0.10, "6", "01 81"),
    "711": (3.4, 1, 0.02, 0.06, "5", "41 43"),
    "712": (1.4, 1, 0.02, 0.07, "5", "43"),
    "721": (1.2, 1, 0.04, 0.02, "5", "25 24"),
    "722": (1.6, 1, 0.08, 0.02, "5", "25 28"),
    "723": (2.6, 1, 0.04, 0.03, "5", "45 28 29"),
    "741": (2.2, 1, 0.03, 0.06, "5", "43 35 26"),
    "812": (1.2, 1, 0.14, 0.05, "5", "24 20 17"),
    "814": (1.4, 1, 0.24, 0.00, "5", "17 20 16"),
    "816": (0.9, 0, 0.38, -0.03, "85", "10"),
    "821": (2.4, 0, 0.26, 0.00, "5", "29 28 26"),
    "832": (1.2, 0, 0.12, -0.05, "8", "49"),
    "833": (2.4, 0, 0.08, 0.00, "8", "49"),
    "834": (1.6, 0, 0.06, 0.03, "56", "42 52 01"),
    "911": (2.8, 0, 0.76, -0.15, "0", "81 84 87"),
    "932": (1.2, 0, 0.30, -0.08, "0", "10 25 16"),
    "941": (1.8, 0, 0.62, -0.19, "0", "56 85"),
    "961": (0.8, 0, 0.22, -0.08, "0", "81 49 96"),
}
OCCUPATION_CODES: tuple[str, ...] = tuple(OCCUPATION)
OCCUPATION_PREMIUM: Floats = np.array([row[3] for row in OCCUPATION.values()])
MANAGERS: Ints = np.flatnonzero([code.startswith("1") for code in OCCUPATION_CODES])
IS_MANAGER: NDArray[np.bool_] = np.isin(np.arange(len(OCCUPATION_CODES)), MANAGERS)
# Care, retail, cleaning and catering, where part time is the rule.
PART_TIME_TRADE: NDArray[np.bool_] = np.isin(
    np.array(OCCUPATION_CODES), ["513", "522", "531", "532", "534", "911", "941"]
)

# Field of education given level and sex (men, women), digits 0-9 of SUN2000Inr; rounded shares of the population.
FIELD_SHARE: dict[tuple[int, int], tuple[float, ...]] = {
    (0, 0): (0.97, 0, 0, 0, 0, 0.01, 0, 0, 0.01, 0.01),
    (0, 1): (0.97, 0, 0, 0, 0, 0, 0, 0.01, 0.01, 0.01),
    (1, 0): (0.18, 0, 0.03, 0.12, 0.04, 0.50, 0.05, 0.02, 0.05, 0.01),
    (1, 1): (0.20, 0.03, 0.06, 0.24, 0.04, 0.06, 0.03, 0.24, 0.09, 0.01),
    (2, 0): (0.02, 0.05, 0.09, 0.22, 0.09, 0.38, 0.02, 0.05, 0.07, 0.01),
    (2, 1): (0.02, 0.12, 0.13, 0.28, 0.06, 0.11, 0.02, 0.19, 0.06, 0.01),
    (3, 0): (0.0, 0.13, 0.07, 0.25, 0.11, 0.32, 0.02, 0.08, 0.01, 0.01),
    (3, 1): (0.0, 0.27, 0.08, 0.24, 0.06, 0.08, 0.01, 0.25, 0.01, 0.0),
}


def pick(cumulative: Floats, u: Floats) -> Ints:
    """Inverse-CDF draw: `cumulative` (k,) or one row a draw (n, k), `u` (n,) uniforms -> (n,) indices."""
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
    """(level 4, sex 2, field 10) cumulative shares."""
    return cumulate(np.array([[FIELD_SHARE[level, sex] for sex in (0, 1)] for level in range(4)]))


@cache
def occupation_cdf() -> Floats:
    """(level 4, field 10, sex 2, occupation) cumulative shares for a first or new job."""
    weights = np.zeros((4, 10, 2, len(OCCUPATION)))
    for j, (weight, usual, women, _, fields, _) in enumerate(OCCUPATION.values()):
        for level in range(4):
            # Below the usual education the door is nearly shut for professions; above it, people prefer better jobs.
            distance = np.exp(-1.9 * (usual - level) if level < usual else -1.05 * (level - usual))
            for f in range(10):
                match = 7.0 if str(f) in fields and level > 0 else 1.0
                base = weight * distance * match * (0.25 if IS_MANAGER[j] else 1.0)
                weights[level, f, 0, j], weights[level, f, 1, j] = (
                    base * (1.0 - women),
                    base * women,
                )
    return cumulate(weights)


@cache
def industry_cdf(year: int) -> Floats:
    """(occupation, industry) cumulative shares in `year`: the occupation's own industries, some spill to all others."""
    sizes = np.exp(INDUSTRY_TREND * (min(year, 2030) - 2005))
    weights = np.tile(0.002 * sizes, (len(OCCUPATION), 1))
    for j, row in enumerate(OCCUPATION.values()):
        for order, code in enumerate(c for c in row[5].split() if c in INDUSTRY):
            weights[j, INDUSTRY_CODES.index(code)] += sizes[INDUSTRY_CODES.index(code)] / (
                1.0 + order
            )
    return cumulate(weights)


@dataclass(frozen=True)
class Employers:
    """A pool of employers, `per_industry` in each industry, drawn by size; the same for every worker process of a seed.

    `size` persons, `effect` log pay premium (larger firms pay more), `mix` log pay of colleagues beyond the premium.
    """

    per_industry: int
    size: Floats
    effect: Floats
    mix: Floats
    by_size: Floats

    @classmethod
    def draw(cls, seed: int, per_industry: int = 120) -> Employers:
        """The pool of `seed`. Sizes are lognormal within an industry; effects as in AKM decompositions (sd about .08 [M])."""
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, 0x656D70))))
        shape = (len(INDUSTRY), per_industry)
        log_size = INDUSTRY_SIZE[:, None] - 0.4 + 1.2 * rng.standard_normal(shape)
        effect = 0.07 * rng.standard_normal(shape) + 0.012 * (log_size - 4.5)
        size = np.maximum(np.round(np.exp(log_size)), 1.0)
        # People meet jobs, not firms: draw by size, with the weight of the very largest bounded.
        by_size = cumulate(np.minimum(size, 40.0 * np.median(size, axis=1, keepdims=True)))
        return cls(
            per_industry,
            size.ravel(),
            effect.ravel(),
            (0.12 * rng.standard_normal(shape)).ravel(),
            by_size,
        )

    def hire(self, industry: Ints, u: Floats) -> Ints:
        """Employer index for each new job: (n,) industries and uniforms -> (n,)."""
        return industry * self.per_industry + pick(self.by_size[industry], u)

    def draw_closings(
        self, seed: int, draw: int | None, year: int, rate: float
    ) -> NDArray[np.bool_]:
        """Which employers shut or shed most jobs in `year`: small ones more often; `rate` is the mean share of employers."""
        key = (seed, 0x636C6F, 0 if draw is None else draw + 1, year)
        u = np.random.Generator(np.random.Philox(np.random.SeedSequence(key))).random(
            len(self.size)
        )
        return np.asarray(u < rate * np.clip(2.2 - 0.28 * np.log(self.size), 0.25, 2.2))
