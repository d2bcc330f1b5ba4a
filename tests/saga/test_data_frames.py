"""Frames of pandas, polars and Arrow give one panel, and results go back to each of them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from saga import (
    Draws,
    Forecaster,
    ForecastRequest,
    InputError,
    LifetimeRequest,
    Panel,
    PopulationRequest,
    UsageError,
    forecast_groups,
    read_panel,
)
from saga.cli import console
from saga.client.frames import to_parquet
from saga.data.mapping import ARGUMENTS
from saga.files.data_frames import ArrowStream, Rows
from saga.forecast_results import Forecasts, show_value
from saga.macro.scenarios import scenario_from
from saga.population.alignment import read_targets
from saga.population.disclosure import DisclosureRules
from saga.population.population_paths import Population
from saga.population.scored_paths import PathRows, read_persons
from saga.states.life_courses import LifeCourses

PEOPLE = Path(__file__).resolve().parents[2] / "examples" / "people.csv"
TEXT = {"person_id": str}
PERSONS = pl.read_csv(PEOPLE, schema_overrides={"person_id": pl.String})
RENAMED = PERSONS.rename({"earnings": "wage"})


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return Forecaster.load(threads=1)


@pytest.fixture(scope="module")
def forecasts(forecaster: Forecaster) -> Forecasts:
    return forecaster.forecast(read_panel(PEOPLE), ForecastRequest(horizons=(1, 5)))


def _with_gap() -> pd.DataFrame:
    """Years as floats and a missing amount, as pandas reads a column with an empty cell."""
    frame = pd.read_csv(PEOPLE, dtype={**TEXT, "year": float})
    frame.loc[1, "earnings"] = float("nan")
    return frame


@pytest.mark.parametrize(
    "source",
    [
        pd.read_csv(PEOPLE, dtype=TEXT),
        pd.read_csv(PEOPLE, dtype=TEXT).astype({"person_id": "category"}),
        pd.read_csv(PEOPLE, dtype=TEXT).set_index(["person_id", "year"]),
        pd.read_csv(PEOPLE, dtype=TEXT).sample(frac=1, random_state=0),
        PERSONS,
        pa.Table.from_pandas(pd.read_csv(PEOPLE, dtype=TEXT)),
    ],
    ids=["pandas", "category", "index", "shuffled", "polars", "arrow"],
)
def test_every_kind_of_frame_gives_the_panel_of_the_file(source: ArrowStream) -> None:
    panel = read_panel(source)
    assert_frame_equal(panel.frame, read_panel(PEOPLE).frame)
    assert panel.meta.ignored == ()


DRAWS = Draws(n_paths=2)
PATHS = PathRows(pl.LazyFrame({"person_id": ["1", "2"], "path": 0, "year": 2023}), {})
# How each table that Python takes is read, and one of its kind.
TABLES: dict[str, tuple[Callable[[Forecaster, Any], object], pl.DataFrame]] = {
    "forecast": (lambda f, t: f.forecast(t, horizons=1).table.rows(), PERSONS),
    "lifetime": (lambda f, t: f.lifetime(t, draws=DRAWS).table.rows(), PERSONS),
    "pensions": (lambda f, t: f.pensions(t, draws=DRAWS).table.rows(), PERSONS),
    "weights": (
        lambda _, t: read_persons(PATHS, None, (), t)[0].rows(),
        pl.DataFrame({"person_id": ["1", "2"], "weight": [2.0, 3.5]}),
    ),
    "inflow": (
        lambda _, t: PopulationRequest(inflow=t).inflow,
        pl.DataFrame({"year": [2030, 2031], "age": 20, "persons": 3.5, "sex": ["male", None]}),
    ),
    "scenario": (
        lambda _, t: scenario_from(t, None),
        pl.DataFrame(
            {"year": [2030], "unemployment": 0.07, "real_wage_growth": 0.01, "inflation": 0.02}
        ),
    ),
    "targets": (
        lambda _, t: read_targets(t).frame.select("year", "target_sex", "mean").rows(),
        pl.DataFrame({"year": [2030, 2030], "sex": ["female", "male"], "mean": [3e5, 4e5]}),
    ),
    "client": (lambda _, t: read_panel(pl.read_parquet(to_parquet(t))).frame.rows(), PERSONS),
}
KINDS: dict[str, Callable[[pl.DataFrame], ArrowStream]] = {
    "pandas": pl.DataFrame.to_pandas,
    "index": lambda table: table.to_pandas().set_index(table.columns[0]),
    "arrow": pl.DataFrame.to_arrow,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table", TABLES)
def test_every_table_that_python_takes_may_be_a_frame_of_each_library(
    table: str, kind: str, forecaster: Forecaster
) -> None:
    read, frame = TABLES[table]
    assert read(forecaster, KINDS[kind](frame)) == read(forecaster, frame)


@pytest.mark.parametrize("ids", [[1.0, 2.0], [1, 2], [" 1", "2 "]])
def test_persons_of_weights_are_written_as_those_of_a_panel(ids: list[object]) -> None:
    table = pd.DataFrame({"person_id": ids, "weight": [2, 3.5]})
    persons, _ = read_persons(PATHS, None, (), table)
    assert persons["weight"].to_list() == [2, 3.5]


def test_persons_who_have_a_weight_and_no_paths_are_told() -> None:
    table = pl.DataFrame({"person_id": ["1", "2", "3", "4"], "weight": [2.0, 3.5, 1.0, 1.0]})
    persons, n_others = read_persons(PATHS, None, (), table)
    assert (persons["person_id"].to_list(), n_others) == (["1", "2"], 2)
    population = Population(PATHS, persons, n_others=30)
    (warning,) = population.warnings(PopulationRequest(), DisclosureRules())
    assert "weights of 30 persons change nothing" in warning.message
    assert warning.option == "weights"


@pytest.mark.parametrize(
    ("weights", "why"),
    [([1.0, -2.0], "not positive numbers, first in row 2"), (["1", "x"], "row 2 has something")],
)
def test_faulty_weights_of_a_frame_are_named_by_row(
    weights: list[object], why: str, forecaster: Forecaster
) -> None:
    table = pd.DataFrame({"person_id": ["0001", "0002"], "weight": weights})
    with pytest.raises(InputError, match=f"(?s)the table of weights .*{why}"):
        forecast_groups(forecaster, PEOPLE, draws=DRAWS, weights=table)


def test_an_empty_cell_of_pandas_is_unknown() -> None:
    panel = read_panel(_with_gap())
    assert panel.frame["earnings"].null_count() == 1
    assert panel.frame["year"].dtype == pl.Int32


@pytest.mark.parametrize("table", [[("0001", 2020, 1985, 0)], pd.Series([0]), pl.Series([0])])
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(UsageError, match=f"a {type(table).__name__} is not a table"):
        read_panel(table)


@pytest.mark.parametrize(
    "change",
    [
        lambda earnings: earnings.sort_values(),
        lambda earnings: earnings.rename(lambda row: row + 1),
        lambda earnings: earnings.to_dict(),
        set,
    ],
    ids=["sorted", "another index", "a dictionary", "a set"],
)
def test_columns_without_a_common_order_are_refused(change: Callable[[pd.Series], Any]) -> None:
    columns = dict(pd.read_csv(PEOPLE, dtype=TEXT).sort_index(ascending=False).items())
    assert_frame_equal(read_panel(columns).frame, read_panel(PEOPLE).frame)
    with pytest.raises(UsageError, match="no common order"):
        read_panel({**columns, "earnings": change(columns["earnings"])})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame.assign(earnings=[*frame["earnings"][:-1].astype(object), "SENTINEL"]),
        lambda frame: pd.concat([frame, frame[["earnings"]]], axis=1),
        lambda frame: pa.Table.from_pandas(frame).append_column(
            "x", pa.array([(1, 2, 3)] * len(frame), pa.month_day_nano_interval())
        ),
        lambda frame: {**frame.to_dict("list"), "birth_year": 1985},
    ],
    ids=["mixed types", "one name twice", "a type that is not known", "a single value"],
)
def test_a_frame_that_arrow_cannot_read_is_refused_without_its_values(
    spoil: Callable[[pd.DataFrame], Rows],
) -> None:
    with pytest.raises(UsageError, match=r"mixes types.*single value") as error:
        read_panel(spoil(pd.read_csv(PEOPLE, dtype=TEXT)))
    assert "SENTINEL" not in str(error.value)


def test_another_request_than_that_of_the_table_is_refused(forecaster: Forecaster) -> None:
    with pytest.raises(UsageError, match=r"of type ForecastRequest.*not LifetimeRequest"):
        forecaster.forecast(read_panel(PEOPLE), LifetimeRequest())  # type: ignore[arg-type]


@pytest.mark.parametrize("horizons", [5, range(4, 6)])
def test_a_forecast_reads_what_read_panel_reads(
    forecaster: Forecaster, forecasts: Forecasts, horizons: int | range
) -> None:
    """5 is the year 5, as on the command line; a range is all of its years."""
    columns = PERSONS.to_dict(as_series=False)
    table = forecaster.forecast(columns, horizons=horizons).table
    in_both = pl.col("horizon") == 5
    assert_frame_equal(table.filter(in_both), forecasts.table.filter(in_both))
    assert table["horizon"].unique().to_list() == ([5] if horizons == 5 else [4, 5])


@pytest.mark.parametrize(
    "door",
    [
        lambda _, source, **names: read_panel(source, **names).frame,
        lambda forecaster, source, **names: forecaster.panel(source, **names).frame,
        lambda forecaster, source, **names: forecaster.forecast(source, **names).table,
        lambda forecaster, source, **names: forecaster.lifetime(source, draws=DRAWS, **names).table,
        lambda forecaster, source, **names: forecaster.pensions(source, draws=DRAWS, **names).table,
        lambda forecaster, source, **names: (
            forecast_groups(forecaster, source, draws=DRAWS, **names).table
        ),
    ],
    ids=["read_panel", "panel", "forecast", "lifetime", "pensions", "forecast_groups"],
)
def test_every_door_takes_the_names_of_the_columns(
    door: Callable[..., pl.DataFrame], forecaster: Forecaster
) -> None:
    """As `saga.fit` does; also the columns of a file, and beside a mapping of its other ones."""
    frame = pl.read_csv(PEOPLE, infer_schema=False)
    names = {"id": "pid", "time": "t", "target": "wage", "birth_year": "born"}
    renamed = frame.rename(dict(zip(ARGUMENTS, names.values(), strict=True)))
    expected = door(forecaster, frame)
    assert_frame_equal(door(forecaster, renamed, **names), expected)
    with pytest.raises(InputError, match=r"looked for wag\).*Is it wage"):
        door(forecaster, renamed, **{**names, "target": "wag"})
    with pytest.raises(
        InputError, match=r'looked for wage\).* Is it earnings\?.*: target="ITS_NAME"'
    ):
        door(forecaster, PEOPLE, target="wage")
    with pytest.raises(InputError, match='Or name it: birth_year="ITS_NAME"'):
        door(forecaster, renamed.drop("born"), **{**names, "birth_year": None})
    with pytest.raises(UsageError, match=r'target is of type str, such as target="ITS_NAME"'):
        door(forecaster, renamed, **{**names, "target": 3})


def test_names_count_before_those_of_a_mapping() -> None:
    panel = read_panel(RENAMED, target="wage", mapping={"columns": {"earnings": "other"}})
    assert_frame_equal(panel.frame, read_panel(PEOPLE).frame)
    with pytest.raises(UsageError, match='Leave target="wage" out'):
        Forecaster.load(threads=1).forecast(panel, target="wage")


def test_a_mapping_may_be_a_dictionary() -> None:
    panel = read_panel(RENAMED, mapping={"columns": {"earnings": "wage"}})
    assert_frame_equal(panel.frame, read_panel(PEOPLE).frame)
    with pytest.raises(UsageError, match="the key `colums` is not known"):
        read_panel(RENAMED, mapping={"colums": {"earnings": "wage"}})


def test_a_result_has_the_same_content_in_each_library(forecasts: Forecasts) -> None:
    table = forecasts.table
    assert_frame_equal(pl.DataFrame(forecasts.to_arrow()), table)
    assert_frame_equal(pl.DataFrame(pa.table(forecasts)), table)
    assert forecasts.to_pandas()["q50"].tolist() == table["q50"].to_list()
    assert list(forecasts.to_pandas()) == table.columns


def test_a_result_shows_persons_years_units_and_warnings(forecasts: Forecasts) -> None:
    for shown in (str(forecasts), forecasts._repr_html_()):
        assert "Forecasts of 2 persons" in shown
        assert "simulated people" in shown
        assert f"{forecasts.table['q50'][0]:,.0f}" in shown
    assert forecasts._repr_html_().count("<table>") == forecasts._repr_html_().count("</table>")


def test_a_set_without_zero_that_begins_at_1_unit_begins_above_0_in_texts_alone(
    forecasts: Forecasts,
) -> None:
    moved = replace(forecasts, table=forecasts.table.with_columns(lower_90=pl.lit(1.0)))
    for shown in (str(moved), moved._repr_html_()):
        assert shown.count("above 0") == len(moved.table)
    assert moved.to_arrow()["lower_90"].to_pylist() == [1.0] * len(moved.table)
    starts = [show_value("lower_90", x) for x in (0.0, 1.0, 1.5, 63_488.0)]
    assert starts == ["0", "above 0", "1.50", "63,488"]
    assert show_value("mean", 1.0) == "1"


@pytest.mark.parametrize("column", ["statistic", "measure"])
def test_a_share_or_ratio_below_1_is_shown_as_it_is(
    column: str, forecasts: Forecasts, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a set of amounts begins above 0."""
    shares = forecasts.table.head(1).select("person_id", "mean", lower_90=0.9767, upper_90=1.0)
    shares = shares.with_columns(pl.lit("losers").alias(column))
    console.table(shares, "Groups")
    shown = capsys.readouterr().out, str(replace(forecasts, table=shares))
    for text in shown:
        assert "0.9767" in text
        assert "above 0" not in text


