"""Where the records end a forecast stands still: it neither jumps nor goes on growing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.training.fit import train

from saga.bundle import Bundle
from saga.data.panel import Panel, PanelMeta
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.schema import MAX_AGE
from tests.toy_training import QUIET, TOY, make_panel


@pytest.fixture(scope="module")
def panel() -> Panel:
    """Cohorts followed for twelve years, whose earnings grow by 3 % a year."""
    growth = (0.03 * (pl.col("year") - 2005)).exp()
    frame = make_panel().frame.with_columns(pl.col("earnings") * growth)
    return Panel.of(frame, PanelMeta("cohorts", macro=None))


@pytest.fixture(scope="module")
def bundle(panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out: Path = tmp_path_factory.mktemp("cohorts") / "b"
    return train(panel, out, config=replace(TOY, scale_free=True), run=QUIET)


def test_a_forecast_stands_still_where_the_records_end(bundle: Bundle, panel: Panel) -> None:
    """Without macro series nothing tells a year beyond the longest distance and highest age from
    the last one within them. So both have one distribution, and there is no jump between them.
    """
    records = bundle.training_records
    young = panel.frame.filter(pl.col("birth_year") >= records.last_year - 44)["person_id"]
    people = panel.only(sorted(young.unique())[:60])
    marginals = Marginals.joined(list(Forecaster(bundle, threads=1).marginals(people)))
    medians, age = marginals.quantiles([0.5])[..., 0], marginals.origin_year - marginals.birth_year
    for of_person, p_zero, at_origin in zip(medians, marginals.p_zero, age.tolist(), strict=True):
        end = max(records.longest, records.last_age - at_origin)
        beyond = slice(end, MAX_AGE - at_origin)
        assert len(of_person[beyond]) > 5
        np.testing.assert_allclose(of_person[beyond], of_person[end - 1], rtol=1e-5)
        np.testing.assert_allclose(p_zero[beyond], p_zero[end - 1], rtol=1e-5)
        # Within the records it moves.
        assert np.abs(np.diff(np.log(of_person[:end]))).max() > 1e-3
