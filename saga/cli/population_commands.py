"""saga tables, saga align: tables and totals of a population from its simulated paths."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga.cli import console, options
from saga.cli.inputs import Reading, show_warnings
from saga.errors import UsageError
from saga.requests import PopulationRequest

if TYPE_CHECKING:
    import polars as pl

    from saga.data.panel import Panel
    from saga.population.scored_paths import ScoredPaths

_Scored = Annotated[
    str,
    typer.Argument(metavar="SCORED", help="Directory or URL of `saga score --product paths`."),
]
_Panel = Annotated[
    str | None,
    typer.Option(
        "--panel",
        help="The persons that were scored, for groups that paths do not have.",
    ),
]
_Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="Table person_id, weight (.parquet or .csv).",
        show_default="all 1",
    ),
]
_Columns = Annotated[Reading, "mapping", "prices", "facts"]
_OF_PATHS = ("by", "compare", "events", "until", "rate", "tax", "inflow")  # not the last age


def tables(
    scored: _Scored,
    request: Annotated[PopulationRequest, *_OF_PATHS],
    out: Annotated[
        str,
        typer.Option(
            help="Directory or URL for the tables, new or empty; the log is in OUT-internal."
        ),
    ],
    reading: _Columns,
    panel: _Panel = None,
    weights: _Weights = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Paths of the same persons under another scenario: also the difference."),
    ] = None,
    minimum: Annotated[int, typer.Option(help="Persons that a published cell has.")] = 10,
    dominance: Annotated[
        str,
        typer.Option(help="n,k: the n largest have at most the share k of a published total."),
    ] = "2,.85",
    protection: Annotated[
        float, typer.Option(help="How closely nobody may compute a hidden cell, as a share of it.")
    ] = 0.15,
    round_persons: Annotated[int, typer.Option(help="Persons are multiples of it.")] = 5,
    round_amounts: Annotated[int, typer.Option(help="Amounts are multiples of it.")] = 100,
    transition_years: Annotated[
        int, typer.Option(min=1, help="Years between the classes of a transition.")
    ] = 5,
    dynamics: Annotated[
        bool,
        typer.Option("--dynamics", help="Also changes and mobility of careers beside the panel's."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Statistics of groups by year with 90 % bands, with disclosure control, for publication.

    Without --weights, totals and bands are about these persons; with it, about the population.
    Inputs and outputs may be URLs.

    Examples:
        saga tables paths --by sex,age --panel register/ --out tables  # statistics to publish
        saga tables paths --panel p.csv --events "total all 2030 > 5e9" --out t  # and a chance
        saga tables recession --reference paths --panel p.csv --out t  # what a scenario changes
    """
    from saga.files.folders import check_new_folder
    from saga.pages.format import estimated_chance
    from saga.pages.group import describe_suppressed, entrants_until, table_years
    from saga.population.disclosure import DisclosureRules
    from saga.population.policy_tables import make_tables
    from saga.population.population_paths import population_of
    from saga.population.scored_paths import ScoredPaths
    from saga.population.simulated_careers import dynamics_table
    from saga.population.table_files import LOG, internal_folder, write_files
    from saga.version import current_version

    largest = _parse_dominance(dominance)
    rules = DisclosureRules(minimum, *largest, protection, round_persons, round_amounts)
    check_new_folder(out)
    check_new_folder(internal_folder(out))
    run = ScoredPaths(scored)
    people = _read(run, panel, reading)
    money = run.provenance["price_year"], run.provenance["currency"]
    others = [] if reference is None else [ScoredPaths(reference)]
    for of_reference in others:
        run.check_reference(of_reference)
        request = replace(request, reference=of_reference.provenance["scenario"])
    population = population_of(run, people, request, weights, reading.open_facts(), *others)
    with console.progress("Tables", quiet=as_json) as progress:
        results = make_tables(
            population, request, rules, transition_years=transition_years, progress=progress
        )
    if dynamics:
        careers = dynamics_table(population.paths, population.records, rules)
        results = replace(results, dynamics=careers)
    warnings = show_warnings(results.warnings)
    provenance = population.provenance(request, rules)
    provenance |= {**_inputs(people, weights), "warnings": warnings}
    provenance["code_version"] = current_version()
    write_files(results, out, provenance)
    n_cells, n_hidden = results.statistics.height, results.statistics["suppressed"].sum()
    years = table_years(results.statistics)
    entrants = entrants_until(provenance, years[-1])
    report = {
        "out": out,
        "cells": n_cells,
        "suppressed": n_hidden,
        "years": [years[0], years[-1]],
        "entrants": entrants,
        "warnings": warnings,
        "log": f"{internal_folder(out)}/{LOG}",
        "chances": results.chances(),
    }
    text = (
        f"{n_cells:,} values are in {out}{f', with {entrants:,.0f} entrants' if entrants else ''}. "
        f"{describe_suppressed(results.statistics, results.suppressed_until)} "
        f"{report['log']} says why; it is not for publication."
    )
    if results.transitions.is_empty():
        text += f"\nThere are no transitions, for which {transition_years + 1} years are needed."
    for row in results.statistics.filter(statistic="chance").iter_rows(named=True):
        chance = estimated_chance(row["value"], row["mc_error"])
        text += f"\n{row['event']}: {'suppressed' if row['suppressed'] else chance}"
    console.result(text, report, as_json=as_json)
    if not as_json:
        _show_sums(results.statistics, request, f"{money[1]} of {money[0]}", out)


