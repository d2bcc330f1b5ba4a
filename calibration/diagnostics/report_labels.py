"""Names and words of the calibration report, by their keys in the tables."""

from __future__ import annotations

import polars as pl

from saga.schema import MAX_AGE

STATUS_WORDS = {
    "holds": ("✓", "holds"),
    "unclear": ("?", "cannot tell"),
    "watch": ("!", "watch"),
    "fails": ("✗", "fails"),
}
QUESTION_TEXTS = {
    "coverage": "Do the intervals cover as many persons as stated?",
    "groups": "Do they cover as stated in every group?",
    "together": "Do they cover as stated for several years together?",
    "shape": "Is the whole distribution right?",
    "level": "Is the forecast right on average?",
    "zero": "Is the probability of no earnings right?",
    "low_pay": "Is the probability of low pay right?",
    "drift": "Did the intervals cover as stated in every period?",
    "zero_bins": "Do they cover as stated whatever the probability of no earnings?",
    "efficiency": "Do the intervals say more than simple rules?",
}
GROUPING_LABELS = {
    "quintile": "Past earnings",
    "sex": "Sex",
    "education_level": "Education",
    "age": "Age",
    "birth_region": "Born in",
    "county_type": "Lives in",
    "origin": "Last earnings",
    "profile": "Record",
}
REGION_LABELS = {
    "sweden": "Sweden",
    "europe": "Europe",
    "elsewhere": "the rest of the world",
    "metropolitan": "metropolitan counties",
    "north": "the north",
    "other": "other counties",
}
QUINTILE_LABELS = {
    "1": "lowest fifth",
    "2": "second fifth",
    "3": "middle fifth",
    "4": "fourth fifth",
    "5": "highest fifth",
}
SCORE_LABELS = {
    "crps_log": "Whole distribution (CRPS)",
    "pinball_10_log": "10 % quantile (pinball)",
    "pinball_50_log": "Median (pinball)",
    "pinball_90_log": "90 % quantile (pinball)",
    "brier_zero": "Probability of no earnings (Brier)",
    "brier_low_pay": "Probability of low pay (Brier)",
    "logscore": "Log score",
}
SEVERAL_YEARS_LABELS = {
    "band": "All of the next years inside the path band",
    "present_value": "The present value of the next years inside its interval",
}
RULE_LABELS = {
    "saga": "SAGA",
    "last_year": "Same as last year",
    "group_quantiles": "Same age and quintile",
}
FACT_LABELS = {
    "bundle": "Bundle that was judged (sha256)",
    "calibration": "Its calibration (sha256)",
    "calibration_method": "Method of its calibration",
    "code_version": "Written by version",
    "panel": "Panel",
    "people": "Persons of the panel",
    "trained_on": "Trained on panel",
    "persons": "Persons judged",
    "origins": "Forecast from years",
    "last_year": "Outcomes up to",
    "paths": "Simulated futures per person, for present values",
    "seed": "Seed",
    "scenario": "Macro futures",
    "rollout": "How futures are drawn",
    "precision": "Arithmetic of the futures",
    "currency": "Money in",
    "price_year": "Prices of",
    "economy": "Realised macro series of the years",
    "low_pay": "Low pay: below",
    "floor": "In logs, amounts below this count as this",
    "horizons": "Years ahead",
    "min_cell": "Fewest persons per figure",
    "alpha": "Probability of a false alarm",
    "facts": "Dated facts",
    "late_origins": "Warning",
    "adaptive_version": "Version of the ledger's adaptive state",
    "adaptive_through": "Outcomes in the ledger up to",
    "adaptive_settled": "Issued intervals compared with their outcome",
    "adaptive_waiting": "Issued intervals without outcome yet",
}


def label_groups(coverage: pl.DataFrame) -> dict[tuple[str, str], str]:
    """(Grouping, group) -> its label, in the order of the table."""
    pairs = coverage.select("grouping", "group").unique(maintain_order=True).iter_rows()
    order = {grouping: i for i, grouping in enumerate(GROUPING_LABELS)}
    ordered = sorted(pairs, key=lambda pair: order.get(pair[0], len(order)))
    return {
        pair: f"{GROUPING_LABELS.get(pair[0], pair[0])}: {_group_text(*pair)}" for pair in ordered
    }


def _group_text(grouping: str, group: str) -> str:
    if grouping == "quintile":
        return QUINTILE_LABELS.get(group, group)
    if grouping == "age" and "-" in group:
        first, last = group.split("-")
        return f"{first}-{min(int(last), MAX_AGE)}"
    if grouping == "origin":
        return {"zero": "none", "positive": "some"}.get(group, group)
    return REGION_LABELS.get(group, group.replace("_", " "))