def test_a_lifetime_and_a_forecaster_have_a_summary(forecaster: Forecaster) -> None:
    lifetimes = forecaster.lifetime(read_panel(PEOPLE), LifetimeRequest(to_age=40))
    assert "Lifetimes of 2 persons" in str(lifetimes)
    assert forecaster.bundle.digest[:12] in str(forecaster)
    assert "<table>" in forecaster._repr_html_()


def test_what_logs_show_is_one_short_line_without_values_of_persons(
    forecaster: Forecaster, forecasts: Forecasts
) -> None:
    panel = read_panel(PEOPLE)
    paths = forecaster.simulate(panel, DRAWS, to_horizon=3)
    marginals = next(forecaster.marginals(panel, n_horizons=3))
    shown = {
        "<Panel panel: rows 10 person-years of 2 persons>": panel,
        "<Forecasts of 2 persons: rows 4>": forecasts,
        "<Paths of 2 persons: earnings (2, 3, 2)>": paths,
        "<Marginals of 2 persons: grid (2, 3,": marginals,
        "<Forecaster: bundle ": forecaster,
        "<Bundle ": forecaster.bundle,
        "LifeCourses(paths=<Paths": LifeCourses(paths, {}, {}),
    }
    for begins, value in shown.items():
        assert repr(value).startswith(begins)
        assert "\n" not in repr(value)
        assert len(repr(value)) < 200
        assert not {"0001", f"{paths.earnings[0, 0, 0]:.0f}"} & set(re.findall(r"\w+", repr(value)))


def test_bundle_and_results_are_pickled_and_a_forecaster_says_how_to_load_it(
    forecaster: Forecaster, forecasts: Forecasts
) -> None:
    bundle, copied = pickle.loads(pickle.dumps((forecaster.bundle, forecasts)))
    again = Forecaster(bundle, threads=1).forecast(copied.panel, ForecastRequest(horizons=(1, 5)))
    assert_frame_equal(again.table, forecasts.table)
    assert_frame_equal(copied.table, forecasts.table)
    for used in (forecaster, forecaster.with_calibrator(forecaster.calibrator)):
        with pytest.raises(UsageError, match=r"Forecaster\.load\(path\)"):
            pickle.dumps(used)


def test_the_summary_of_a_panel_has_no_value_of_a_person() -> None:
    frame = pl.read_csv(PEOPLE, infer_schema=False).with_columns(
        person_id="x<b>" + pl.col("person_id"), spare=pl.lit("1")
    )
    panel: Panel = read_panel(frame)
    for shown in (str(panel), panel._repr_html_()):
        assert "10 person-years of 2 persons" in shown
        assert "spare" in shown
        assert "x<b>" not in shown
        assert not set(frame["earnings"]) & set(shown.split())
