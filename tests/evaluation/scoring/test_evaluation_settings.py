"""Test persons: the paper's window, its cohorts, and settings without later years."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pytest
from saga.evaluation.scoring.evaluation_settings import COHORTS, Sample, paper_years
from saga.evaluation.scoring.subgroups import assign_subgroups

from saga.data.origins import Origins
from saga.data.panel import Panel, PanelMeta
from saga.errors import UsageError

Make = Callable[..., Panel]


def _one(
    years: list[int],
    earnings: Sequence[float | None],
    birth_year: int = 1970,
    person: str = "a",
    **columns: object,
) -> Panel:
    frame = {
        "person_id": [person] * len(years),
        "year": years,
        "birth_year": [birth_year] * len(years),
        "earnings": earnings,
        **columns,
    }
    return Panel.of(
        pl.DataFrame(frame, schema_overrides={"earnings": pl.Float64}), PanelMeta("one")
    )


def _windows(panel: Panel) -> list[int]:
    return paper_years(panel)["year"].to_list()


def test_the_papers_window_is_ten_years_five_of_them_positive() -> None:
    years = list(range(1996, 2010))
    assert _windows(_one(years, [1.0] * 14)) == list(range(2005, 2010))
    assert _windows(_one(years, [0.0] * 5 + [1.0] * 9)) == list(range(2005, 2010))
    # In 2005 only four are positive.
    assert _windows(_one(years, [0.0] * 6 + [1.0] * 8)) == list(range(2006, 2010))
    assert _windows(_one(years[:9], [1.0] * 9)) == []


def test_the_papers_window_ends_at_26_to_54() -> None:
    years = list(range(1990, 2020))
    assert _windows(_one(years, [1.0] * 30, birth_year=1975)) == list(range(2001, 2020))
    assert _windows(_one(years, [1.0] * 30, birth_year=1950)) == list(range(1999, 2005))


@pytest.mark.parametrize(("missing", "ends"), [(2, True), (3, False)])
def test_gaps_of_two_years_are_allowed_and_of_three_not(missing: int, ends: bool) -> None:
    years = [year for year in range(1996, 2006) if not 2000 <= year < 2000 + missing]
    assert (2005 in _windows(_one(years, [1.0] * len(years)))) == ends
    unknown: list[float | None] = [
        None if 2000 <= year < 2000 + missing else 1.0 for year in range(1996, 2006)
    ]
    assert (2005 in _windows(_one(list(range(1996, 2006)), unknown))) == ends


def test_under_the_papers_sample_every_origin_ends_such_a_window(random_walk: Make) -> None:
    sample = Sample.of(random_walk(400), seed=0, sample="paper")
    allowed = set(paper_years(sample.test).iter_rows())
    (setting,) = sample.settings([1, 5])
    draws = list(
        zip(setting.origins.person_id.tolist(), setting.origins.year.tolist(), strict=True)
    )
    assert draws
    assert set(draws) <= allowed


def test_training_and_histories_end_at_the_cut_off(random_walk: Make) -> None:
    panel = random_walk(400)
    sample = Sample.of(panel, seed=0, until=2012)
    in_time, forward = sample.settings([1, 5, 20])
    assert sample.training.frame["year"].max() == 2012
    assert in_time.past.frame["year"].to_numpy().max() <= 2012
    assert set(forward.origins.year.tolist()) == {2012}
    assert forward.past.frame["year"].max() == 2012
    # In-time no outcome lies after the cut-off; forward all do, as far as the panel goes.
    years = in_time.origins.year[:, None] + np.array([1, 5, 20])
    assert np.isnan(in_time.outcomes[0][1][years > 2012]).all()
    observed = np.isfinite(forward.outcomes[0][1])
    assert observed[:, :2].any(axis=0).all()
    assert not observed[:, 2].any()
    truth = panel.frame.filter(person_id=forward.origins.person_id[0], year=2013)[
        "earnings"
    ].to_list()
    assert truth == [pytest.approx(forward.outcomes[0][1][0, 0])]


def test_the_cohort_split_keeps_birth_years_and_refuses_unobservable_horizons(
    random_walk: Make,
) -> None:
    panel = random_walk(4000)
    sample, whole = (Sample.of(panel, seed=0, split=split) for split in ("cohort", "person"))
    for (first, last), part in (
        (COHORTS["train"], sample.training),
        (COHORTS["test"], sample.test),
    ):
        born = part.frame["birth_year"].to_numpy()
        assert first <= born.min() <= born.max() <= last
    assert set(sample.test.persons()) < set(whole.test.persons())
    # Born 1983-84, aged 20 or more, three years of earnings: the first origins are in 2003.
    sample.check_observable([1, 19])
    with pytest.raises(UsageError, match=r"(?s)cannot be observed.*20, 30 years ahead.*reach 19"):
        sample.check_observable([1, 20, 30])
    paper = Sample.of(panel, seed=0, split="cohort", sample="paper")
    with pytest.raises(UsageError, match="reach 13"):
        paper.check_observable([20])


def test_subgroups_are_known_at_the_origin() -> None:
    years = list(range(2000, 2012))

    def of(
        employers: Sequence[int | None], county: str | None = "01", birth_year: int = 1970
    ) -> tuple[str | None, ...]:
        n = len(years)
        panel = _one(years, [1.0] * n, birth_year, employers=employers, county=[county] * n)
        result = assign_subgroups(panel, Origins(np.array(["a"]), np.array([2010])))
        return result.row(0)[1:]

    assert of([1] * 12) == ("stable", "stockholm", "1965-79")
    assert of([1] * 9 + [2, 1, 1], "12") == ("1-3", "skane", "1965-79")
    assert of([1] * 5 + [3, 3, 1, 1, 1, 1, 1], "25", 1960) == ("4+", "other", "other")
    assert of([4] + [1] * 11) == (
        "stable",
        "stockholm",
        "1965-79",
    )  # in 2000: more than ten years before the origin
    assert of([1] * 11 + [9]) == ("stable", "stockholm", "1965-79")  # after the origin
    assert of([None] * 12, None)[:2] == (None, None)
