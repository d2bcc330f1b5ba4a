"""saga register: simulate a register, compare it with published figures, write a release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from saga.cli import console, options
from saga.cli.options import Only
from saga.requests import Draws, Option

_Persons = Annotated[int, typer.Option(min=1, help="Persons in the register.")]
_Draws = Annotated[Draws, Only("seed")]
_Years = Annotated[
    Sequence[int], Option("First and last year of the panel.", least=1900, most=2200)
]
_YEARS = tuple(range(1990, 2023))
_FutureTo = Annotated[
    int | None,
    typer.Option(min=2023, help="Also simulate the same people's future up to this year."),
]
_FutureDraws = Annotated[
    int | None,
    typer.Option(min=1, help="Macro futures to draw.", show_default="1 with --future-to"),
]


def generate(
    persons: _Persons,
    out: Annotated[Path, typer.Option(help="Directory to write.")],
    draws: _Draws,
    years: _Years = _YEARS,
    future_to: _FutureTo = None,
    future_draws: _FutureDraws = None,
    future_records: Annotated[
        bool,
        typer.Option(
            "--future-records",
            help="Futures have all columns of the panel, not only earnings and exits.",
        ),
    ] = False,
    history: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default="Sweden as published",
            help="Number of a drawn economy up to 2022, the same for every seed.",
        ),
    ] = None,
    latent_years: Annotated[
        Sequence[int] | None,
        Option(
            "Years at whose end the hidden state is saved, beside the last: 2002,2012.",
            least=1900,
            most=2200,
        ),
    ] = None,
    process: Annotated[
        Literal["full", "gaussian", "gkos", "gkos-few-zeros"],
        typer.Option(
            help="The full simulation, or a textbook process whose best forecast is known."
        ),
    ] = "full",
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MECHANISM",
            help="Switch a mechanism off (a wrong name lists them all). Repeatable.",
        ),
    ] = None,
    workers: options.Workers = 1,
    as_json: options.Json = False,
) -> None:
    """Simulate a register of working lives: the same seed gives the same bytes."""
    from saga.register.simulation.cohort_simulation import RegisterSettings
    from saga.register.simulation.generation import generate_register

    simulated = None
    if process != "full":
        from saga.evaluation.textbook import PROCESSES

        simulated = PROCESSES[process]
    with console.progress("Simulating", quiet=as_json) as progress:
        metadata = generate_register(
            out,
            RegisterSettings(
                persons=persons,
                seed=draws.seed,
                first_year=years[0],
                last_year=years[-1],
                future_to=future_to,
                future_draws=future_draws or int(future_to is not None),
                latent_years=tuple(latent_years or ()),
                process=simulated,
                without=tuple(without or ()),
                future_records=future_records,
                history=history,
            ),
            workers=workers,
            progress=progress,
        )
    console.result(
        f"Wrote a register of {persons:,} persons to {out} (seed {draws.seed}).",
        {"out": out, **{key: value for key, value in metadata.items() if key != "parameters"}},
        as_json=as_json,
    )


def check(
    register: Annotated[
        Path, typer.Argument(metavar="DIR", help="A register that `saga register generate` wrote.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these targets, by key or beginning of it: level.women. Repeatable."
        ),
    ] = None,
    sample: Annotated[
        Literal["all", "paper"],
        typer.Option(help="paper: also the figures of the paper's selected sample."),
    ] = "all",
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    as_json: options.Json = False,
) -> None:
    """Compare a register with published figures: exit 1 if an enforced target misses its band."""
    from saga.register.validation.register_check import (
        check_register,
        format_markdown,
        format_text,
        passed,
    )

    table = check_register(register, only=only or (), paper=sample == "paper")
    if markdown is not None:
        markdown.write_text(format_markdown(table), encoding="utf-8")
    good = passed(table)
    console.result(
        format_text(table),
        {"register": register, "passed": good, "targets": table.to_dicts()},
        as_json=as_json,
    )
    if not good:
        raise typer.Exit(1)


def release(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory to write.")],
    persons: _Persons,
    draws: _Draws,
    years: _Years = _YEARS,
    future_to: _FutureTo = None,
    future_draws: _FutureDraws = None,
    workers: options.Workers = 1,
    as_json: options.Json = False,
) -> None:
    """Write a register for release: panel, person split, moments, data sheet, checksums."""
    from saga.register import RegisterSettings
    from saga.register.release import release_register

    settings = RegisterSettings(
        persons=persons,
        seed=draws.seed,
        first_year=years[0],
        last_year=years[-1],
        future_to=future_to,
        future_draws=future_draws or int(future_to is not None),
    )
    with console.progress("Simulating", quiet=as_json) as progress:
        written = release_register(out, settings, workers=workers, progress=progress)
    text = (
        f"Wrote {written['register_id']} to {out}: {written['rows']:,} rows, "
        f"{written['files']:,} files. {written['verdict']}"
    )
    console.result(text, {"out": out, **written}, as_json=as_json)
