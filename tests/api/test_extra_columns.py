"""The service with a bundle whose panel had columns of its own: the same numbers as the library."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from saga.api.codecs import PARQUET
from saga.api.settings import Settings
from saga.training.fit import train
from saga.training.harness import RunOptions

from saga.data.panel import Panel
from saga.forecaster import Forecaster
from saga.requests import ForecastRequest
from tests.conftest import Running, Start
from tests.encoded import encoded
from tests.training.test_own_column_training import CONFIG, META, people
from tests.waiting import awaited

YEARS = (2005, 2006, 2007)
OWN = {"n1": {"race": 1, "hours": 40.0}, "n2": {"race": "2", "wealth": 3}, "n3": None}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, start: Start) -> Iterator[Running]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("extra")
    config = replace(CONFIG, max_steps=60, validate_every=30)
    train(people(200), folder / "bundle", config=config, seed=1, run=RunOptions())
    settings = Settings(bundle=folder / "bundle", threads=1, jobs=folder / "jobs")
    with start(settings) as running:
        yield running


def sent(own: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "person_id": person_id,
            "birth_year": 1970,
            "history": [
                {"year": year, "earnings": 150_000.0, **({} if extra is None else {"extra": extra})}
                for year in YEARS
            ],
        }
        for person_id, extra in own.items()
    ]


def table(own: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "person_id": person_id,
                "year": year,
                "birth_year": 1970,
                "earnings": 150_000.0,
                **{f"extra_{name}": str(value) for name, value in (extra or {}).items()},
            }
            for person_id, extra in own.items()
            for year in YEARS
        ],
        infer_schema_length=None,
    )


def means(service: Running) -> list[float]:
    """The means of the library, in the order of OWN."""
    wanted = table(OWN).with_columns(
        extra_wealth=pl.col("extra_wealth").cast(pl.Float64),
        extra_hours=pl.col("extra_hours").cast(pl.Float64),
    )
    forecaster = Forecaster.load(service.settings.bundle, threads=1)
    forecast = forecaster.forecast(Panel.of(wanted, META), ForecastRequest((1,), unrounded=True))
    return forecast.table["mean"].to_list()


def test_own_columns_in_json_and_in_tables_give_the_forecasts_of_the_library(
    service: Running,
) -> None:
    expected = means(service)
    assert len(set(expected)) == 3, "the columns matter"
    options = {"horizons": [1], "unrounded": True}
    answer = service.forecast({"persons": sent(OWN), **options})
    assert answer.status_code == 200, answer.text
    assert [f["horizons"][0]["mean"] for f in answer.json()["forecasts"]] == expected
    answer = service.client.post(
        "/v1/forecasts?horizons=1&unrounded=true",
        content=encoded(table(OWN)),
        headers={"Content-Type": PARQUET},
    )
    assert [f["horizons"][0]["mean"] for f in answer.json()["forecasts"]] == expected


@pytest.mark.thorough
def test_a_job_reads_own_columns(service: Running, tmp_path: Path) -> None:
    posted = service.client.post(
        "/v1/jobs",
        json={"product": "forecasts", "persons": sent(OWN), "horizons": [1], "unrounded": True},
    )
    job = posted.headers["location"]
    awaited(lambda: service.client.get(job).json()["state"] in ("succeeded", "failed"), 120)
    rows = pl.read_parquet(io.BytesIO(service.client.get(f"{job}/result").content))
    assert rows.sort("person_id")["mean"].to_list() == means(service)


@pytest.mark.parametrize(
    ("extra", "column"),
    [
        ({"shoes": 43}, "extra_shoes"),
        ({"hours": "many"}, "extra_hours"),
        ({"hours": [1]}, None),
        ({str(i): i for i in range(101)}, None),
        ([1], None),
    ],
)
def test_own_columns_that_cannot_be_read_are_refused(
    service: Running, extra: Any, column: str | None
) -> None:
    answer = service.forecast({"persons": sent({"n1": extra}), "horizons": [1]})
    assert answer.status_code == 422, answer.text
    if column is not None:
        assert answer.json()["problems"][0]["column"] == column
        assert "many" not in answer.text


def test_the_service_lists_own_columns_and_says_when_one_is_missing(service: Running) -> None:
    listed = service.client.get("/v1/variables").json()["extra"]
    assert [column["name"] for column in listed][:2] == ["extra_race", "extra_wealth"]
    assert listed[0]["codes"] == ["1", "2"]
    answer = service.forecast({"persons": sent({"n1": {"race": "9"}}), "horizons": [1]}).json()
    about = {w["column"] for w in answer["warnings"] if w["code"] == "own-column"}
    assert about == {"extra_race", "extra_wealth", "extra_enrolled", "extra_hours"}
