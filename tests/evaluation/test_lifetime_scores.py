"""Lifetimes: values and taxes against explicit sums; a wrong forecaster has worse scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scoringrules as sr
from saga.evaluation.contestants import Contestant, SampledContestant
from saga.evaluation.lifetime_scores import (
    RATES,
    TRUTH,
    LifetimeTask,
    LifetimeValues,
    lifetime_table,
)
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.selection import select_tables

from saga.data.origins import Origins
from saga.data.panel import Panel, PanelMeta
from saga.errors import UsageError
from saga.lifetime import gini, top_share
from saga.paths import Paths
from saga.tax.tax_rules import resolve_tax

N, DRAWS, PATHS, ORIGIN = 60, 8, 40, 2020
IDS = [f"{i:03d}" for i in range(N)]


def _draw_earnings(
    rng: np.random.Generator, level: np.ndarray, born: np.ndarray, years: int, count: int
) -> np.ndarray:
    """Earnings (n, years, count): a level times noise, with years of zero; NaN beyond age 64."""
    earnings = level[:, None, None] * np.exp(rng.normal(0, 0.4, (len(level), years, count)))
    earnings = np.where(rng.random(earnings.shape) < 0.1, 0.0, earnings)
    age = ORIGIN + np.arange(1, years + 1) - born[:, None]
    return np.where((age <= 64)[:, :, None], earnings, np.nan)


class Known(SampledContestant):
    """Forecasts `level` times a factor, with the spread of the truth."""

    def __init__(self, name: str, level: np.ndarray, born: np.ndarray, factor: float = 1.0) -> None:
        self.name, self.level, self.born, self.factor = name, level, born, factor

    def paths(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Iterator[Paths]:
        earnings = self.factor * _draw_earnings(
            np.random.default_rng(5), self.level, self.born, to_horizon, n_paths
        )
        whole = Paths(origins.person_id, self.born, origins.year, earnings.astype(np.float32))
        for start in range(0, len(origins), 25):
            yield whole.take(slice(start, start + 25))


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[LifetimeTask, np.ndarray, Known, Known]:
    """A register to 2050, its realised earnings (n, 30, D), a right and a wrong forecaster."""
    directory = tmp_path_factory.mktemp("register")
    rng = np.random.default_rng(0)
    born, level = rng.integers(1965, 1996, N), np.exp(rng.normal(12.6, 0.5, N))
    truth = _draw_earnings(rng, level, born, 30, DRAWS)
    truth[3, 4:, 2] = np.nan  # abroad in one of the futures
    for draw in range(DRAWS):
        rows = pl.DataFrame(
            {
                "person_id": np.repeat(IDS, 30).tolist(),
                "year": np.tile(ORIGIN + np.arange(1, 31), N).astype(np.int32),
                "earnings": truth[:, :, draw].ravel(),
            }
        )
        (directory / f"future/draw={draw}").mkdir(parents=True)
        rows.with_columns(pl.col("earnings").fill_nan(None)).write_parquet(
            directory / f"future/draw={draw}/part.parquet"
        )
    (directory / "register.json").write_text(json.dumps({"future_to": 2050, "future_prices": 2022}))
    origin_rows = {"person_id": IDS, "year": [ORIGIN] * N, "birth_year": born, "earnings": level}
    panel = Panel.of(pl.DataFrame(origin_rows), PanelMeta("lives"))
    setting = Setting(
        "forward", panel, Origins(np.array(IDS), np.full(N, ORIGIN)), [(0, truth[:, :1, 0])]
    )
    task = LifetimeTask(directory, setting, PATHS, 0)
    return task, truth, Known("right", level, born), Known("wrong", level, born, factor=1.4)


@pytest.fixture(scope="module")
def value_files(
    world: tuple[LifetimeTask, np.ndarray, Known, Known], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    task, _, *models = world
    folder = tmp_path_factory.mktemp("values")
    contestants: list[Contestant] = list(models)
    return {TRUTH: task.store_realised(folder)} | {
        model.name: task.store_simulated(model, folder) for model in contestants
    }


@pytest.fixture(scope="module")
def table(
    world: tuple[LifetimeTask, np.ndarray, Known, Known], value_files: dict[str, Path]
) -> pl.DataFrame:
    return lifetime_table(value_files, world[0].reach)


def _at(
    table: pl.DataFrame, model: str, statistic: str, rate: float = 0.02, group: str = "all"
) -> dict[str, float]:
    return table.filter(model=model, statistic=statistic, rate=rate, group=group).row(0, named=True)


def _value(earnings: np.ndarray, rate: float) -> np.ndarray:
    """Present values (n, M), written out; a year abroad makes the sum unknown."""
    total = np.zeros((earnings.shape[0], earnings.shape[2]))
    for h in range(earnings.shape[1]):
        total += earnings[:, h] / (1 + rate) ** (h + 1)
    return total


def test_realised_lifetimes_are_sums_of_the_futures_on_disk(
    world: tuple[LifetimeTask, np.ndarray, Known, Known], value_files: dict[str, Path]
) -> None:
    task, truth, *_ = world
    realised = LifetimeValues.read(value_files[TRUTH])
    counted = np.where((np.arange(1, 31) <= task.years[:, None])[:, :, None], truth, 0.0)
    for rate in RATES:
        assert realised.values[f"value:{rate:g}"] == pytest.approx(
            _value(counted, rate), rel=1e-6, nan_ok=True
        )
    assert np.isnan(realised.values["value:0.02"]).sum() == 1
    paid = np.where(np.isnan(counted), np.nan, resolve_tax("se-2022").tax(np.nan_to_num(counted)))
    assert realised.values["tax:se-2022"] == pytest.approx(
        _value(paid, 0.02), rel=1e-6, nan_ok=True
    )
    municipal, state, fee = (
        0.324 * counted,
        0.2 * np.maximum(counted - 554_900, 0),
        0.07 * np.minimum(counted, 8.07 * 71_000),
    )
    assert realised.values["tax:paper"] == pytest.approx(
        _value(municipal + state + fee, 0.02), rel=1e-6, nan_ok=True
    )


def test_the_distribution_is_that_of_each_future_averaged(
    table: pl.DataFrame, value_files: dict[str, Path]
) -> None:
    realised = LifetimeValues.read(value_files[TRUTH])
    values, taxes = realised.values["value:0.02"], realised.values["tax:se-2022"]
    columns = [
        (values[~np.isnan(values[:, k]), k], taxes[~np.isnan(values[:, k]), k])
        for k in range(DRAWS)
    ]
    by_hand = {
        "mean": [v.mean() for v, _ in columns],
        "p99": [np.quantile(v, 0.99) for v, _ in columns],
        "gini": [float(gini(np.sort(v))) for v, _ in columns],
        "top_1_share": [float(top_share(np.sort(v))) for v, _ in columns],
        "tax:se-2022:mean": [t.mean() for _, t in columns],
        "tax:se-2022:rate": [(t / v).mean() for v, t in columns],
        "tax:se-2022:rate_p99": [np.quantile(t / v, 0.99) for v, t in columns],
    }
    for statistic, by_draw in by_hand.items():
        row = _at(table, TRUTH, statistic)
        assert (row["value"], row["sd_futures"]) == pytest.approx(
            (np.mean(by_draw), np.std(by_draw, ddof=1))
        ), statistic


def test_the_crps_of_a_lifetime_equals_scoringrules_without_emigrants(
    table: pl.DataFrame, value_files: dict[str, Path]
) -> None:
    truth, right = (
        LifetimeValues.read(value_files[TRUTH]),
        LifetimeValues.read(value_files["right"]),
    )
    for rate in RATES:
        y, x = truth.values[f"value:{rate:g}"], right.values[f"value:{rate:g}"]
        scores = np.stack(
            [sr.crps_ensemble(y[:, k], x, estimator="fair") for k in range(DRAWS)], axis=1
        )
        assert _at(table, "right", "crps", rate)["value"] == pytest.approx(
            np.nanmean(scores), rel=1e-6
        )


def test_the_right_forecaster_covers_and_the_wrong_one_is_exposed(table: pl.DataFrame) -> None:
    right, wrong = (_at(table, model, "coverage_90") for model in ("right", "wrong"))
    # Lifetimes of one person are independent between futures: N x DRAWS independent outcomes.
    assert right["value"] == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / (N * DRAWS)))
    assert wrong["value"] < 0.6
    assert _at(table, "wrong", "crps")["value"] > 1.5 * _at(table, "right", "crps")["value"]
    assert _at(table, "wrong", "bias")["value"] == pytest.approx(0.4, abs=0.05)
    assert abs(_at(table, "right", "bias")["value"]) < 4 * _at(table, "right", "bias")["se"]
    assert _at(table, "wrong", "mean")["value"] > 1.3 * _at(table, TRUTH, "mean")["value"]


def test_other_money_is_not_taxed_by_swedish_rules(
    world: tuple[LifetimeTask, np.ndarray, Known, Known], tmp_path: Path
) -> None:
    task = world[0]
    past = Panel.of(task.setting.past.frame, PanelMeta("dollars", currency="USD"))
    foreign = LifetimeTask(
        task.directory, Setting("forward", past, task.setting.origins, []), PATHS, 0
    )
    lifetimes = lifetime_table({TRUTH: foreign.store_realised(tmp_path)}, foreign.reach)
    assert "mean" in lifetimes["statistic"].to_list()
    assert not any(name.startswith("tax") for name in lifetimes["statistic"])


def test_lifetimes_without_futures_are_refused() -> None:
    with pytest.raises(UsageError, match="no lifetimes"):
        select_tables(["lifetimes"], has_futures=False, notice=None)
    notices: list[str] = []
    assert select_tables(["all"], has_futures=False, notice=notices.append) == {
        "placebos",
        "hindsight",
    }
    assert "lifetimes" in notices[0]
    with pytest.raises(UsageError, match="not a table"):
        select_tables(["horoscope"], has_futures=True, notice=None)
