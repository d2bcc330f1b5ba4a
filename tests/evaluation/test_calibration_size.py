"""Calibration sizes: right coverage at every size, its spread, and sizes without persons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from saga.evaluation.calibration_size import coverage_by_size
from saga.evaluation.scoring.evaluation_settings import Sample
from scipy import stats

from saga.data.groups import last_record_origins
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.distributions import Marginals


class TooNarrow:
    """A forecaster of the random walk with half its spread, which calibration has to mend."""

    def marginals(self, past: Panel, *, recalibrate: bool) -> Iterator[Marginals]:
        assert not recalibrate
        last = past.frame.group_by("person_id", maintain_order=True).last()
        n, h = last.height, np.arange(1, 11)[:, None]
        z = np.linspace(-15, 15, 201)
        median = np.log(last["earnings"].to_numpy())[:, None, None] + 0.01 * h
        cdf = np.broadcast_to(stats.norm.cdf(z), (n, 10, len(z))).copy()
        cdf[..., 0], cdf[..., -1] = 0.0, 1.0
        yield Marginals(
            np.array(last["person_id"].to_list()),
            last["birth_year"].to_numpy(),
            last_record_origins(past).year,
            median + 0.5 * 0.15 * np.sqrt(h) * z,
            cdf,
            np.zeros((n, 10)),
        )


def test_coverage_holds_at_every_size_and_spreads_as_the_number_of_persons_says(
    random_walk: Callable[..., Panel],
) -> None:
    panel = random_walk(14_000)
    sample = Sample.of(panel, seed=0)
    forecaster: Any = TooNarrow()
    calibration = panel.only(persons_of(panel, "calibration"))
    table = coverage_by_size(
        forecaster, calibration, sample, seed=0, sizes=(40, 230, 480, 10_000), repeats=15
    )
    everybody = {row["size"]: row for row in table.filter(group="all").iter_rows(named=True)}
    tiny, small, large, lacking = (everybody[size] for size in (40, 230, 480, 10_000))
    tested = small["n"]
    for row in (small, large):
        # Half of the calibration persons fix the threshold; test persons are the same each time.
        slack = 4 * np.sqrt(0.09 / tested + 0.09 / (row["size"] / 2) / row["repeats"])
        assert (
            0.9 - slack < row["value"] < 0.9 + slack + 11 / (row["size"] / 2)
        )  # averaged order statistics lie a little above
        # Coverage varies by sqrt(.09 / half) between choices; 15 repeats show it within 75 %.
        assert 0.25 < row["sd"] / np.sqrt(0.09 / (row["size"] / 2)) < 1.75
    # 20 persons make no threshold that averages ten of them: no interval, not a made-up one.
    assert [(row["value"], row["repeats"]) for row in (tiny, lacking)] == [(None, 0)] * 2
    assert everybody[small["available"]]["repeats"] == 1
    assert tested == pytest.approx(
        small["available"], rel=0.3
    )  # a tenth of the persons on each side
