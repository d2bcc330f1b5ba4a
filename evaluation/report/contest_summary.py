"""The top of the evaluation page: question, answer, simple rules beside it, and who was judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl
from saga.evaluation.baselines import MEANINGS
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.scoring.comparison import BUNDLE_NAME, SURE, verdict_lines
from saga.evaluation.scoring.gap import CLAIRVOYANT

from saga.data.panel import is_simulated, named_panel

SIMPLE_RULES = {
    "carry": "same as last year, with the changes that are usual",
    "groupq": "what people of the same age and past earnings earned",
}

METHODS = {
    BUNDLE_NAME: "the bundle that is judged",
    **MEANINGS,
    CLAIRVOYANT: "knows the process of the simulation, a bound",
}


@dataclass(frozen=True)
class ContestSummary:
    """Sentences for a reader who has one minute.

    Args:
        simulated: Whether the persons judged are simulated.
        persons: Who was judged.
        rules: SAGA beside the best rival, then beside each simple rule.
        coverage: Whether the intervals covered as stated.
        verdicts: SAGA against all others, one line per setting and test.
        methods: Names and meanings of the methods.
    """

    simulated: bool
    persons: str
    rules: tuple[str, ...]
    coverage: str
    verdicts: tuple[str, ...]
    methods: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, results: Results) -> ContestSummary:
        """The summary of an evaluation."""
        table = results.comparisons
        judged = results.metrics["model"].unique().to_list()
        panel = str(results.provenance.get("panel", "unknown"))
        return cls(
            is_simulated(panel),
            _describe_persons(results.metrics, panel),
            () if table is None else (*_compare_best(table), *_compare_rules(table)),
            _describe_coverage(results.metrics),
            () if table is None else tuple(verdict_lines(table).values()),
            tuple((name, METHODS[name]) for name in METHODS if name in judged),
        )


def _describe_persons(metrics: pl.DataFrame, panel: str) -> str:
    """How many persons of which panel were judged, also as far ahead as fewest were."""
    judged = metrics.filter(pl.col("n") > 0, group="all").group_by("horizon").agg(pl.col("n").max())
    counts = judged.sort("n", "horizon").rows()
    (farthest, least), (_, most) = (counts[0], counts[-1]) if counts else ((0, 0), (0, 0))
    kind = "simulated people" if is_simulated(panel) else "persons"
    fewest = f" ({least:,} of them {_years_ahead([farthest])})" if least < most else ""
    return (
        f"{most:,} {kind} of {named_panel(panel)}{fewest}, none of whom was used to fit the model."
    )


def _of_everybody(table: pl.DataFrame) -> pl.DataFrame:
    """The error of everybody beside each method's, and how many of its tests exclude chance."""
    is_sure = (pl.col("p_holm") < SURE).fill_null(False)
    return (
        table.filter(metric="crps_log", group="all")
        .drop_nulls("relative")
        .group_by("model", "setting", "horizon", maintain_order=True)
        .agg(pl.col("relative").first(), tests=pl.len(), sure=is_sure.sum())
        .sort("horizon", maintain_order=True)
    )


def _compare_best(table: pl.DataFrame) -> Iterable[str]:
    """The rival with the lowest error in the first setting, and who is better beyond chance."""
    is_rival = (pl.col("model") != CLAIRVOYANT) & ~pl.col("model").str.starts_with(BUNDLE_NAME)
    rows = _of_everybody(table.filter(is_rival))
    rows = rows.filter(pl.col("setting") == pl.col("setting").max())
    if rows.is_empty():
        return
    means = rows.group_by("model", maintain_order=True).agg(pl.col("relative").mean())
    rivals = dict(means.iter_rows())
    best = min(rivals, key=lambda name: rivals[name])
    meaning = METHODS.get(best, best)
    line = f"The best other method is {best} ({meaning}). Compared with it, SAGA's error is "
    yield line + _describe_cuts(rows.filter(model=best))
    for name in rivals:
        is_sure = pl.col("sure") == pl.col("tests")
        ahead = rows.filter(is_sure, pl.col("relative") < 0, model=name)["horizon"].to_list()
        if name != best and ahead:
            yield f"{name} beats SAGA {_years_ahead(ahead)}."


