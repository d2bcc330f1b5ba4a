"""What it costs the bundle that records lack columns or years, and whether it still beats baselines that know as little.

    python -m studies.poorer_records REGISTER --out DIR [--bundle bundles/small] [--baselines carry,groupq,gbt] [--persons N] [--paths 200]
        [--seed 0] [--cache DIR] [--workers 1] [--report FILE]

REGISTER is any panel; with `future/draw=k` (`saga register generate --future-to 2042 --future-draws 20`) also forward. Test persons are
judged, in-time and forward, at h = 1, 5, 10, 20, on the same origins and outcomes whatever is hidden. Scores and fitted baselines stay in
--cache (OUT/kept), so that the same command goes on where it stopped; the cache of `saga evaluate --cache` serves.
Exit 1 where the bundle is not better than a baseline with p < .01 (Holm over horizons).

What poorer records cost the bundle, and whether it still beats baselines that know as little: scores by record, setting and horizon.

Records poorer than a register's: what is hidden of the past that a forecaster is shown. Who is asked and what came true stay the same.

Columns are hidden from training records too: a baseline is fitted on what is left. Years are hidden relative to an origin, and every
year of a training record serves as outcome and as origin at once, so records with years taken out would lose outcomes (of every second
year, all at odd horizons). Baselines that read little but the last known year (carry, groupq) can as well be fitted on whole records;
boosted trees, which read ten years, are fitted on whole outcomes but on a poorer past at each origin (`TreesOnPasts`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.baselines.recent_years import Window
from evaluation.baselines.trees.gbt import BoostedTrees
from evaluation.contest import PATHS, Contest, ContestOptions
from evaluation.protocol import Baseline
from evaluation.scoring.comparison import (
    BOTH,
    HINDSIGHT,
    PERSON,
    REFEREE,
    SURE,
    VARIANT,
    compare_models,
)
from evaluation.scoring.evaluation_settings import Setting
from evaluation.scoring.metrics import metrics_table
from evaluation.selection import select_baselines
from saga.data.groups import reduce_to_profile
from saga.data.origins import MIN_HISTORY, Origins
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from saga.requests import Draws
from studies.harness import StepLog, code_commit, command_line, say, study_parser

METRIC = "crps_log"
KEYS = ("setting", "horizon", "model")
BETTER, UNSURE, WORSE = "better", "unsure", "not better"
SCHEMA = {
    "record": pl.String(),
    "setting": pl.String(),
    "horizon": pl.Int32(),
    "model": pl.String(),
    "n": pl.Int64(),
    "crps": pl.Float64(),
    "se": pl.Float64(),
    "loss": pl.Float64(),
    "loss_se": pl.Float64(),
    "gain": pl.Float64(),
    "gain_se": pl.Float64(),
    "p": pl.Float64(),
    "p_holm": pl.Float64(),
    "verdict": pl.String(),
    "told_gain": pl.Float64(),
    "told_gain_se": pl.Float64(),
    "told_p_holm": pl.Float64(),
    "told_verdict": pl.String(),
}
Files = Mapping[str, Sequence[Path]]  # a model's files of un-averaged scores, one a setting


def score(
    contest: Contest,
    reduction: Reduction,
    settings: Sequence[Setting],
    forecaster: Forecaster,
    baselines: Sequence[Baseline],
    folder: Path,
) -> dict[str, list[Path]]:
    """Files of un-averaged scores of the bundle and the (unfitted) baselines, asked from the poorer records; kept in `folder`.

    `settings` are those of the whole record; baselines are fitted on what is left. In-time also the bundle told the economy that came
    (`Contest.hindsight`), which baselines know from outcomes of those years.
    """
    asked = [reduction.setting(setting) for setting in settings]
    training = reduction.training(contest.sample.training)
    files = {}
    for entrant in (
        contest.bundle(forecaster),
        *(contest.baseline(reduction.baseline(each), training) for each in baselines),
    ):
        files[entrant.name] = [contest.scores(entrant, setting, folder) for setting in asked]
        entrant.close()
    for told in contest.hindsight(forecaster):
        files[told.name] = [
            contest.scores(told, setting, folder)
            for setting in asked
            if setting.name == told.only_setting
        ]
        told.close()
    return files


def compare(
    found: Mapping[str, Files], settings: Sequence[Setting], horizons: Sequence[int]
) -> pl.DataFrame:
    """CRPS of log earnings of every model by record; rows of SCHEMA, one a (record, setting, horizon, model).

    `found` is what `score` gave, by name of the record; `studies.poorer_records.WHOLE` must be among them. Of the bundle's rows `loss` is the
    share by which its CRPS is above that from the whole record. Of a baseline's rows `gain` is the share of the baseline's CRPS by which
    the bundle's is lower, `p` that of the paired difference (clusters: persons in-time, persons and drawn futures forward), `p_holm`
    adjusted for the horizons, and `verdict` "better" (p_holm < 0.01), "unsure" or "not better"; `told_` is the same of the bundle told the
    economy. The `_se` of a share is that of the paired difference over the same denominator. Null where nothing was scored.
    """
    groups = pl.concat(
        [
            s.origins.frame()
            .rename({"origin": "year"})
            .with_columns(pl.lit(s.name).alias("setting"))
            for s in settings
        ]
    ).select("setting", "person_id", "year")
    whole = found[WHOLE.name][REFEREE]
    rows = []
    for record, files in found.items():
        scores = _scan({name: paths for name, paths in files.items() if name != HINDSIGHT or paths})
        table = metrics_table(scores, groups.drop("year"), horizons).filter(
            pl.col("metric") == METRIC, pl.col("group") == "all"
        )
        rivals = {name: paths for name, paths in files.items() if name not in (REFEREE, HINDSIGHT)}
        against = _by_key(_paired(_scan({REFEREE: files[REFEREE], **rivals}), groups))
        told = (
            _by_key(_paired(_scan({REFEREE: files[HINDSIGHT], **rivals}), groups))
            if files.get(HINDSIGHT)
            else {}
        )
        before: dict[Any, Any] = {}
        if record != WHOLE.name:
            poorer = _scan({VARIANT + record: files[REFEREE], REFEREE: whole})
            before = {
                (row["setting"], row["horizon"]): row
                for row in _paired(poorer, groups).iter_rows(named=True)
            }
        for row in table.iter_rows(named=True):
            key = tuple(row[k] for k in KEYS)
            cost = before.get((row["setting"], row["horizon"]))
            if row["model"] == HINDSIGHT and row["setting"] not in {key[0] for key in told}:
                continue
            won = {
                **_gain(row, against.get(key)),
                **{
                    f"told_{name}": value
                    for name, value in _gain(row, told.get(key)).items()
                    if name != "p"
                },
            }
            shared = {
                "record": record,
                "crps": row["value"],
                **{name: row[name] for name in ("setting", "horizon", "model", "n", "se")},
            }
            rows.append({**shared, **(_loss(row, cost) if row["model"] == REFEREE else won)})
    order = {name: i for i, name in enumerate(found)}
    return pl.DataFrame(rows, schema=SCHEMA).sort(
        pl.col("setting") != "in-time",
        pl.col("record").replace_strict(order, return_dtype=pl.Int32),
        "horizon",
        pl.col("model") != REFEREE,
        "model",
    )


def _scan(files: Files) -> pl.LazyFrame:
    """The scores of these models under these names."""
    return pl.concat(
        [
            pl.scan_parquet(path).with_columns(pl.lit(name).alias("model"))
            for name, paths in files.items()
            for path in paths
        ]
    )


def _paired(scores: pl.LazyFrame, groups: pl.DataFrame) -> pl.DataFrame:
    return compare_models(scores, groups).filter(
        pl.col("metric") == METRIC, pl.col("group") == "all", pl.col("test").is_in([PERSON, BOTH])
    )


def _by_key(paired: pl.DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[k] for k in KEYS): row for row in paired.iter_rows(named=True)}


def _loss(row: Mapping[str, Any], cost: Mapping[str, Any] | None) -> dict[str, float]:
    if not cost or row["value"] is None:
        return {}
    before = row["value"] - cost["difference"]
    return {"loss": cost["difference"] / before, "loss_se": cost["se"] / before}


def _gain(row: Mapping[str, Any], won: Mapping[str, Any] | None) -> dict[str, Any]:
    if not won:
        return {}
    sure = won["p_holm"] is not None and won["p_holm"] < SURE
    verdict = WORSE if won["difference"] <= 0 else BETTER if sure else UNSURE
    shares = {"gain": won["difference"] / row["value"], "gain_se": won["se"] / row["value"]}
    return {**shares, "p": won["p"], "p_holm": won["p_holm"], "verdict": verdict}


def shortfalls(table: pl.DataFrame) -> list[str]:
    """A line a record, setting and baseline where the bundle is not surely better at every horizon; none: it beats them all.

    In-time it is judged as told the economy that came, so that both sides know as much.
    """
    lines = []
    equal = pl.coalesce("told_verdict", "verdict")
    some = table.with_columns(equal.alias("verdict")).filter(
        pl.col("verdict").is_in([UNSURE, WORSE])
    )
    for (record, setting, model), rows in some.group_by(
        "record", "setting", "model", maintain_order=True
    ):
        cells = [
            f"h = {h} ({verdict})" for h, verdict in rows.select("horizon", "verdict").iter_rows()
        ]
        lines.append(f"{record}, {setting}: not surely better than {model} at {', '.join(cells)}")
    return lines


def as_markdown(table: pl.DataFrame, labels: Mapping[str, str]) -> str:
    """A GitHub table a setting: a row a record and horizon, `labels` name the records; ? marks "unsure", **!** "not better"."""
    parts = []
    for (setting,), some in table.group_by("setting", maintain_order=True):
        models = [
            name
            for name in some["model"].unique(maintain_order=True)
            if name not in (REFEREE, HINDSIGHT)
        ]
        told = HINDSIGHT in some["model"]
        head = [
            "record",
            "h",
            "persons",
            f"{REFEREE} CRPS",
            "loss, %",
            *([f"{REFEREE} told"] if told else []),
            *(
                part
                for m in models
                for part in (
                    f"{m} CRPS",
                    "saga better by, %",
                    *(["told, better by, %"] if told else []),
                )
            ),
        ]
        lines = [f"## {setting}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for (record, horizon), rows in some.group_by("record", "horizon", maintain_order=True):
            own = {row["model"]: row for row in rows.iter_rows(named=True)}
            mine = own[REFEREE]
            cells = [
                labels[str(record)],
                str(horizon),
                f"{mine['n']:,}",
                _value(mine),
                _share(mine, "loss"),
            ]
            cells += [_value(own[HINDSIGHT])] if told else []
            for m in models:
                cells += [_value(own[m]), _share(own[m], "gain") + _sureness(own[m])]
                cells += [_share(own[m], "told_gain") + _sureness(own[m], "told_")] if told else []
            lines.append("| " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _value(row: Mapping[str, Any]) -> str:
    if row["crps"] is None:
        return "no outcome"
    return f"{row['crps']:.4f}" + (f" ± {row['se']:.4f}" if row["se"] is not None else "")


def _share(row: Mapping[str, Any], name: str) -> str:
    return "" if row[name] is None else f"{100 * row[name]:+.2f} ± {100 * row[f'{name}_se']:.2f}"


def _sureness(row: Mapping[str, Any], kind: str = "") -> str:
    if row[f"{kind}verdict"] is None:
        return ""
    p = row[f"{kind}p_holm"]
    text = "" if p is None else ", p < .001" if p < 0.001 else f", p = {p:.3f}"
    return text + {BETTER: "", UNSURE: " ?", WORSE: " **!**"}[row[f"{kind}verdict"]]


CHUNK = 20_000  # origins whose pasts are copied at once
Columns = Callable[[Panel], Panel]
Years = Callable[[Panel, Origins], Panel]


def everything(panel: Panel) -> Panel:
    """The panel with all its columns."""
    return panel


def without(panel: Panel, columns: tuple[str, ...]) -> Panel:
    """The panel with these columns unknown."""
    return panel.with_frame(
        panel.frame.with_columns(
            pl.lit(None, dtype=panel.frame.schema[name]).alias(name) for name in columns
        )
    )


def last_three(past: Panel, origins: Origins) -> Panel:
    """Each person's rows from the third last year with known earnings on: the least that an origin may have."""
    start = (
        pl.col("year")
        .filter(pl.col("earnings").is_not_null())
        .sort()
        .tail(MIN_HISTORY)
        .min()
        .over("person_id")
    )
    return _rows(past, past.frame.filter(pl.col("year") >= start))


