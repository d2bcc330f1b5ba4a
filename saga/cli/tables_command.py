"""saga tables: from the paths of a scoring run to tables of a population that may be published."""

from __future__ import annotations

from typing import Annotated

import typer

from saga.cli import console, options
from saga.errors import UsageError


def tables(
    scored: Annotated[
        str,
        typer.Argument(metavar="SCORED", help="Directory or URL of `saga score --product paths`."),
    ],
    by: Annotated[
        str,
        typer.Option(
            help="Groups, with commas: columns of the panel or of --circumstances, age, cohort."
        ),
    ],
    out: Annotated[str, typer.Option(help="Directory or URL for the tables, new or empty.")],
    panel: options.ScoredPersons = None,
    weights: options.PersonWeights = None,
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
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    as_json: options.Json = False,
) -> None:
    """Statistics of a population by groups and years, with disclosure control, for publication."""
    from saga.data.reading import read_panel
    from saga.files.folders import check_new_folder
    from saga.population.disclosure import DisclosureRules
    from saga.population.policy_tables import make_tables
    from saga.population.scored_paths import ScoredPaths, read_persons
    from saga.population.table_files import LOG, write_files
    from saga.version import current_version

    count, share = _parse_dominance(dominance)
    rules = DisclosureRules(minimum, count, share, protection, round_persons, round_amounts)
    check_new_folder(out)
    run, groups = ScoredPaths(scored), [name for name in by.split(",") if name]
    people = None
    if panel is not None:
        people = read_panel(panel, mapping=mapping, prices=options.parse_prices(prices))
    persons = read_persons(run, people, groups, weights)
    with console.progress("Tables", quiet=as_json) as progress:
        tables = make_tables(
            run, persons, groups, rules, transition_years=transition_years, progress=progress
        )
    provenance = {
        **run.provenance,
        "groups": groups,
        "weighted": weights is not None,
        "rules": rules.describe(),
        "code_version": current_version(),
    }
    write_files(tables, out, provenance)
    hidden = tables.statistics.filter(tables.statistics["suppressed"])
    value = {
        "out": out,
        "cells": tables.statistics.height,
        "suppressed": hidden.height,
        "log": f"{out.rstrip('/')}/{LOG}",
    }
    text = (
        f"{tables.statistics.height:,} values are in {out}, {hidden.height:,} of them suppressed. "
        f"{LOG} says why; it is not for publication."
    )
    console.result(text, value, as_json=as_json)


def _parse_dominance(text: str) -> tuple[int, float]:
    """`2,.85` as the number and the share of the dominance rule."""
    try:
        count, share = text.split(",")
        return int(count), float(share)
    except ValueError:
        raise UsageError(f"--dominance is n,k such as 2,.85, not {text!r}.") from None
