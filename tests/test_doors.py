"""Every door gives the same result: command line, batch, service, job, client and library.

The library's result is the reference. A door is a function from a case to what its user gets:
the rows, where they come from, the warnings, and how many persons are left out by which rule. With
a ledger, the thresholds follow its state, and what is recorded is the same from every door.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from polars.testing import assert_frame_equal
from pydantic import SecretStr
from saga.api.response_models import PopulationResponse
from saga.api.settings import Settings
from saga.calibration.adaptive.issuance import AdaptedForecaster
from saga.calibration.adaptive.ledger import open_ledger

from saga.batch.run_folder import MANIFEST
from saga.bundle import Bundle, shipped_bundle, write_bundle
from saga.client import Client, Sending
from saga.conformal.families.set_family import SMALLEST_AMOUNT
from saga.data.origins import history, origins_at
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.entrants import Entrants
from saga.forecaster import Forecaster
from saga.population.group_forecast import forecast_groups
from saga.requests import (
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PathsRequest,
    PensionRequest,
    PensionSource,
    PopulationRequest,
    Request,
    options_of,
    percent_label,
)
from tests.calibration.adaptive.ledgers import run_and_record
from tests.command_line import answer
from tests.conftest import Running, Start
from tests.panels import rows_of

Row = dict[str, Any]
PERSONS, MONEY_OF = 9, 2022
YEARLY = ForecastRequest((2, 3, 5), (0.5, 0.9), (0.1, 0.5), limits=True, bands=3, unrounded=True)
CEILING = PensionSource("base: se\nparameters: {ceiling: {2030: 9}}\n")
DOWN = {"year": 2022, "unemployment": 0.2, "real_wage_growth": -0.2, "inflation": 0.02}
CLOSES = [{"year": 2035, "female/male": 1.0}]
LIVES = LifetimeRequest(0.03, 60, 20, "se-2022", (0.8, 0.9), (0.25, 0.5))


@dataclass(frozen=True)
class Case:
    """What is asked, whether a ledger moves the thresholds, and the last year that is read."""

    request: Request
    draws: Draws = Draws(20, 3)
    ledger: bool = False
    origin: int | None = None


CASES = {
    "forecasts": Case(ForecastRequest()),
    "forecasts with limits and bands": Case(YEARLY),
    "forecasts under a scenario": Case(YEARLY, Draws(scenario="recession-1990s")),
    "forecasts under the rows of a scenario": Case(YEARLY, Draws(scenario=[DOWN])),
    "forecasts under a ledger": Case(YEARLY, ledger=True),
    "forecasts of a backtest": Case(YEARLY, origin=2018),
    "forecasts beyond the span of the records": Case(replace(YEARLY, beyond_span=True)),
    "lifetimes": Case(LifetimeRequest()),
    "lifetimes with tax and past": Case(LIVES),
    "lifetimes with a past whose gaps are filled": Case(
        replace(LIVES, unknown_years="interpolate")
    ),
    "lifetimes of another seed": Case(LIVES, Draws(20, 4)),
    "lifetimes while a gap closes": Case(LifetimeRequest(), Draws(20, 3, CLOSES)),
    "lifetimes under a ledger": Case(LifetimeRequest(), ledger=True),
    "paths": Case(PathsRequest(50)),
    "paths with all digits": Case(PathsRequest(unrounded=True), Draws(4, 5)),
    "paths under a ledger": Case(PathsRequest(50), ledger=True),
    "pensions": Case(PensionRequest(ages=(60, 64), unknown_years="zero")),
    "pensions of a reform": Case(
        PensionRequest(reform=CEILING, ages=(62,), unknown_years="interpolate")
    ),
}


@dataclass(frozen=True)
class Got:
    """What the user of a door gets; persons of a warning and those left out as numbers."""

    rows: pl.DataFrame
    provenance: Mapping[str, Any]
    warnings: Counter[tuple[str, str]]
    left_out: Counter[str]


@dataclass
class World:
    """The bundle, a file of persons, a ledger with a state, and services with and without it."""

    bundle: Path
    people: Path
    ledger: str
    start: Start
    forecaster: Forecaster
    folder: Path
    stack: ExitStack
    services: dict[tuple[str | None, bool], Running] = field(default_factory=dict)
    expected: dict[str, Got] = field(default_factory=dict)
    n_outputs: int = 0

    def output(self, suffix: str = "") -> Path:
        """A path that does not exist."""
        self.n_outputs += 1
        return self.folder / f"out{self.n_outputs}{suffix}"

    def service(self, url: str | None, *, jobs: bool = False) -> Running:
        """The service of a ledger, or the one without; `jobs`: with a process for them."""
        if (url, jobs) not in self.services:
            folder = self.output() if jobs else None
            database = None if url is None else SecretStr(url)
            settings = Settings(bundle=self.bundle, threads=1, jobs=folder, database=database)
            self.services[url, jobs] = self.stack.enter_context(self.start(settings))
        return self.services[url, jobs]

    def new_ledger(self) -> str:
        """A copy of the ledger."""
        copy, file = self.output(".sqlite"), Path(self.ledger.removeprefix("sqlite:///"))
        shutil.copy(file, copy)
        shutil.copy(f"{file}.key", f"{copy}.key")
        return f"sqlite:///{copy}"


@pytest.fixture(scope="module")
def world(
    register_panel: Panel, start: Start, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("doors")
    bundle = with_short_records(folder / "bundle")
    forecaster = Forecaster.load(bundle, threads=1)
    test_persons = register_panel.only(persons_of(register_panel, "test"))
    origins = origins_at(test_persons, 2019)
    every_age = slice(0, None, len(origins) // PERSONS)
    past = history(test_persons, origins.take(every_age).take(slice(0, PERSONS)))
    last = past.frame.group_by("person_id").agg(pl.all().sort_by("year").last())
    later = last.select(past.frame.columns).with_columns(pl.col("year") + 1)
    odd = rows_of(
        [
            ("odd-old", 2020, 1930, 9e4),
            ("odd-silent", 2020, 1980, None),
            ("odd-63", 2020, 1957, 9e4),
            ("odd-63", 1970, 1957, 9e4),
        ]
    ).with_columns(pl.col("year", "birth_year").cast(pl.Int16))
    people = pl.concat([past.frame, later, odd], how="diagonal_relaxed").sort("person_id", "year")
    people = people.select(column for column in people if column.null_count() < len(column))
    people.write_parquet(folder / "people.parquet")
    url = f"sqlite:///{folder / 'ledger.sqlite'}"
    ledger = open_ledger(url)
    issued = ForecastRequest((1, 2), coverage=(0.5,))
    run_and_record(AdaptedForecaster.of(forecaster, None), issued, past, Draws(), ledger)
    ledger.settle((person, 2020, 9e7) for person in past.persons())
    ledger.close()
    with ExitStack() as stack:
        yield World(bundle, folder / "people.parquet", url, start, forecaster, folder, stack)


def with_short_records(path: Path) -> Path:
    """The shipped bundle as if its records had outcomes up to four years ahead and age 61."""
    shipped = Bundle.load(shipped_bundle("small"))
    records = asdict(replace(shipped.training_records, longest=4, last_age=61))
    calibration = {**shipped.metrics["calibration"], "records": records}
    contents = replace(
        shipped,
        config={**shipped.config, "records": records},
        metrics={**shipped.metrics, "calibration": calibration},
    )
    return write_bundle(path, contents, seed=1, command="of short records").path


def options(request: Request | PopulationRequest, draws: Draws) -> dict[str, Any]:
    """The options that differ from their defaults, by the names that users know."""
    return {
        option.name or name: getattr(source, name)
        for source in (request, draws)
        for name, (entry, option) in options_of(type(source)).items()
        if getattr(source, name) != entry.default
    }


def line(world: World, case: Case, url: str | None, record: bool) -> list[str]:
    """The options of a case on the command line; the rows of a scenario are in a file."""
    words = ["--prices", str(MONEY_OF)]
    for name, value in options(case.request, case.draws).items():
        if name == "scenario" and not isinstance(value, str):
            rows, value = value, world.output() / "given.csv"  # the name of what has no name
            value.parent.mkdir()
            pl.DataFrame(rows).write_csv(value)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [text])]
    words += [] if url is None else ["--database", url]
    words += [] if case.origin is None else ["--origin", str(case.origin)]
    return [*words, "--record"] if record else words


def told(warnings: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many persons each warning is about; 1 if it is about the result."""
    counts: Counter[tuple[str, str]] = Counter()
    for warning in warnings:
        counts[warning["code"], warning["message"]] += warning.get("count", 1)
    return counts


