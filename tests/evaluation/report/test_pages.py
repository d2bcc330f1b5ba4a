"""Pages: a miscalibrated model is exposed, published figures carry their label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.report.contest_summary import ContestSummary, _compare_best, _compare_rules
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.pages import all_tables, write_pages
from saga.evaluation.report.paper import paper_tables
from saga.evaluation.report.result_tables import Table, published
from saga.evaluation.scoring.comparison import BOTH, FAMILY, FAMILY_BOTH, PERSON, YEAR

from saga.data.panel import Panel

Make = Callable[..., Panel]


@pytest.fixture(scope="module")
def judged(
    random_walk: Make, walker: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An evaluation: the model is exact, `groupq` far too wide, a variant a little too wide."""
    out = tmp_path_factory.mktemp("judged")
    contestants = [
        walker("saga"),
        walker("groupq", spread=2.5),
        walker("saga:permuted", spread=1.5),
    ]
    Contest(random_walk(6000), ContestOptions(horizons=(1, 10), n_paths=60)).run(contestants, out)
    return out


def _table(tables: list[Table], title: str) -> Table:
    return next(table for table in tables if table.title == title)


def _column(table: Table, head: str) -> list[Any]:
    return [row[list(table.head).index(head)] for row in table.rows]


def test_the_tables_expose_a_forecaster_that_is_too_wide(judged: Path) -> None:
    tables = all_tables(Results.read(judged))
    coverage = _table(tables, "Coverage, in-time")
    assert all(cell.alarm for cell in _column(coverage, "groupq"))
    assert (
        sum(cell.alarm for cell in _column(coverage, "saga")) <= 2
    )  # of eight looks, each wrong once in twenty
    compared = _table(tables, "Differences from saga, in-time, test by person")
    assert (
        "saga is significantly better (p < .01, Holm) at every horizon than groupq."
        in compared.note
    )
    assert all(row[2].bold for row in compared.rows if row[0].text == "groupq")


def test_cuts_are_shares_of_the_reference_score_of_the_same_group(judged: Path) -> None:
    results = Results.read(judged)
    metrics = results.metrics.filter(metric="crps_log", horizon=10, setting="in-time")
    table = _table(paper_tables(results), "Subgroups")
    assert "against groupq" in table.note  # gkos did not take part
    for group, words in (("all", "everybody"), ("quintile=1", "lowest fifth")):
        own_value, reference_value = (
            metrics.filter(model=name, group=group)["value"].item() for name in ("saga", "groupq")
        )
        row = next(row for row in table.rows if row[0].text == words)
        assert row[2].text.startswith(f"{100 * (1 - own_value / reference_value):.1f} (p ")
        assert row[-1].published


def test_the_page_has_no_outside_resource(judged: Path) -> None:
    page = (judged / "tables.html").read_text(encoding="utf-8")
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize(
    ("panel", "currency", "compares"),
    [
        ("saga-register-1-10", "SEK", True),
        ("lisa", "SEK", True),
        ("lisa", "USD", False),
        ("panel", "SEK", False),
    ],
)
def test_figures_of_the_paper_stand_beside_a_panel_like_its_own_alone(
    judged: Path, tmp_path: Path, panel: str, currency: str, compares: bool
) -> None:
    results = Results.read(judged)
    settings = {**results.provenance, "panel": panel, "currency": currency}
    write_pages(replace(results, provenance=settings), tmp_path)
    for name in ("tables.md", "tables.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert (published()["label"] in text) == compares


def test_the_summary_says_how_few_were_judged_far_ahead(judged: Path) -> None:
    results = Results.read(judged)
    far = pl.when(pl.col("horizon") == 10).then(18).otherwise("n")
    summary = ContestSummary.of(replace(results, metrics=results.metrics.with_columns(n=far)))
    assert "(18 of them 10 years ahead)" in summary.persons


@pytest.mark.parametrize("test", [PERSON, BOTH, FAMILY, FAMILY_BOTH])
def test_the_short_answer_names_the_best_rival_and_whether_it_is_better(test: str) -> None:
    rows = [
        ("carry", 1, 0.03, 0.001),
        ("carry", 5, 0.03, 0.2),
        ("gbt", 1, -0.06, 0.001),
        ("gbt", 5, -0.08, 0.3),
        ("gbt", 10, -0.001, 0.3),
        ("lstm", 1, 0.05, 0.001),
        ("lstm", 5, -0.02, 0.002),
        ("clairvoyant", 1, -0.5, 0.001),
        ("saga:permuted", 1, -0.3, 0.001),
    ]
    table = pl.DataFrame(
        rows, schema=["model", "horizon", "relative", "p_holm"], orient="row"
    ).with_columns(metric=pl.lit("crps_log"), group=pl.lit("all"), setting=pl.lit("in-time"))
    of_years = table.with_columns(test=pl.lit(YEAR), p_holm=pl.lit(0.001))
    of_years = of_years.filter(pl.col("horizon") < 10, pl.col("model") != "carry")
    table = pl.concat([of_years, table.with_columns(test=pl.lit(test))])
    first, second = _compare_best(table)
    assert first.replace("\u00a0", " ") == (
        "The best other method is gbt (boosted trees). Compared with it, SAGA's error is 6 % "
        "higher 1 year ahead, 8 % higher 5 years ahead and less than 1 % higher 10 years ahead. "
        "It beats SAGA 1 year ahead. The tests below disagree whether chance explains the "
        "difference 5 years ahead. Chance may explain the difference 10 years ahead."
    )
    assert second == "lstm beats SAGA 5 years ahead."
    assert (
        next(iter(_compare_rules(table)))
        .replace("\u00a0", " ")
        .endswith(
            "(carry), the error is 3 % lower 1 year ahead and 3 % lower 5 years ahead. SAGA beats "
            "it 1 year ahead. Chance may explain the difference 5 years ahead."
        )
    )
    assert list(_compare_best(table.clear())) == []