def every_second(past: Panel, origins: Origins) -> Panel:
    """Each person's last year with known earnings, every second calendar year before it, and the row of the origin's year.

    A biennial record of two-year steps loses nothing.
    """
    rows = past.frame.join(origins.frame(), on="person_id", how="left", maintain_order="left")
    last = pl.col("year").filter(pl.col("earnings").is_not_null()).max().over("person_id")
    return _rows(
        past, rows.filter(((last - pl.col("year")) % 2 == 0) | (pl.col("year") == pl.col("origin")))
    )


def _rows(past: Panel, rows: pl.DataFrame) -> Panel:
    """These rows; when the person could first be observed is unknown, as the years before them are."""
    return past.with_frame(
        rows.select(past.frame.columns).with_columns(
            pl.lit(None, dtype=pl.Int32).alias("entry_year")
        )
    )


@dataclass(frozen=True)
class Reduction:
    """A poorer record: `columns` hides columns, `years` (None: nothing) whole years of pasts. `label` is its row in a table."""

    name: str
    label: str
    columns: Columns = everything
    years: Years | None = None

    def setting(self, setting: Setting) -> Setting:
        """The same question with poorer pasts: persons, origins and outcomes are those of the whole record."""
        past = self.columns(setting.past)
        return replace(setting, past=self.years(past, setting.origins) if self.years else past)

    def training(self, panel: Panel) -> Panel:
        """The records that a baseline is fitted on: poorer columns, all years."""
        return self.columns(panel)

    def baseline(self, unfitted: Baseline) -> Baseline:
        """The form of a baseline that learns from pasts with years hidden, where it has one."""
        return (
            TreesOnPasts(self.years) if self.years and type(unfitted) is BoostedTrees else unfitted
        )


