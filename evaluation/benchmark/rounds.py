"""Rounds of the benchmark: persons' pasts for everybody, and their futures for the scorer.

A round is a simulated register. Its seed is published with the pasts of a development round. The
seed of a judged round stays with whoever runs it; a digest that is published with the pasts binds
it and the outcomes. Once the seed is known, anybody can make the round again and compare.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from saga.evaluation.benchmark.entries import KEYS, entry_table, required_rows
from saga.evaluation.contest import HORIZONS, Contest, ContestOptions, Progress
from saga.evaluation.scoring.evaluation_settings import Sample, Setting
from saga.evaluation.selection import select_baselines

from saga.data.panel import FLOOR, Panel
from saga.data.reading import read_panel
from saga.errors import InputError, UsageError
from saga.files.atomic import read_json, whole_folder
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from saga.register import RegisterSettings, generate_register
from saga.schema import COLUMNS, PRICE_YEAR
from saga.version import current_version

ROUND, TRUTH, ENTRIES = "round.json", "truth", "entries"
BASELINES = ("carry", "groupq")
PANEL_ID = "benchmark"
FIRST_YEAR, LAST_YEAR = 1990, 2022
PERSONS, FUTURES = 20_000, 20


@dataclass(frozen=True)
class RoundSettings:
    """What defines a round.

    Args:
        seed: Seed of the register.
        persons: Persons in the register.
        futures: Futures of the economy in which every person is judged.
        horizons: Years after the origin that are judged.
    """

    seed: int
    persons: int = PERSONS
    futures: int = FUTURES
    horizons: Sequence[int] = HORIZONS


@dataclass(frozen=True)
class Round:
    """A round whose futures are known.

    Args:
        contest: The contest on its persons.
        setting: Pasts, origins and outcomes.
        record: Content of `round.json`.
    """

    contest: Contest
    setting: Setting
    record: dict[str, Any]

    @property
    def rows(self) -> pl.DataFrame:
        """The rows of an entry."""
        return required_rows(self.setting, self.contest.horizons)

    @classmethod
    def open(cls, folder: Path, truth: Path | None = None) -> Round:
        """The round in a folder; `truth` is that of a judged round, which lies elsewhere.

        Raises:
            UsageError: If there is no round, or no truth.
            InputError: If the truth is not the one that the round is bound to.
        """
        record = read_json(folder / ROUND)
        if record is None:
            raise UsageError(f"{folder} is no round: it has no {ROUND}. Write one: saga benchmark")
        known = truth or folder / TRUTH
        register = read_json(known / "register.json")
        if register is None:
            raise UsageError(
                f"There is no truth in {known}. Of a judged round, name its folder with --truth; "
                "once the seed is published, write the round again with that seed."
            )
        opened = cls._of(folder, known, record["horizons"], record)
        if commitment(int(register["seed"]), opened.setting) != record["commitment"]:
            raise InputError.of(
                f"{known} is not the truth of this round",
                "commitment",
                "its digest is not that of round.json",
                "Use the seed, persons, futures and horizons of round.json, and its versions.",
            )
        return opened

    @classmethod
    def _of(
        cls, folder: Path, truth: Path, horizons: Sequence[int], record: dict[str, Any]
    ) -> Round:
        panel = read_panel(folder / "panel.parquet", prices=PRICE_YEAR, panel_id=PANEL_ID)
        sample = Sample(panel, panel, LAST_YEAR, LAST_YEAR, seed=0)
        contest = Contest(panel, ContestOptions(horizons, n_paths=500), sample=sample)
        *_, forward = contest.settings(truth)
        return cls(contest, forward, record)


def commitment(seed: int, setting: Setting) -> str:
    """SHA-256 of the seed, the persons and their outcomes in whole SEK (-1: none), by future.

    Whoever has not simulated the round cannot find the seed by trial, because the digest is also
    one of the outcomes.
    """
    digest = hashlib.sha256("\n".join([str(seed), *setting.origins.person_id.tolist()]).encode())
    for _, outcomes in setting.outcomes:
        digest.update(np.rint(np.nan_to_num(outcomes, nan=-1.0)).astype("<i8").tobytes())
    return digest.hexdigest()


def write_round(
    out: Path,
    settings: RoundSettings,
    *,
    bundle: Path,
    truth: Path | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the pasts of a round to the new folder `out`.

    `panel.parquet` and `panel.csv` have the persons' years up to 2022 in SEK of 2022, `rows.csv`
    the persons and horizons that an entry must have, `entries/` the rows of SAGA and of simple
    methods as examples of the format, and `round.json` the settings and the digest of the truth.

    Args:
        out: Folder to write; it must not exist or be empty.
        settings: Definition of the round.
        bundle: SAGA's own entry is of this bundle.
        truth: Folder of the futures of a judged round; its seed is then not in `out`. None: a
            development round, whose futures are in `out`.
        workers: Number of processes.
        progress: Called with (step, done, total).

    Returns:
        The content of `round.json`.

    Raises:
        UsageError: If a setting is out of range, or a folder is not empty.
    """
    register = RegisterSettings(
        settings.persons,
        settings.seed,
        FIRST_YEAR,
        LAST_YEAR,
        future_to=LAST_YEAR + max(settings.horizons),
        future_draws=settings.futures,
    )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; give a new folder")
    with whole_folder(out) as folder, _truth_folder(truth) as known:
        simulated = known or folder / TRUTH

        def report(done: int, total: int) -> None:
            if progress is not None:
                progress("Simulating", done, total)

        description = generate_register(simulated, register, workers=workers, progress=report)
        _write_pasts(read_panel(simulated), folder)
        for name in ("panel", "latent"):  # in `out`, and for the clairvoyant alone
            shutil.rmtree(simulated / name)
        opened = Round._of(folder, simulated, settings.horizons, {})
        opened.rows.select(KEYS).write_csv(folder / "rows.csv")
        opened.contest.progress = progress
        contestants = [opened.contest.bundle(Forecaster.load(bundle, workers=workers))]
        contestants += [opened.contest.baseline(b) for b in select_baselines(BASELINES)]
        (folder / ENTRIES).mkdir()
        for contestant in contestants:
            if progress is not None:
                progress(f"Forecasting: {contestant.name}", 0, 1)
            table = entry_table(contestant, opened.setting, opened.contest.horizons)
            write_table(table, folder / ENTRIES / f"{contestant.name}.parquet", {})
        record = {
            "seed": settings.seed if truth is None else None,
            "commitment": commitment(settings.seed, opened.setting),
            "persons": settings.persons,
            "judged_persons": len(opened.setting.origins),
            "rows": opened.rows.height,
            "futures": settings.futures,
            "horizons": list(settings.horizons),
            "years": [FIRST_YEAR, LAST_YEAR],
            "amounts": f"SEK of {PRICE_YEAR}",
            "floor": FLOOR,
            "versions": {"saga": current_version(), **description["versions"]},  # type: ignore[dict-item]
        }
        text = json.dumps(record, indent=2) + "\n"
        (folder / ROUND).write_text(text, encoding="utf-8", newline="\n")
    return record


@contextmanager
def _truth_folder(truth: Path | None) -> Iterator[Path | None]:
    """A new folder for the truth of a judged round, whole or absent; None without one."""
    if truth is None:
        yield None
        return
    with whole_folder(truth) as folder:
        yield folder


def _write_pasts(panel: Panel, folder: Path) -> None:
    """Write the persons' years with amounts in whole SEK, and the columns that a register has."""
    money = [column.name for column in COLUMNS if column.kind == "money"]
    rows = panel.frame.select(panel.meta.present).with_columns(pl.col(money).round())
    rows.write_parquet(folder / "panel.parquet", compression="zstd")
    rows.write_csv(folder / "panel.csv")
