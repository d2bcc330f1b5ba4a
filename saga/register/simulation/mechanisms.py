"""Mechanisms of the register, and the parameter values with which each has no effect.

A mechanism is switched off by neutral parameter values, not by a branch in the code, so
`register.json` describes the simulated register completely.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import hypot, sqrt

from saga.errors import UsageError
from saga.register.simulation.career_parameters import CareerParameters
from saga.register.simulation.parameters import Parameters

NeutralValues = tuple[str, dict[str, float | tuple[float, ...]]]  # section of Parameters, values
# Lengths of parameters that have a value per level of education, region of birth, retirement age.
N_LEVELS, N_REGIONS, N_RETIREMENT_AGES = 4, 8, 10

NEUTRAL_VALUES: dict[str, NeutralValues] = {
    "business_cycle": ("economy", {"felt": 0.0}),
    "unequal_cycle": ("careers", {"cycle_by_industry": 0.0, "cycle_foreign": 0.0}),
    "unequal_risk": (
        "careers",
        {
            "loss_by_education": (1.0,) * N_LEVELS,
            "loss_foreign": 1.0,
            "loss_young": 1.0,
            "finding_by_education": (1.0,) * N_LEVELS,
            "finding_by_region": (1.0,) * N_REGIONS,
        },
    ),
    "duration_dependence": ("careers", {"duration_dependence": 0.0, "outside_duration": 0.0}),
    "scars": ("careers", {"scar_loss": 0.0, "scar_per_year": 0.0}),
    "transitory_shocks": ("careers", {"loud_share": 0.0, "quiet_sd": 0.0}),
    "heterogeneous_levels": ("careers", {"ability_sd": (0.0, 0.0)}),
    "heterogeneous_growth": ("careers", {"slope_sd": 0.0}),
    "experience": ("careers", {"experience_gain": (0.0,) * N_LEVELS, "late_decline": 0.0}),
    "pareto_top": ("careers", {"top_stretch": 0.0}),
    "job_premia": (
        "careers",
        {"job_premia": 0.0, "education_premium": (0.0,) * N_LEVELS, "tertiary_rise": 0.0},
    ),
    "job_mobility": ("careers", {"job_change_at_25": 0.0, "promotion": 0.0}),
    "child_penalty": (
        "careers",
        {"care_first": 0.0, "care_later": 0.0, "part_time_mother": 0.0, "mother_quit": 1.0},
    ),
    "parental_leave": (
        "population",
        {"mother_leave": (0.0, 0.0, 0.0), "father_leave": (0.0, 0.0, 0.0)},
    ),
    "part_time": ("careers", {"part_time": (0.0, 0.0), "part_time_mother": 0.0}),
    "self_employment": ("self_employment", {"start": (0.0, 0.0)}),
    "sickness": ("careers", {"sickness_share": (0.0, 0.0)}),
    "disability": ("careers", {"disability_at_45": 0.0}),
    "early_retirement": ("careers", {"retirement": (0.0,) * N_RETIREMENT_AGES}),
    "leaving_work": ("careers", {"quit_outside": 0.0, "to_outside": 0.0}),
    "immigration": ("population", {"immigration": 0.0}),
    "origin_gap": ("careers", {"region_gap": (0.0,) * N_REGIONS}),
    "emigration": (
        "population",
        {
            "emigration_native": 0.0,
            "emigration_young": 0.0,
            "emigration_foreign": (0.0,) * N_REGIONS,
        },
    ),
    "assortative_mating": ("population", {"assortative": 0.0}),
    "adult_education": ("education", {"adult_return": 0.0}),
    "benefits": ("benefits", {"generosity": 0.0}),
    "missing_cells": (
        "records",
        {
            "occupation_missing": 0.0,
            "earnings_missing": 0.0,
            "education_missing_native": 0.0,
            "education_missing_new": 0.0,
            "workplace_missing": 0.0,
            "hours_missing": 0.0,
            "late_last_year": 0.0,
        },
    ),
}
MECHANISMS: tuple[str, ...] = tuple(sorted([*NEUTRAL_VALUES, "heavy_tails"]))


def switch_off(parameters: Parameters, mechanisms: Iterable[str]) -> Parameters:
    """The parameters without `mechanisms`; raises UsageError for an unknown name."""
    for name in mechanisms:
        if name not in MECHANISMS:
            raise UsageError(
                f"There is no mechanism {name!r}; the mechanisms are {', '.join(MECHANISMS)}"
            )
        section, values = NEUTRAL_VALUES.get(name) or _normal_shocks(parameters.careers)
        changed = replace(getattr(parameters, section), **values)
        parameters = replace(parameters, **{section: changed})
    return parameters


def _normal_shocks(p: CareerParameters) -> NeutralValues:
    """The values without heavy tails: all shocks are normal, with unchanged variances.

    Large shocks are absent, and with them skewness and any dependence of shocks on rank or cycle.
    """
    small = sqrt(
        (1 - p.large_shock_share) * p.small_shock_sd**2
        + p.large_shock_share * (p.large_shock_sd**2 + p.large_shock_mean**2)
    )
    quiet = hypot(sqrt(1 - p.loud_share) * p.quiet_sd, sqrt(p.loud_share) * p.loud_sd)
    shares = {"large_shock_share": 0.0, "loud_share": 0.0}
    return "careers", {**shares, "small_shock_sd": small, "quiet_sd": quiet}