def _show_sums(statistics: pl.DataFrame, request: PopulationRequest, unit: str, out: str) -> None:
    """Print the sum and the mean lifetime of all persons, and the effects on them.

    Sums are those of the years of the page.
    """
    import polars as pl

    from saga.pages.format import percent, short, unit_of
    from saga.pages.group import TOTAL, shown_years, table_years

    years, amounts = table_years(statistics), pl.selectors.float()
    of_all = statistics.filter(
        *(pl.col(column) == TOTAL for column in request.by), ~pl.col("suppressed")
    )
    sums = of_all.filter(pl.col("year").is_in(shown_years(years)), statistic="total")
    if sums.is_empty():
        return
    lifetimes = of_all.filter(statistic="lifetime_mean")
    lifetime = (
        f"Mean present value of later earnings to age {request.to_age}, at {100 * request.rate:g} %"
    )
    for prefix, change in {"": "", "effect_": "What the scenario changes: "}.items():
        ends = {f"{prefix}lower_90": "90 % from", f"{prefix}upper_90": "to"}
        value = prefix.rstrip("_") or "value"
        for title, rows, shown in (
            ("Earnings of all persons", sums, {"year": "Year", value: "Sum", **ends}),
            (lifetime, lifetimes, {value: "Mean", **ends}),
        ):
            if value in rows.columns and rows.height:
                table = rows.select(*shown)
                scale, name = unit_of(table.select(pl.max_horizontal(amounts.abs().max())).item())
                heading = f"{change}{title}, {name}{unit}"
                table = table.with_columns(amounts / scale)
                if prefix:
                    shares = (rows["effect"] / rows["reference"]).map_elements(percent, pl.String)
                    table, shown = table.with_columns(share=shares), {**shown, "share": "Per cent"}
                console.table(table, heading, shown, short)
    if shown_years(years) != years:
        console.result(
            "All years, with all digits: the rows of the statistic total in "
            f"{out.rstrip('/')}/statistics.csv.",
            {},
            as_json=False,
        )


