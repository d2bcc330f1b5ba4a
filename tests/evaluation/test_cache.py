"""Stored results are reused by content and declared version; no file is incomplete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.evaluation import selection
from saga.evaluation.baselines import CarryForward
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.contestants import Contestant, LazyContestant

from saga.data.panel import Panel
from saga.errors import UsageError

Make = Callable[..., Panel]
FILES = ("metrics.parquet", "comparisons.parquet", "cost.parquet", "tables.md")


Walker = Callable[..., Any]


def _count_fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by "fit" with every fit of `CarryForward`."""
    fits: list[str] = []
    fit = CarryForward.fit

    def counted(self: CarryForward, panel: Panel, *, seed: int) -> CarryForward:
        fits.append("fit")
        return fit(self, panel, seed=seed)

    monkeypatch.setattr(CarryForward, "fit", counted)
    return fits


def _lazy(walker: Any, key: str = "1") -> LazyContestant:
    return LazyContestant(walker.name, key, lambda: walker)


def _run(
    panel: Panel,
    out: Path,
    *walkers: Any,
    key: str = "1",
    n_paths: int = 10,
    cache: Path | None = None,
) -> pl.DataFrame:
    contestants: list[Contestant] = [_lazy(walker, key) for walker in walkers]
    return Contest(panel, ContestOptions(horizons=(1, 5), n_paths=n_paths, cache=cache)).run(
        contestants, out
    )


def test_a_second_run_computes_nothing_and_writes_the_same_files(
    random_walk: Make, walker: Walker, tmp_path: Path
) -> None:
    panel, walkers = random_walk(600), (walker("saga"), walker("rival"))
    _run(panel, tmp_path, *walkers)
    first = {name: (tmp_path / name).read_bytes() for name in FILES}
    _run(panel, tmp_path, *walkers)
    assert [contestant.calls for contestant in walkers] == [1, 1]
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == first


def test_a_cache_holds_tables_only_and_its_scores_serve_another_run(
    random_walk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel, fits, cache = random_walk(600), _count_fits(monkeypatch), tmp_path / "cache"

    def run(n_paths: int, out: str) -> pl.DataFrame:
        contest = Contest(panel, ContestOptions(horizons=(1, 5), n_paths=n_paths, cache=cache))
        return contest.run([contest.baseline(CarryForward())], tmp_path / out)

    first = run(10, "first")
    assert {path.suffix for path in cache.rglob("*") if path.is_file()} == {".parquet"}
    assert run(10, "second").equals(first)
    assert fits == ["fit"]
    run(12, "other paths")
    assert fits == ["fit", "fit"]
    cost = pl.read_parquet(tmp_path / "second" / "cost.parquet")["fit_seconds"]
    assert (cost > 0).all()  # the seconds of the fit are stored with the scores


def test_an_interrupted_run_continues_to_the_same_tables(
    random_walk: Make, walker: Walker, tmp_path: Path
) -> None:
    panel, first = random_walk(600), walker("saga")
    with pytest.raises(KeyboardInterrupt):
        _run(panel, tmp_path / "broken", first, walker("rival", until=2))
    stored = [path.name.split("-")[0] for path in (tmp_path / "broken" / "scores").iterdir()]
    assert stored == ["saga"]  # and no incomplete file
    again = _run(panel, tmp_path / "broken", first, walker("rival"))
    assert first.calls == 1
    assert again.equals(_run(panel, tmp_path / "whole", walker("saga"), walker("rival")))
    compared = [
        pl.read_parquet(tmp_path / folder / "comparisons.parquet") for folder in ("broken", "whole")
    ]
    assert compared[0].equals(compared[1])


def test_another_key_panel_or_number_of_paths_is_computed_anew(
    random_walk: Make, walker: Walker, tmp_path: Path
) -> None:
    cache, contestant = tmp_path / "cache", walker("saga")
    runs = [
        (random_walk(400), "1", 10),
        (random_walk(400), "2", 10),
        (random_walk(400), "2", 12),
        (random_walk(400, seed=1), "2", 12),
    ]
    for number, (panel, key, n_paths) in enumerate(runs):
        _run(panel, tmp_path / str(number), contestant, key=key, n_paths=n_paths, cache=cache)
        assert contestant.calls == number + 1


@pytest.mark.thorough
def test_a_raised_version_or_another_panel_is_computed_anew_and_nothing_else(
    random_walk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = _count_fits(monkeypatch)

    def run(seed: int = 0) -> int:
        options = ContestOptions(horizons=(1,), n_paths=10, cache=tmp_path / "cache")
        contest = Contest(random_walk(400, seed=seed), options)
        contest.run([contest.baseline(CarryForward())], tmp_path / "out")
        return len(fits)

    assert [run(), run()] == [1, 1]
    monkeypatch.setattr(CarryForward, "version", CarryForward.version + 1)
    assert [run(), run()] == [2, 2]
    assert run(seed=1) == 3


def test_a_baseline_without_its_library_is_left_out_of_all_and_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacking() -> CarryForward:
        raise ModuleNotFoundError("No module named 'gluonts'", name="gluonts")

    monkeypatch.setattr(selection, "BASELINES", {"carry": CarryForward, "deepar": lacking})
    notices: list[str] = []
    assert [baseline.name for baseline in selection.select_baselines(["all"], notices.append)] == [
        "carry"
    ]
    assert notices == ["deepar is left out: No module named 'gluonts'"]
    with pytest.raises(
        UsageError, match=r"deepar needs a library that is not installed: No module named 'gluonts'"
    ):
        selection.select_baselines(["deepar"])
