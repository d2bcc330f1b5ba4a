"""What is kept is found again by its content, and an interruption leaves nothing half done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluation import contest as contest_module
from evaluation.baselines import CarryForward
from evaluation.cache import code_digest
from evaluation.contest import Contest, Entrant
from evaluation.contestants import Contestant
from saga.data.panel import Panel
from saga.errors import UsageError

Make = Callable[..., Panel]
FILES = ("metrics.parquet", "comparisons.parquet", "cost.parquet", "tables.md")


Walker = Callable[..., Any]


def _entrant(walker: Any, key: str = "1") -> Entrant:
    return Entrant(walker.name, key, lambda: walker)


def _run(
    panel: Panel,
    out: Path,
    *walkers: Any,
    key: str = "1",
    paths: int = 10,
    cache: Path | None = None,
) -> pl.DataFrame:
    contestants: list[Contestant] = [_entrant(walker, key) for walker in walkers]
    return Contest(panel, horizons=(1, 5), paths=paths, cache=cache).run(contestants, out)


def test_a_second_run_asks_nobody_and_gives_the_same_files(
    random_walk: Make, walker: Walker, tmp_path: Path
) -> None:
    panel, walkers = random_walk(600), (walker("saga"), walker("rival"))
    _run(panel, tmp_path, *walkers)
    first = {name: (tmp_path / name).read_bytes() for name in FILES}
    _run(panel, tmp_path, *walkers)
    assert [each.asked for each in walkers] == [1, 1]
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == first


def test_another_contestant_costs_its_own_run_only(
    random_walk: Make, walker: Walker, tmp_path: Path
) -> None:
    panel, old, new = random_walk(600), walker("saga"), walker("new")
    _run(panel, tmp_path, old)
    table = _run(panel, tmp_path, old, new)
    assert (old.asked, new.asked) == (1, 1)
    assert set(table["model"]) == {"saga", "new"}


def test_a_baseline_is_fitted_once_for_another_question_too(
    random_walk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel, fits = random_walk(600), list[str]()
    fit = CarryForward.fit
    monkeypatch.setattr(
        CarryForward,
        "fit",
        lambda self, *args, **options: fits.append("fit") or fit(self, *args, **options),
    )

    def asked(paths: int, cache: Path | None) -> pl.DataFrame:
        contest = Contest(panel, horizons=(1, 5), paths=paths, cache=cache)
        return contest.run(
            [contest.baseline(CarryForward())], tmp_path / f"{paths}-{cache is None}"
        )

    kept = [asked(paths, tmp_path / "cache") for paths in (10, 12)]
    assert fits == ["fit"]
    assert kept[1].equals(asked(12, None))  # a fit that was kept answers as a new one does
    cost = pl.read_parquet(tmp_path / "12-False" / "cost.parquet")["fit_seconds"]
    assert (cost > 0).all()  # and tells what it took


def test_an_interrupted_run_goes_on_to_the_same_tables(
    random_walk: Make, walker: Walker, tmp_path: Path
) -> None:
    panel, first = random_walk(600), walker("saga")
    with pytest.raises(KeyboardInterrupt):
        _run(panel, tmp_path / "broken", first, walker("rival", until=2))
    assert [path.name.split("-")[0] for path in (tmp_path / "broken" / "scores").iterdir()] == [
        "saga"
    ]  # and nothing half written
    again = _run(panel, tmp_path / "broken", first, walker("rival"))
    assert first.asked == 1
    assert again.equals(_run(panel, tmp_path / "whole", walker("saga"), walker("rival")))
    compared = [
        pl.read_parquet(tmp_path / place / "comparisons.parquet") for place in ("broken", "whole")
    ]
    assert compared[0].equals(compared[1])


def test_another_key_question_panel_or_number_of_paths_is_asked_anew(
    random_walk: Make, walker: Walker, tmp_path: Path
) -> None:
    cache, one = tmp_path / "cache", walker("saga")
    for asked, (panel, key, paths) in enumerate(
        [
            (random_walk(400), "1", 10),
            (random_walk(400), "2", 10),
            (random_walk(400), "2", 12),
            (random_walk(400, seed=1), "2", 12),
        ]
    ):
        _run(panel, tmp_path / str(asked), one, key=key, paths=paths, cache=cache)
        assert one.asked == asked + 1


def test_a_baseline_is_fitted_only_where_its_scores_are_not_kept(
    random_walk: Make, tmp_path: Path
) -> None:
    fits = []

    class Watched(CarryForward):
        def fit(self, panel: Panel, *, seed: int) -> Watched:
            fits.append(panel)
            super().fit(panel, seed=seed)
            return self

    for _ in range(2):
        contest = Contest(random_walk(600), horizons=(1,), paths=10)
        contest.run([contest.baseline(Watched())], tmp_path)
    assert len(fits) == 1


def test_code_is_named_with_all_that_it_imports() -> None:
    alone, whole = (
        code_digest("evaluation.baselines.naive.groupq", ()),
        code_digest("evaluation.baselines.naive.groupq", ("evaluation.baselines",)),
    )
    assert alone != whole
    assert code_digest("evaluation.baselines.naive.carry", ("evaluation.baselines",)) != whole


def test_a_panels_name_changes_with_any_value(random_walk: Make) -> None:
    panel = random_walk(50)
    cell = pl.when(pl.int_range(pl.len()) == 7).then(pl.col("earnings") + 1).otherwise("earnings")
    assert panel.digest == random_walk(50).digest
    assert panel.digest != panel.with_frame(panel.frame.with_columns(earnings=cell)).digest


def test_a_baseline_without_its_library_is_left_out_of_all_and_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacking() -> CarryForward:
        raise ModuleNotFoundError("No module named 'gluonts'", name="gluonts")

    monkeypatch.setattr(contest_module, "BASELINES", {"carry": CarryForward, "deepar": lacking})
    notices: list[str] = []
    assert [baseline.name for baseline in contest_module.chosen(["all"], notices.append)] == [
        "carry"
    ]
    assert notices == ["deepar is left out: No module named 'gluonts'"]
    with pytest.raises(UsageError, match=r"deepar lacks a library: No module named 'gluonts'"):
        contest_module.chosen(["deepar"])
