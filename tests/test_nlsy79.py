"""Train, calibrate, evaluate and forecast on the NLSY79 panel of real persons."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from tests.command_line import done

PANEL = Path(
    os.environ.get(
        "SAGA_NLSY79", Path(__file__).resolve().parents[2] / "shared/data/nlsy79_wages.parquet"
    )
)

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.nlsy,
    pytest.mark.skipif(
        not PANEL.is_file(), reason="the NLSY79 panel is missing; SAGA_NLSY79 names its file"
    ),
]


@pytest.fixture(scope="module")
def fifth_of_panel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every fifth person, and the price index that the mapping names."""
    folder = tmp_path_factory.mktemp("nlsy")
    people = pl.read_parquet(PANEL)
    chosen = people["person_id"].unique().sort().gather_every(5)
    people.filter(pl.col("person_id").is_in(chosen.to_list())).write_parquet(
        folder / "people.parquet"
    )
    (folder / "us_cpi_u_annual.csv").write_text((PANEL.parent / "us_cpi_u_annual.csv").read_text())
    return folder


def test_train_calibrate_evaluate_and_forecast_real_people(fifth_of_panel: Path) -> None:
    people, bundle = fifth_of_panel / "people.parquet", fifth_of_panel / "bundle"
    panel, table_file = f"--panel {people} --mapping nlsy79", fifth_of_panel / "f.csv"
    done("train", panel, "--config tiny --seed 1 --out", bundle)
    done("calibrate", bundle, panel, "--paths 50")
    options = "--baselines carry,groupq --horizons 1,2,10,20 --paths 50"
    done("evaluate", bundle, panel, options, "--out", fifth_of_panel / "evaluation")
    options = "--mapping nlsy79 --horizons 2 --paths 50 --on-error drop"
    done("forecast", people, "--bundle", bundle, options, "--out", table_file)

    metrics = pl.read_parquet(fifth_of_panel / "evaluation/metrics.parquet").filter(
        pl.col("group") == "all"
    )
    assert set(metrics["model"]) == {"saga", "carry", "groupq"}
    errors = metrics.filter((pl.col("metric") == "mae_log") & (pl.col("horizon") == 2))
    assert (errors["n"] > 100).all()
    # Errors outside 0.15 to 0.5 log points would mean wrong units, deflator or signs.
    assert errors["value"].is_between(0.15, 0.5).all()
    table = pl.read_csv(table_file)
    assert table["q50"].is_between(1, 300).all()
    assert (table["p_zero"] == 0).all(), "the panel has no zeros, so the forecast has none"
    assert json.loads((fifth_of_panel / "f.csv.json").read_text())["currency"] == "USD"