def _compare_rules(table: pl.DataFrame) -> Iterable[str]:
    """How far SAGA's error lies from that of each simple rule, in the first setting."""
    for rule, meaning in SIMPLE_RULES.items():
        rows = _of_everybody(table.filter(model=rule))
        rows = rows.filter(pl.col("setting") == pl.col("setting").max())
        if not rows.is_empty():
            line = f"Compared with the rule \u201c{meaning}\u201d ({rule}), the error is "
            yield line + _describe_cuts(rows)


def _describe_cuts(rows: pl.DataFrame) -> str:
    """How far SAGA's error lies from that of one method, and where chance may explain it."""
    cuts, ahead = list[str](), dict[str, list[int]]()
    for relative, h, tests, sure in rows.select("relative", "horizon", "tests", "sure").rows():
        cuts.append(_describe_cut(relative, h))
        if sure == tests:
            words = "SAGA beats it" if relative > 0 else "It beats SAGA"
        elif sure:
            words = "The tests below disagree whether chance explains the difference"
        else:
            words = "Chance may explain the difference"
        ahead.setdefault(words, []).append(h)
    verdicts = [f"{words} {_years_ahead(horizons)}." for words, horizons in ahead.items()]
    return " ".join([f"{_join_words(cuts)}.", *verdicts])


def _describe_cut(relative: float, horizon: int) -> str:
    side = "lower" if relative > 0 else "higher"
    size = f"{100 * abs(relative):.0f}\u00a0%" if abs(relative) >= 0.005 else "less than 1\u00a0%"
    return f"{size} {side} {_years_ahead([horizon])}"


def _years_ahead(horizons: Sequence[int]) -> str:
    """Numbers of years as words: "5 and 10 years ahead"."""
    unit = "year" if list(horizons) == [1] else "years"
    return f"{_join_words([str(horizon) for horizon in horizons])} {unit} ahead"


def _join_words(words: Sequence[str]) -> str:
    """Words as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def describe_missing_sets(metrics: pl.DataFrame) -> str:
    """How far ahead the bundle gives no 90 % sets although outcomes are known; empty if nowhere."""
    rows = metrics.filter(model=BUNDLE_NAME, group="all", setting="in-time").drop_nulls("value")
    judged, covered = (
        set(rows.filter(metric=name)["horizon"]) for name in ("crps_log", "coverage_90")
    )
    if not judged - covered:
        return ""
    ahead = _years_ahead(sorted(judged - covered)).capitalize()
    return f"{ahead} there are no 90\u00a0% sets: too few persons were left to calibrate them."


def _describe_coverage(metrics: pl.DataFrame) -> str:
    """Where the 90 % sets covered as stated, where not, and where there are none."""
    rows = metrics.filter(model=BUNDLE_NAME, metric="coverage_90", group="all", setting="in-time")
    rows = rows.drop_nulls("band_lower").sort("horizon")
    missing = describe_missing_sets(metrics)
    if rows.is_empty():
        return missing
    is_inside = pl.col("value").is_between("band_lower", "band_upper")
    off = rows.filter(~is_inside)["horizon"].to_list()
    shares = _join_words([f"{100 * value:.1f}" for value in rows["value"]])
    verdict = "Chance may explain the distance from 90\u00a0%."
    if off:
        verdict = (
            f"The share {_years_ahead(off)} is further from 90\u00a0% than chance explains 19 "
            "times in 20."
        )
    return (
        f"{_years_ahead(rows['horizon'].to_list()).capitalize()}, the 90\u00a0% sets contained "
        f"{shares}\u00a0% of the outcomes. {verdict} {missing}"
    ).rstrip()
