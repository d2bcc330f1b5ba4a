"""The recipe for R, run by R against a real server; needs Rscript with httr2 and jsonlite."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from saga.api.settings import Settings

from saga.client import Client
from saga.requests import ForecastRequest
from tests.conftest import Running

RECIPE = Path(__file__).parents[2] / "examples" / "service.R"
PROGRAM = """
source("{recipe}")
persons <- read.csv("panel.csv", colClasses = c(person_id = "character"))
table <- saga_forecast(persons, horizons = c(1, 5), coverage = 0.9, unrounded = TRUE)
stopifnot(identical(attr(table, "provenance")$seed, 0L))
write.csv(table, "table.csv", row.names = FALSE)
stopifnot(saga_job("panel.csv", "result.parquet", horizons = "1,5", unrounded = "true")$rows > 0)
persons$earnings[2] <- -731642
answer <- tryCatch(saga_forecast(persons), error = conditionMessage)
writeLines(as.character(answer), "error.txt")
"""


def _has_packages() -> bool:
    program = 'quit(status = !all(c("httr2", "jsonlite") %in% rownames(installed.packages())))'
    return (
        shutil.which("Rscript") is not None
        and subprocess.run(["Rscript", "-e", program], capture_output=True).returncode == 0
    )


@pytest.mark.r
@pytest.mark.slow
@pytest.mark.thorough
def test_r_gets_the_numbers_of_python(
    start: Callable[[Settings], AbstractContextManager[Running]], tiny_bundle: Path, tmp_path: Path
) -> None:
    if not _has_packages():
        pytest.skip("there is no Rscript with httr2 and jsonlite")
    persons = pl.DataFrame(
        [
            {"person_id": f"0{i}", "year": year, "birth_year": 1970 + i, "earnings": 2e5 + i}
            for i in range(3)
            for year in (2018, 2019, 2022)
        ]
    ).with_columns(earnings=pl.when(pl.col("year") != 2019).then("earnings"))
    persons.write_csv(tmp_path / "panel.csv")
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=tmp_path / "jobs")
    with start(settings) as service, Client(service.url) as client:
        request = ForecastRequest(horizons=(1, 5), coverage=(0.9,), unrounded=True)
        expected = client.forecast(persons, request).frame
        done = subprocess.run(
            ["Rscript", "-e", PROGRAM.format(recipe=RECIPE)],
            cwd=tmp_path,
            env=os.environ | {"SAGA_URL": service.url},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    table = pl.read_csv(
        tmp_path / "table.csv", schema_overrides={"person_id": pl.String}, null_values="NA"
    )
    columns = ["person_id", "year", "horizon", "mean", "q05", "q50", "lower_90", "upper_90"]
    assert expected["includes_zero_90"].to_list() == [False, None] * 3, "a set, and none"
    zeros = table["includes_zero_90"].cast(pl.String).str.to_lowercase().to_list()
    assert zeros == ["false", None] * 3
    assert table["guarantee_90"].to_list() == expected["guarantee_90"].to_list()
    assert_frame_equal(
        table.select(columns),
        expected.select(columns),
        check_dtypes=False,
        rel_tol=1e-9,
    )
    result = pl.read_parquet(tmp_path / "result.parquet")
    assert_frame_equal(result.select(columns), expected.select(columns))
    text = (tmp_path / "error.txt").read_text()
    assert "column earnings" in text
    assert "731642" not in text