WHOLE = Reduction("all", "all columns")
REDUCTIONS = (
    WHOLE,
    Reduction(
        "no-occupation-industry",
        "no occupation and industry",
        partial(without, columns=("occupation", "industry")),
    ),
    Reduction("survey", "survey-like columns", partial(reduce_to_profile, profile="survey")),
    Reduction("earnings", "earnings, age and sex", partial(reduce_to_profile, profile="earnings")),
    Reduction("last-3", "last 3 years", years=last_three),
    Reduction("every-second", "every second year", years=every_second),
)


class TreesOnPasts(BoostedTrees):
    """Boosted trees whose every training origin sees as poor a past as the origins they are asked from; no outcome is lost.

    `settings` as for `BoostedTrees`.
    """

    def __init__(self, years: Years, **settings: Any) -> None:
        super().__init__(**settings)
        self._years = years

    def settings_key(self) -> str:
        """Which years are hidden: `evaluation.protocol.HasSettings`."""
        return getattr(self._years, "__qualname__", repr(self._years))

    def _examples(self, panel: Panel, held: set[str], seed: int) -> Any:
        self.window = PastWindow(panel, self._years)
        return super()._examples(panel, held, seed)


class PastWindow(Window):
    """Features of what `years` leaves of the past of each origin."""

    def __init__(self, panel: Panel, years: Years) -> None:
        super().__init__(panel)
        self._years = years

    def features(self, history: Panel, origins: Origins) -> NDArray[np.float32]:
        """(n, F), one row an origin; a person may have several. Raises InputError for a person without a row at or before the origin."""
        parts = []
        for start in range(0, len(origins), CHUNK):
            pasts, asked = separate(history, origins.take(slice(start, start + CHUNK)))
            parts.append(super().features(self._years(pasts, asked), asked))
        return np.concatenate(parts) if parts else super().features(history, origins)