def rules(problems: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many persons are left out by each rule."""
    counts: Counter[str] = Counter()
    for problem in problems:
        counts[problem["rule"]] += problem.get("count", 1)
    return counts


def library(world: World, case: Case, url: str | None, record: bool) -> Got:
    panel = read_panel(world.people, prices=MONEY_OF, origin=case.origin)
    in_force = None
    if url is not None:
        ledger = open_ledger(url)
        state = ledger.state(world.forecaster.bundle.digest)
        in_force = AdaptedForecaster.of(world.forecaster, state)
    if record:
        assert in_force is not None
        result, counts = run_and_record(in_force, case.request, panel, case.draws, ledger)
        assert counts.new > 0
    else:
        result = world.forecaster.run(case.request, panel, case.draws, in_force)
    return Got(
        result.table,
        json.loads(json.dumps(result.provenance)),
        told(warning.as_dict() for warning in result.warnings),
        rules(problem.as_dict() for problem in result.left_out),
    )


def command(world: World, case: Case, url: str | None, record: bool) -> Got:
    names = {"forecasts": "forecast", "lifetimes": "lifetime", "pensions": "pensions"}
    name = names[case.request.product]
    out = world.output(".parquet")
    words = (name, world.people, "--bundle", world.bundle, "--out", out, "--threads 1")
    report = answer(*words, line(world, case, url, record))
    left_out = rules(report["left_out"])
    return Got(pl.read_parquet(out), report["provenance"], told(report["warnings"]), left_out)


def batch(world: World, case: Case, url: str | None, record: bool) -> Got:
    out = world.output()
    words = ("score", world.people, out, "--bundle", world.bundle, "--persons-per-partition 5")
    answer(*words, "--product", case.request.product, line(world, case, url, record))
    totals = json.loads((out / MANIFEST).read_text())["totals"]
    parts = sorted(out.glob("part-*.parquet"))
    (provenance,) = {
        json.dumps({**json.loads(pl.read_parquet_metadata(part)["saga"]), "warnings": []})
        for part in parts
    }
    rows = pl.concat(map(pl.read_parquet, parts))
    return Got(rows, json.loads(provenance), told(totals["warnings"]), Counter(totals["rejected"]))


def job(world: World, case: Case, url: str | None, record: bool) -> Got:
    sending = Sending(prices=MONEY_OF, origin=case.origin, record=record)
    with Client(world.service(url, jobs=True).url) as client:
        sent = client.submit(pl.read_parquet(world.people), case.request, case.draws, sending)
        totals, answer = sent.wait().totals, sent.result()
    assert totals is not None
    left_out = Counter(totals["rejected"])
    return Got(answer.frame, answer.provenance, told(totals["warnings"]), left_out)


def client(world: World, case: Case, url: str | None, record: bool) -> Got:
    people, request = pl.read_parquet(world.people), case.request
    reading: dict[str, Any] = {"prices": MONEY_OF, "origin": case.origin}
    with Client(world.service(url).url) as opened:
        if isinstance(request, ForecastRequest):
            answer = opened.forecast(people, request, case.draws, record=record, **reading)
        else:
            assert isinstance(request, LifetimeRequest)
            answer = opened.lifetime(people, request, case.draws, record=record, **reading)
    return Got(answer.frame, answer.provenance, told(answer.warnings), rules(answer.left_out))


def as_json(file: Path) -> dict[str, Any]:
    """The persons of a file in the body of a call, in reverse order."""
    years = pl.read_parquet(file).rows_by_key("person_id", named=True)
    persons = [
        {
            "person_id": person,
            "history": [{n: v for n, v in year.items() if v is not None} for year in of_person],
        }
        for person, of_person in reversed(years.items())
    ]
    return {"persons": persons, "prices": MONEY_OF}


def service(world: World, case: Case, url: str | None, record: bool) -> Got:
    """JSON in and out, with the persons in another order."""
    request, product = case.request, case.request.product
    body = {**as_json(world.people), "record": record, "origin": case.origin}
    answer = world.service(url).client.post(
        f"/v1/{product}", json=body | options(request, case.draws)
    )
    assert answer.status_code == 200, answer.text
    content = answer.json()
    order = [entry["person_id"] for entry in content[product]]
    assert order == [each["person_id"] for each in body["persons"] if each["person_id"] in order]
    flat = _lifetime_rows if isinstance(request, LifetimeRequest) else _forecast_rows
    rows = pl.DataFrame(
        [row for entry in content[product] for row in flat(entry)], infer_schema_length=None
    ).sort("person_id", maintain_order=True)
    warnings = told(content["warnings"])
    return Got(rows, content["provenance"], warnings, rules(content["left_out"]))


def _forecast_rows(forecast: Row) -> Iterator[Row]:
    for horizon in forecast["horizons"]:
        yield {
            **{name: forecast[name] for name in ("person_id", "origin_year")},
            "horizon": horizon["h"],
            **{name: horizon[name] for name in ("year", "mean", "p_zero")},
            **_quantiles(horizon["quantiles"]),
            **_sets(horizon["intervals"]),
            **_sets(horizon.get("limits") or [], "limits_"),
            **_sets(horizon.get("positive_intervals") or [], "positive_"),
            **_sets(horizon.get("bands") or [], "band_"),
        }


def _lifetime_rows(lifetime: Row) -> Iterator[Row]:
    value, tax = lifetime["present_value"], lifetime["tax"] or {}
    yield {
        **{name: lifetime[name] for name in ("person_id", "origin_year", "to_age", "rate")},
        **({} if lifetime["from_age"] is None else {"unknown_years": lifetime["unknown_years"]}),
        "mean": value["mean"],
        **_quantiles(value["quantiles"]),
        **_sets(value["intervals"]),
        **{name: tax.get(name) for name in ("tax_mean", "net_mean")},
    }


def _quantiles(quantiles: Row) -> Row:
    return {f"q{percent_label(float(name))}": amount for name, amount in quantiles.items()}


def _sets(sets: Iterable[Row], prefix: str = "") -> Row:
    row: Row = {}
    for entry in sets:
        label = percent_label(entry.pop("coverage"))
        row[f"guarantee_{prefix}{label}"] = entry.pop("guarantee")
        assert len(entry.pop("reason")) > 20
        if entry.get("lower", 0) is None and entry["upper"] is not None:
            entry["lower"] = SMALLEST_AMOUNT  # JSON has no lower end of a set above 0
        start = "" if prefix == "limits_" else prefix
        row |= {f"{start}{name}_{label}": value for name, value in entry.items()}
    return row


DOORS = {
    "command line": command,
    "batch": batch,
    "job": job,
    "client": client,
    "service": service,
}


JOBS = ("forecasts under a ledger", "lifetimes with tax and past", "paths", "pensions of a reform")


def doors_of(name: str) -> list[str]:
    """Paths are a product of batches and jobs only; a job, the slowest door, has a case of each.

    The service answers pensions by jobs only. The client sends a table, and names its scenario.
    """
    case = CASES[name]
    doors = {"paths": ["batch"], "pensions": ["command line", "batch"]}.get(
        case.request.product, ["command line", "batch", "client", "service"]
    )
    if isinstance(case.draws.scenario, list):
        doors.remove("client")
    return [*doors, "job"] if name in JOBS else doors


def assert_same(got: Got, expected: Got, door: str) -> None:
    """JSON has neither types of numbers nor cells, and no path bands of years after the last."""
    is_json = door == "service"
    assert_frame_equal(
        got.rows.with_columns(pl.col("^guarantee_band_.*$").fill_null("none")),
        expected.rows.drop("cell", strict=not is_json) if is_json else expected.rows,
        check_dtypes=not is_json,
        check_column_order=not is_json,
        check_exact=True,
    )
    assert expected.provenance.items() <= got.provenance.items()
    assert got.warnings == expected.warnings
    assert got.left_out == expected.left_out


VARIANTS = {
    "forecasts with limits and bands",
    "lifetimes under a ledger",
    "lifetimes of another seed",
    "lifetimes while a gap closes",
    "lifetimes with a past whose gaps are filled",
    "paths with all digits",
    "pensions",
}


def slow_door(door: str, *case: str) -> Any:
    """A case of a door; jobs, which start a process, and variants are for `make test-thorough`."""
    is_slow = (door == "job" and case != JOBS[:1]) or not VARIANTS.isdisjoint(case)
    marks = [pytest.mark.thorough] * is_slow
    return pytest.param(door, *case, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "name"), [slow_door(door, name) for name in CASES for door in doors_of(name)]
)
def test_every_door_gives_the_result_of_the_library(world: World, door: str, name: str) -> None:
    case = CASES[name]
    url = world.ledger if case.ledger else None
    if name not in world.expected:
        world.expected[name] = library(world, case, url, record=False)
    expected = world.expected[name]
    assert expected.left_out.total() >= 2
    assert expected.rows["person_id"].n_unique() + expected.left_out.total() == PERSONS + 3
    assert ("adaptive" in expected.provenance) == case.ledger
    assert_same(DOORS[door](world, case, url, record=False), expected, door)


GROUPS = PopulationRequest(
    ("sex",),
    ("male/female",),
    ("mean female 2025 < in 2019", "mean_ratio male/female 2024 > 1", "total all 2023 > 1e7"),
    2025,
    0.03,
    60,
    "se-2022",
    (Entrants(2023, 40, 900.5, "female"), Entrants(2024, 45, 300)),
)
EFFECTS = replace(GROUPS, inflow=(), reference="baseline")
GROUP_DRAWS = Draws(20, 3, "recession-1990s")


Tables = tuple[pl.DataFrame, Sequence[Mapping[str, Any]]]  # and warnings


def _tables_of_command(
    world: World, file: Path, request: PopulationRequest, draws: Draws
) -> Tables:
    """`saga score`, then `saga tables`."""
    paths, further, out = world.output(), world.output(), world.output()
    drawn = f"--paths {draws.n_paths} --seed {draws.seed} --to-age {request.to_age}"
    drawn += " --wages" if request.inflow else ""
    bundle = ("--bundle", world.bundle, "--product paths --prices", MONEY_OF)
    answer("score", file, paths, drawn, *bundle, "--scenario", draws.scenario)
    wanted = f"--by sex --compare male/female --until {request.until} --rate {request.rate}"
    people = ("--panel", file, "--prices", MONEY_OF, "--tax", request.tax)
    events = ("--events", [",".join(request.events)])
    if request.inflow:
        further = further.with_suffix(".csv")
        pl.DataFrame([row._asdict() for row in request.inflow]).write_csv(further)
        more = "--inflow"
    else:
        answer("score", file, further, drawn, *bundle)
        more = "--reference"
    done = answer("tables", paths, wanted, *people, *events, more, further, "--out", out)
    page = (out / "tables.html").read_text()
    assert done["entrants"] == (1200.5 if request.inflow else 0)
    assert ("1,200 entrants up to 2025" in page) == bool(request.inflow)
    assert all(warning["message"] in page for warning in done["warnings"])
    table = pl.read_csv(out / "statistics.csv", infer_schema_length=None)
    return table, done["warnings"]


def _tables_of_service(
    world: World, file: Path, request: PopulationRequest, draws: Draws
) -> Tables:
    """JSON in and out."""
    inflow = [row._asdict() for row in request.inflow]
    body = as_json(file) | options(request, draws) | {"inflow": inflow}
    answer = world.service(None).client.post("/v1/populations", json=body)
    assert answer.status_code == 200, answer.text
    content = PopulationResponse.model_validate(answer.json()).model_dump()
    warnings = answer.json()["warnings"]
    rows = [row.pop("group") | row for row in content["groups"]]
    chances = [
        {"statistic": "chance", "value": entry.pop("chance"), **entry}
        for entry in content["events"]
    ]
    return pl.DataFrame([*rows, *chances], infer_schema_length=None), warnings


def _tables_of_job(world: World, file: Path, request: PopulationRequest, draws: Draws) -> Tables:
    with Client(world.service(None, jobs=True).url) as client:
        sent = client.submit(pl.read_parquet(file), request, draws, Sending(prices=MONEY_OF))
        sent.wait()
        answer = sent.result()
    return answer.frame, answer.warnings


@pytest.fixture(scope="module")
def every_age(world: World, register_panel: Panel) -> Path:
    """Persons of every age; the records of twelve end a year earlier, those of three later."""
    file, origins = world.folder / "groups.parquet", origins_at(register_panel, 2019)
    every_age = slice(0, None, len(origins) // 240)
    people = history(register_panel, origins.take(every_age)).frame
    number, year = pl.col("person_id").rank("dense"), pl.col("year")
    later = people.filter(year == 2019, number > 237).with_columns(year + 1)
    earlier = people.filter((year < 2019) | (number > 12))
    pl.concat([earlier, later]).sort("person_id", "year").write_parquet(file)
    return file


@pytest.mark.parametrize(
    ("door", "request_of_groups"),
    [
        (_tables_of_command, GROUPS),
        (_tables_of_service, EFFECTS),
        pytest.param(_tables_of_command, EFFECTS, marks=pytest.mark.thorough),
        pytest.param(_tables_of_service, GROUPS, marks=pytest.mark.thorough),
        pytest.param(_tables_of_job, GROUPS, marks=pytest.mark.thorough),
        pytest.param(_tables_of_job, EFFECTS, marks=pytest.mark.thorough),
    ],
)
def test_every_door_gives_the_same_tables_of_groups(
    world: World,
    every_age: Path,
    door: Callable[[World, Path, PopulationRequest, Draws], Tables],
    request_of_groups: PopulationRequest,
) -> None:
    panel = read_panel(every_age, prices=MONEY_OF)
    result = forecast_groups(world.forecaster, panel, request_of_groups, GROUP_DRAWS)
    expected = result.table
    assert expected.drop_nulls("value").height > 100
    assert expected.filter(statistic="chance")["value"].null_count() == 0
    assert ("effect" in expected.columns) == (request_of_groups is EFFECTS)
    got, warnings = door(world, every_age, request_of_groups, GROUP_DRAWS)
    of_library = [warning.as_dict() for warning in result.warnings]
    mixed = [[w for w in told if w["code"] == "mixed-origins"] for told in (warnings, of_library)]
    assert mixed[0] == mixed[1]
    before, after = (warning["message"] for warning in mixed[0])
    assert before.startswith("10 of these persons were last seen before 2019."), "not twelve"
    assert after.startswith("Fewer than 10 of these persons were last seen after 2019.")
    apart = [] if door is not _tables_of_service else ["year", "sex"]
    for about_events in (True, False):  # JSON has neither the year nor the group of an event
        both = [
            table.filter((pl.col("statistic") == "chance") == about_events)
            .select(name for name in expected.columns if not about_events or name not in apart)
            .cast({pl.Null: pl.Float64})
            for table in (got, expected)
        ]
        assert_frame_equal(*both, check_dtypes=False, check_exact=True)


def entries(url: str) -> list[Any]:
    """The issued intervals of a ledger."""
    columns = "person, origin_year, family, horizon, base, issued, in_force, cells"
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(
            sa.text(f"SELECT {columns} FROM issued_interval ORDER BY 1,2,3,4")
        )
        stored = [tuple(row) for row in rows]
    engine.dispose()
    return stored


RECORDED = {
    "forecasts": Case(ForecastRequest((1, 2), bands=2), Draws(), ledger=True),
    "lifetimes": Case(LifetimeRequest(), Draws(200), ledger=True),
}


@pytest.mark.parametrize("door", [slow_door(door) for door in DOORS])
@pytest.mark.parametrize("product", RECORDED)
def test_every_door_records_what_it_issues(world: World, door: str, product: str) -> None:
    case = RECORDED[product]
    reference, url = world.new_ledger(), world.new_ledger()
    expected = library(world, case, reference, record=True)
    assert_same(DOORS[door](world, case, url, record=True), expected, door)
    assert len(entries(reference)) > len(entries(world.ledger))
    assert entries(url) == entries(reference)
