"""Warnings: what triggers each, and that none repeats a person's value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

from saga.amount_warnings import about_growth, require_unit
from saga.data.panel import Panel
from saga.errors import InputError
from saga.features.calendar import Calendar
from saga.features.training_reference import TrainingReference
from saga.features.transforms import Transforms
from saga.forecast_results import Result
from saga.forecast_warnings import (
    MAX_PERSONS,
    ForecastWarning,
    add_counts,
    merge_warnings,
    warning_dicts,
)
from saga.macro.group_trends import STATISTICS, GroupSeries, GroupTrends
from saga.macro.history import MacroHistory
from saga.macro.scenarios import Scenario
from saga.request_warnings import Training, find_warnings, past_warnings
from saga.requests import Draws, ForecastRequest, LifetimeRequest, PathsRequest, Request
from saga.training_records import TrainingRecords
from tests import panels

N = 3_000


def panel_of(amounts: Sequence[Sequence[float]], *, birth_year: int = 1980) -> Panel:
    """Persons "0000", ... whose records end in 2022; their transfers are a tenth of earnings."""
    rows = [
        (f"{person:04d}", 2023 - len(row) + i, birth_year, amount, amount / 10)
        for person, row in enumerate(amounts)
        for i, amount in enumerate(row)
    ]
    return panels.panel_of(rows, "transfers")


def ordinary(n: int, years: int = 8, seed: int = 0) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    amounts = rng.lognormal(12.5, 0.4, (n, 1)) * rng.lognormal(0, 0.2, (n, years))
    amounts[rng.random(amounts.shape) < 0.05] = 0
    rows: list[list[float]] = amounts.tolist()
    return rows


PLAIN = replace(
    Transforms.fit(panel_of(ordinary(40)), Calendar(None), 4), reference=None
)  # of a bundle without quantiles of training persons


@pytest.fixture(scope="module")
def reference() -> TrainingReference:
    return TrainingReference.fit(panel_of(ordinary(N)))


# Of records that leave nothing beyond them.
WIDE = Training(TrainingRecords(1900, 2100, 60, 0, 100), None)


def warn(
    panel: Panel, reference: TrainingReference | None, request: Request | None = None
) -> tuple[ForecastWarning, ...]:
    return find_warnings(
        panel,
        request or ForecastRequest(horizons=(1,)),
        Draws(),
        replace(PLAIN, reference=reference),
        WIDE,
    )


def test_ordinary_persons_cause_no_warning(reference: TrainingReference) -> None:
    typical = [[float(np.exp(12.5)) * f for f in (1, 1.1, 0.9, 1, 1.3, 1.1, 0.9, 1)]] * 5
    assert warn(panel_of(typical), reference) == ()
    share = len(warn(panel_of(ordinary(20, seed=1)), reference)) / 20
    assert share <= 0.3


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            [3e7] * 8,
            "compared with persons of the same age, is larger than that of 99.",
        ),
        (
            [9e3] * 8,
            "compared with persons of the same age, is smaller than that of 99.",
        ),
        (
            [2.7e5, 0, 0, 0, 2.7e5, 0, 0, 0],
            "years without earnings is larger than that of 99.",
        ),
        ([2e4, 2e6] * 4, "variation of earnings between years is larger than that of 99."),
        ([2.7e5] * 40, "number of recorded years is larger than that of 99."),
        ([2.7e5] * 2, "number of recorded years is smaller than that of 99."),
    ],
    ids=["rich", "poor", "zeros", "volatile", "long", "short"],
)
def test_a_record_unlike_training_is_named_with_its_quantile(
    reference: TrainingReference, record: list[float], text: str
) -> None:
    panel = panel_of([*ordinary(1, seed=4), record])
    warnings = [w for w in warn(panel, reference) if w.code == "unlike-training"]
    matching = [w for w in warnings if text in w.message]
    assert [w.person_id for w in matching] == ["0001"]
    assert warn(panel, None) == (), "a bundle without quantiles compares nothing"


@pytest.mark.parametrize(
    ("factor", "unit", "fix"),
    [
        (1 / 12, "amounts per month", "`scale: 12`"),
        (1 / 100, "hundreds", "`scale: 100`"),
        (1 / 1_000, "thousands", "`scale: 1000`"),
        (100, "such as ore", "`scale: 0.01`"),
        (1e9, "", "Check their unit"),
    ],
)
def test_an_implausible_unit_names_the_column_and_the_fix(
    reference: TrainingReference, factor: float, unit: str, fix: str
) -> None:
    panel = panel_of([[x * factor for x in row] for row in ordinary(60, seed=2)])
    (earnings,) = [w for w in warn(panel, reference) if w.column == "earnings" and w.code == "unit"]
    assert unit in earnings.message
    assert fix in earnings.message
    assert earnings.count == 60
    transfers = [w for w in warn(panel, reference) if w.column == "transfers"]
    assert bool(transfers) == (factor not in (1 / 12,))


def test_a_single_impossible_year_is_named_and_does_not_stop_the_others(
    reference: TrainingReference,
) -> None:
    """The typical amount of a record does not see one slip of the pen, or one code."""
    for amount, is_named in ((1e15, True), (99_999_998.0, True), (2e7, False)):
        panel = panel_of([*ordinary(3), [2.7e5, amount, 2.8e5]])
        warnings = [w for w in warn(panel, reference) if w.code == "unit"]
        assert [w.person_id for w in warnings] == ["0003"] * is_named
        assert all(str(amount)[:4] not in warning.message for warning in warnings)


def test_few_persons_with_monthly_amounts_are_recognised(reference: TrainingReference) -> None:
    for n in (2, 5):
        monthly = panel_of([[x / 12 for x in row] for row in ordinary(n, seed=2)])
        (warning,) = [w for w in warn(monthly, reference) if w.code == "unit"]
        assert "amounts per month" in warning.message
        assert warning.count == n


def test_two_persons_with_a_steady_monthly_wage_are_recognised(register_panel: Panel) -> None:
    """Two small amounts are not rare enough; that both are steady for years is."""
    register = TrainingReference.fit(register_panel)
    years = np.arange(13)
    monthly = [(36_000 + 400 * years).tolist(), (41_000 + 400 * years).tolist()]
    (warning,) = [w for w in warn(panel_of(monthly), register) if w.code == "unit"]
    assert "amounts per month" in warning.message
    restless = [[*row[:-1], 3 * row[-1]] for row in monthly]
    assert [w for w in warn(panel_of(restless), register) if w.code == "unit"] == []
    assert [w for w in warn(panel_of(monthly[:1]), register) if w.code == "unit"] == []


@pytest.mark.thorough
@pytest.mark.parametrize("n", [2, 5])
def test_few_persons_of_a_register_rarely_cause_a_unit_warning(
    n: int, register_panel: Panel
) -> None:
    """At most 0.003 for each of the two rules, both against smaller amounts."""
    register, rng, groups = TrainingReference.fit(register_panel), np.random.default_rng(4), 400
    persons = register_panel.persons()
    warned = 0
    for _ in range(groups):
        drawn = register_panel.only(rng.choice(persons, n, replace=False).tolist())
        warned += any(w.code == "unit" and w.column == "earnings" for w in warn(drawn, register))
    assert warned <= binom.ppf(0.999, groups, 0.006)


def test_amounts_of_each_year_that_were_said_to_be_real_are_doubted(register_panel: Panel) -> None:
    """Of few persons the growth is not known well enough."""
    real = register_panel.only(register_panel.persons()[:400])
    inflated = pl.col("earnings") * 1.06 ** (pl.col("year") - 1990)
    nominal = real.with_frame(real.frame.with_columns(inflated))
    assert not list(about_growth(real))
    (warning,) = about_growth(nominal)
    assert "leave --prices out" in warning.message
    assert not list(about_growth(nominal.only(nominal.persons()[:100])))


@pytest.mark.parametrize("factor", [1 / 100, 1 / 12, 100])
def test_a_year_of_a_register_in_another_unit_is_named_before_training(
    register_panel: Panel, factor: float
) -> None:
    """Nothing tells which unit of both is right, and persons of few years of birth may be so."""
    real = register_panel.only(register_panel.persons()[::3])
    in_unit = pl.when(pl.col("year") == 2015).then(factor).otherwise(1)
    mixed = real.with_frame(real.frame.with_columns(pl.col("earnings") * in_unit))
    assert any(" in 2015 are much " in warning.message for warning in about_growth(mixed))
    assert not list(about_growth(real))


def test_a_wrong_unit_of_one_column_is_about_that_column(reference: TrainingReference) -> None:
    panel = panel_of(ordinary(30, seed=2))
    wrong = panel.with_frame(panel.frame.with_columns(pl.col("transfers") / 100))
    (warning,) = [w for w in warn(wrong, reference) if w.code == "unit"]
    assert warning.column == "transfers"
    assert "multiply the column by 100" in warning.message
    one = panel_of([[300_000 / 12] * 5])
    assert not [w for w in warn(one, reference) if w.code == "unit"], "one person may earn little"


@pytest.mark.parametrize("factor", [1 / 1_000, 1 / 100, 1 / 12, 1 / 10, 8.9, 100, 1_936])
@pytest.mark.parametrize("year", [2015, 2018, 2022])
def test_a_year_in_another_unit_or_currency_is_named(
    reference: TrainingReference, year: int, factor: float
) -> None:
    """The typical amount of all years hides it; deliveries and calibrations refuse it."""
    panel = panel_of(ordinary(30, seed=2))
    of_year = pl.when(pl.col("year") == year).then(factor).otherwise(1)
    wrong = panel.with_frame(panel.frame.with_columns(pl.col("earnings") * of_year))
    warnings = [w for w in warn(wrong, reference) if f" in {year} are much" in w.message]
    assert [(w.code, w.column) for w in warnings] == [("unit", "earnings")]
    with pytest.raises(InputError, match=f"in {year} are much"):
        require_unit(wrong, reference)
    require_unit(panel, reference)
    few = wrong.only(wrong.persons()[:19])
    assert not [w for w in warn(few, reference) if f" in {year} are much" in w.message]


def test_years_of_few_persons_of_a_register_are_not_taken_for_another_unit(
    register_panel: Panel,
) -> None:
    register, rng = TrainingReference.fit(register_panel), np.random.default_rng(6)
    persons = register_panel.persons()
    for n in (20, 40, 400):
        drawn = register_panel.only(rng.choice(persons, n, replace=False).tolist())
        warnings = warn(drawn, register)
        assert not [w for w in warnings if "those of the other years" in w.message]


def test_horizons_beyond_age_64_are_counted(reference: TrainingReference) -> None:
    panel = panel_of(ordinary(2), birth_year=1965)
    warnings = warn(panel, None, ForecastRequest(horizons=(1, 7, 8)))
    assert [(w.code, w.person_id) for w in warnings] == [
        ("beyond-age", p) for p in ("0000", "0001")
    ]
    assert warn(panel, None, ForecastRequest(horizons=(1, 7))) == ()
    crowd = panel_of(ordinary(MAX_PERSONS + 1), birth_year=1965)
    (counted,) = warn(crowd, None, ForecastRequest(horizons=(8,)))
    assert (counted.person_id, counted.count) == (None, MAX_PERSONS + 1)


def test_rows_outside_the_ages_are_counted() -> None:
    panel = panel_of(ordinary(2))
    (warning,) = warn(Panel(panel.frame, replace(panel.meta, outside_ages=3)), None)
    assert str(warning) == "Years outside ages 16 to 64 are not used. (3 rows)"


def test_options_without_effect_are_named() -> None:
    panel = panel_of(ordinary(2))
    for request, options in (
        (ForecastRequest(horizons=(1,)), ["paths", "seed", "rollout"]),
        (LifetimeRequest(), []),
        (PathsRequest(), []),
    ):
        warnings = find_warnings(panel, request, Draws(20, 3), PLAIN, WIDE, other_rollout=True)
        assert [w.option for w in warnings] == options
        assert {w.code for w in warnings} <= {"no-effect"}
    late = Scenario("late", {2030: (0.1, 0.0, 0.02)})
    warnings = find_warnings(
        panel, ForecastRequest(horizons=(5,)), Draws(), PLAIN, WIDE, scenario=late
    )
    assert [(w.code, w.option, w.person_id) for w in warnings] == [
        ("no-effect", "scenario", "0000"),
        ("no-effect", "scenario", "0001"),
    ]
    assert not find_warnings(
        panel, ForecastRequest(horizons=(8,)), Draws(), PLAIN, WIDE, scenario=late
    )


def test_years_of_a_scenario_before_the_forecast_are_told() -> None:
    panel = panel_of(ordinary(1))
    origin = int(panel.frame["year"].max())  # type: ignore[arg-type]
    calm, request = (0.07, 0.01, 0.02), ForecastRequest(horizons=(5,))

    def messages(rows: list[int], ratios: Sequence[int] = (), history: int = origin) -> list[str]:
        series = MacroHistory(history, np.array([calm]))
        scenario = Scenario(
            "given", dict.fromkeys(rows, calm), ratios={y: {"female/male": 1.0} for y in ratios}
        )
        training = Training(TrainingRecords.of(panel), None, history=series)
        warnings = find_warnings(panel, request, Draws(), PLAIN, training, scenario=scenario)
        return [w.message for w in warnings if w.option == "scenario"]

    assert messages([origin + 1, origin + 2], [origin, origin + 3]) == []
    for rows, ratios in (
        ([origin, origin + 1], []),
        ([origin - 3, origin + 1], []),
        ([origin + 1], [origin - 1]),
    ):
        (message,) = messages(rows, ratios)
        assert "before the forecast begins" in message
    # Without a value of its own in the history, the year of the origin is where draws start.
    assert messages([origin, origin + 1], history=origin - 1) == []
    (nothing,) = messages([origin])
    assert "changes nothing" in nothing


def test_a_ratio_that_moves_nobody_is_told_and_its_persons_are_counted() -> None:
    panel = panel_of(ordinary(3))
    origin, ids = int(panel.frame["year"].max()), panel.persons()  # type: ignore[arg-type]
    levels = np.zeros((1, 2))
    series = GroupSeries(levels, levels, levels, np.array([0.5, 0.5]), levels)
    groups = GroupTrends(
        [("sex", ("female", "male"))],
        origin,
        np.zeros(5),
        np.eye(5),
        dict.fromkeys(STATISTICS, series),
    )
    training = Training(TrainingRecords.of(panel), None, groups=groups)
    scenario = Scenario("given", {}, ratios={origin + 5: {"female/male": 1.0}})
    for known, expected in ((ids, []), (ids[:1], ids[1:]), ([], ids)):
        sex = pl.when(pl.col("person_id").is_in(known)).then(pl.lit("female"))
        frame = panel.frame.with_columns(sex.cast(panel.frame.schema["sex"]).alias("sex"))
        warnings = find_warnings(
            replace(panel, frame=frame),
            ForecastRequest(horizons=(5,)),
            Draws(),
            PLAIN,
            training,
            scenario=scenario,
        )
        of_ratio = [w for w in warnings if w.option == "scenario"]
        assert [w.person_id for w in of_ratio] == expected
        assert all("ratio female/male changes nothing" in w.message for w in of_ratio)


@pytest.mark.parametrize(
    ("trained", "named", "is_told"),
    [("sweden", "sweden", False), ("sweden", None, True), ("fi", "sweden", True), (None, "x", 0)],
)
def test_macro_series_of_a_mapping_that_change_nothing_are_told(
    trained: str | None, named: str | None, is_told: bool
) -> None:
    panel = panel_of(ordinary(1))
    panel = replace(panel, meta=replace(panel.meta, macro=named))
    training = Training(TrainingRecords.of(panel), None, macro=trained)
    warnings = find_warnings(panel, LifetimeRequest(), Draws(), PLAIN, training)
    assert ("no-effect" in {w.code for w in warnings}) == is_told


def test_unknown_years_of_the_past_are_named() -> None:
    panel = panel_of(ordinary(1, years=8))  # from age 35
    (warning,) = past_warnings(panel, 30, "null")
    assert (warning.code, warning.option) == ("unobserved-past", "unknown_years")
    assert past_warnings(panel, 35, "null") == []
    gap = panel.with_frame(panel.frame.filter(pl.int_range(pl.len()) != 3))
    (zero,) = past_warnings(gap, 35, "zero")
    assert "add nothing" in zero.message


def test_simulated_people_come_first() -> None:
    records = TrainingRecords(1990, 2022, 32, 16, 64)
    panel, training = panel_of(ordinary(1)), Training(records, 2022, simulated=True)
    warnings = find_warnings(panel, ForecastRequest(), Draws(seed=1), PLAIN, training)
    assert warnings[0].code == "simulated-people"
    assert "simulated people" in warnings[0].message


def test_no_message_repeats_an_amount_of_a_person(reference: TrainingReference) -> None:
    panel = panel_of([[7_654_321.0] * 8, [4_321.0, 987_654.0] * 4])
    for warning in warn(panel, reference, ForecastRequest()):
        for amount in ("7654321", "7,654,321", "4321", "987654", "765"):
            assert amount not in str(warning) + str(warning.as_dict())


def test_warnings_of_parts_are_added_up_without_persons() -> None:
    named = [ForecastWarning("beyond-age", "Late.", person_id=p) for p in ("a", "b")]
    counted = ForecastWarning("beyond-age", "Late.", count=30)
    general = ForecastWarning("simulated-people", "Simulated.")
    parts = [warning_dicts(part, max_persons=0) for part in ([general, *named], [general, counted])]
    assert add_counts(parts) == [
        {"code": "simulated-people", "message": "Simulated."},
        {"code": "beyond-age", "message": "Late.", "count": 32},
    ]
    assert merge_warnings(named) == tuple(named)
    assert str(merge_warnings(named, max_persons=1)[0]) == "Late. (2 persons)"
    result = Result(pl.DataFrame(), (general, *named), panel_of([[1.0]]), {})
    assert str(result).count("Late.") == 1, "a print is not longer for more persons"