def separate(history: Panel, origins: Origins) -> tuple[Panel, Origins]:
    """A record of its own for each origin, the person's rows up to it, so that years can be hidden relative to each.

    Persons are renamed to `person@year`; records stand in the order of `origins`.
    """
    asked = origins.frame().with_columns(pl.format("{}@{}", "person_id", "origin").alias("record"))
    rows = asked.join(history.frame, on="person_id", maintain_order="left_right").filter(
        pl.col("year") <= pl.col("origin")
    )
    renamed = Origins(np.array(asked["record"].to_list(), dtype=np.str_), origins.year)
    return history.with_frame(
        rows.with_columns(person_id=pl.col("record")).select(history.frame.columns)
    ), renamed


NOTE = """CRPS of log earnings, lower is better; ± is the standard error (in-time over persons, forward of the mean over drawn futures).
"loss" is what the bundle loses to itself with all columns and years. Baselines are fitted on, and asked from, what is left of the records;
"saga better by" is the share of the baseline's CRPS, from paired differences (clusters: persons in-time, persons and drawn futures
forward), p adjusted for the horizons (Holm). ? marks p of .01 and above, **!** a baseline that is as good or better. In-time, baselines
know the economy that came from the outcomes of these very years; "told" is the bundle that is told it, and is judged there."""


