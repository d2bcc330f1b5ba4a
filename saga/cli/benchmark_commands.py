"""saga benchmark: a round of persons' pasts, and the scores of an entry in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import Model
from saga.cli.options import Only
from saga.requests import Draws, ForecastRequest

if TYPE_CHECKING:
    from collections.abc import Callable

_Truth = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the futures of a judged round, kept apart from the pasts.",
        show_default="in the round: a development round",
    ),
]


def pasts(
    out: Annotated[Path, typer.Argument(metavar="ROUND", help="Folder to write.")],
    draws: Annotated[Draws, Only("seed")],
    model: Annotated[Model, Only("bundle")],
    persons: Annotated[int, typer.Option(min=1_000, help="Persons in the round.")] = 20_000,
    futures: Annotated[int, typer.Option(min=1, help="Futures of the economy.")] = 20,
    request: Annotated[ForecastRequest, Only("horizons")] = ForecastRequest((1, 5, 10, 20)),
    truth: _Truth = None,
    workers: options.Workers = 1,
    as_json: options.Json = False,
) -> None:
    """Write a round: persons' pasts, the rows of an entry, and those of SAGA and simple methods.

    With --truth the seed is not in ROUND. Draw it from 0 to 2^63 - 1 and keep it until the end;
    the digest in round.json binds it and the outcomes.
    """
    from saga.evaluation.benchmark.rounds import RoundSettings, write_round

    with console.progress("Simulating", quiet=as_json) as bar:
        progress: Callable[[str, int, int], None] | None = (
            None if bar is None else lambda step, done, total: bar(done, total, step)
        )
        record = write_round(
            out,
            RoundSettings(draws.seed, persons, futures, request.horizons),
            bundle=model.directory,
            truth=truth,
            workers=workers,
            progress=progress,
        )
    console.result(
        f"Wrote {out}: {record['rows']:,} rows to forecast, of {record['judged_persons']:,} "
        f"persons. Digest of the truth: {record['commitment']}",
        {"out": out, **record},
        as_json=as_json,
    )


def score_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The entry: .csv or .parquet.")],
    round_: Annotated[Path, typer.Option("--round", help="Folder of the round.")],
    truth: _Truth = None,
    paths: Annotated[
        Path | None,
        typer.Option(help="Joint paths of the entry, to judge totals as distributions."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the scores by person, group and total.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Score an entry beside SAGA and simple methods; a wrong file is refused by row and column.

    Examples:
        saga benchmark pasts round --seed 1  # docs/how-to/benchmark.md describes the format
        saga benchmark score entry.csv --round round
    """
    from saga.evaluation.benchmark.entry_scores import score_entry, summarise, write_scores

    tables = score_entry(file, round_, truth=truth, paths=paths)
    if out is not None:
        write_scores(tables, out, file.name)
    if not as_json:
        console.table(summarise(tables), f"{file.stem} in {round_}, all persons")
    metrics, comparisons = (tables[name].to_dicts() for name in ("metrics", "comparisons"))
    text = "" if out is None else f"Wrote persons, metrics and comparisons to {out}."
    value = {"entry": file.stem, "metrics": metrics, "comparisons": comparisons}
    console.result(text, value, as_json=as_json)