def align(
    scored: _Scored,
    targets: Annotated[
        str,
        typer.Option(help="CSV: year, columns of groups, and total or mean (earnings, real)."),
    ],
    out: Annotated[str, typer.Option(help="Directory or URL for the result, new or empty.")],
    reading: _Columns,
    method: Annotated[
        Literal["adjust", "weights"],
        typer.Option(help="adjust earnings within year and group, or find weights of persons."),
    ] = "adjust",
    panel: _Panel = None,
    weights: _Weights = None,
    residents: Annotated[
        bool,
        typer.Option("--residents", help="Count who is alive and in the country only."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Adjust paths, or weight persons, so that totals by year and group equal official ones.

    Inputs and outputs may be URLs.

    Examples:
        saga align paths --targets totals.csv --panel register/ --out aligned  # official totals
    """
    from saga.files.folders import check_new_folder, new_folder, open_file, put_json
    from saga.files.tables import parquet_bytes
    from saga.population.alignment import adjust, balance, effective_persons, read_targets
    from saga.population.scored_paths import ScoredPaths, read_persons

    check_new_folder(out)
    run, official = ScoredPaths(scored), read_targets(targets, of_residents=residents)
    people = _read(run, panel, reading)
    persons, n_others = read_persons(run, people, official.groups, weights)
    if n_others:
        console.note(f"Warning: the weights of {n_others:,} persons change nothing: no paths.")
    settings: dict[str, object] = {
        "method": method,
        "targets": open_file(targets).digest(),
        "groups": list(official.groups),
        "weighted": weights is not None,
        "residents": residents,
        **_inputs(people, weights),
    }
    with new_folder(out) as folder:
        if method == "adjust":
            diagnostics = adjust(run, persons, official, folder, settings)
        else:
            table, diagnostics = balance(run, persons, official)
            folder.put("weights.parquet", parquet_bytes(table))
            base = persons.sort("person_id")["weight"].to_numpy()
            settings |= {
                "effective_persons": effective_persons(table["weight"].to_numpy()),
                "effective_persons_before": effective_persons(base),
            }
        diagnostics = official.named(diagnostics)
        folder.put("alignment.csv", diagnostics.write_csv().encode())
        put_json(folder, "alignment.json", {**run.provenance, "aligned": settings})
    factors = (diagnostics["target"] / diagnostics["before"]).to_list()
    lowest, highest = min(factors), max(factors)
    inside = diagnostics["target"].is_between(diagnostics["lower_90"], diagnostics["upper_90"])
    outside = int((~inside).sum())
    console.result(
        f"{len(factors)} targets are met in {out}. Totals moved by factors from {lowest:.3f} "
        f"to {highest:.3f}; {outside} of the targets lie outside the 90 % band of the paths. "
        "alignment.csv has each.",
        {"out": out, **settings, "factors": [lowest, highest], "outside_90": outside},
        as_json=as_json,
    )


def _inputs(people: Panel | None, weights: str | None) -> dict[str, object]:
    """The digests of what tables need beside the paths, which provenance names."""
    from saga.files.folders import open_file

    of_weights = None if weights is None else open_file(weights).digest()
    return {"panel_digest": people and people.digest, "weights_digest": of_weights}


def _parse_dominance(text: str) -> tuple[int, float]:
    """`2,.85` as the number and the share of the dominance rule."""
    try:
        n_largest, share = text.split(",")
        return int(n_largest), float(share)
    except ValueError:
        raise UsageError(f"--dominance is n,k such as 2,.85, not {text!r}.") from None


def _read(run: ScoredPaths, panel: str | None, reading: Reading) -> Panel | None:
    """The persons that were scored, if they are named; a warning if the files are others."""
    from saga.data.reading import Source, read_panel

    if panel is None:
        return None
    mapping, prices = reading.mapping, reading.prices
    if not run.is_of(Source(panel, mapping, prices).describe()["files"]):
        console.note(
            f"Warning: {panel} has other content than the files that were scored. A column more "
            "does no harm, but where persons, groups or earnings were changed, too, the tables mix "
            "both."
        )
    return read_panel(panel, mapping=mapping, prices=prices, facts=reading.open_facts())
