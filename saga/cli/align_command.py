"""saga align: adjust or weight simulated paths so that they meet official totals."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga.cli import console, options

if TYPE_CHECKING:
    import polars as pl


def align(
    scored: Annotated[
        str,
        typer.Argument(metavar="SCORED", help="Directory or URL of `saga score --product paths`."),
    ],
    targets: Annotated[
        str,
        typer.Option(
            help="CSV (a path or a URL): year, columns of groups, and total or mean (earnings, "
            "real)."
        ),
    ],
    out: Annotated[str, typer.Option(help="Directory or URL for the result, new or empty.")],
    method: Annotated[
        Literal["adjust", "weights"],
        typer.Option(help="Adjust earnings within year and group, or find weights of persons."),
    ] = "adjust",
    panel: options.ScoredPersons = None,
    weights: options.PersonWeights = None,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    as_json: options.Json = False,
) -> None:
    """Adjust paths, or weight persons, so that totals by year and group equal official ones."""
    from saga.data.reading import read_panel
    from saga.files.folders import check_new_folder, new_folder, open_file, put_json
    from saga.population.alignment import adjust, balance, effective_persons, read_targets
    from saga.population.scored_paths import ScoredPaths, read_persons

    check_new_folder(out)
    run, official = ScoredPaths(scored), read_targets(targets)
    people = None
    if panel is not None:
        people = read_panel(panel, mapping=mapping, prices=options.parse_prices(prices))
    persons = read_persons(run, people, official.groups, weights)
    settings: dict[str, object] = {
        "method": method,
        "targets": open_file(targets).digest(),
        "groups": list(official.groups),
        "weighted": weights is not None,
    }
    with new_folder(out) as folder:
        if method == "adjust":
            diagnostics = adjust(run, persons, official, folder, settings)
        else:
            table, diagnostics = balance(run, persons, official)
            folder.put("weights.parquet", _parquet_file(table))
            base = persons.frame.sort("person_id")["weight"].to_numpy()
            settings |= {
                "effective_persons": effective_persons(table["weight"].to_numpy()),
                "effective_persons_before": effective_persons(base),
            }
        diagnostics = official.named(diagnostics)
        folder.put("alignment.csv", diagnostics.write_csv().encode())
        put_json(folder, "alignment.json", {**run.provenance, "aligned": settings})
    factors = (diagnostics["target"] / diagnostics["before"]).to_list()
    lowest, highest = min(factors), max(factors)
    console.result(
        f"{len(factors)} targets are met in {out}. Totals moved by factors from {lowest:.3f} "
        f"to {highest:.3f}; alignment.csv has each.",
        {"out": out, **settings, "factors": [lowest, highest]},
        as_json=as_json,
    )


def _parquet_file(table: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    table.write_parquet(content)
    return content.getvalue()