def main() -> int:
    """Scores every record, writes missing.parquet and missing.md (and the report), prints the table."""
    parser = study_parser(__doc__, n_persons=None, n_paths=PATHS)
    parser.add_argument("register", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--baselines", default="carry,groupq,gbt")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, workers=args.workers)
    baselines = args.baselines.split(",")
    select_baselines(baselines)  # an unknown name is found out before the panel is read
    folder = args.cache or args.out / "kept"
    contest = Contest(
        read_panel(args.register),
        ContestOptions(
            n_paths=args.paths,
            seed=args.seed,
            n_persons=args.persons,
            until=forecaster.bundle.config.get("until"),
            cache=folder,
        ),
        progress=StepLog(),
    )
    futures = args.register if any(args.register.glob("future/draw=*")) else None
    settings = list(contest.settings(futures))
    found = {}
    for reduction in REDUCTIONS:
        say(f"{reduction.label}:")
        found[reduction.name] = score(
            contest, reduction, settings, forecaster, select_baselines(baselines), folder
        )
    table = compare(found, settings, contest.horizons)
    about = {
        **forecaster.provenance(Draws(args.paths, args.seed)),
        **contest.provenance,
        "commit": code_commit(),
    }
    page = report(table, command_line(__file__), about)
    args.out.mkdir(parents=True, exist_ok=True)
    write_table(table, args.out / "missing.parquet", about)
    for file in (args.out / "missing.md", args.report):
        if file:
            file.write_text(page, encoding="utf-8")
    print(page)
    return int(bool(shortfalls(table)))


def report(table: pl.DataFrame, command: str, about: dict[str, object]) -> str:
    """The page: command, provenance, tables and what was not beaten."""
    origin = ", ".join(
        f"{name} `{about[name]}`"
        for name in ("panel", "bundle", "rollout", "commit", "seed", "paths")
    )
    missed = shortfalls(table)
    verdict = "\n".join(f"- {line}" for line in missed) or (
        "The bundle, in-time told the economy, is better than every baseline on every record at every horizon."
    )
    parts = [
        "# What poorer records cost",
        f"`{command}`",
        f"{origin}.",
        NOTE,
        as_markdown(table, {r.name: r.label for r in REDUCTIONS}),
    ]
    return "\n\n".join([*parts, "## Against baselines that know as little", verdict]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
