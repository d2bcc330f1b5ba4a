"""What commands have in common to be given: arguments and options with their meaning, in the order of `--help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from saga.requests import OnError, Precision, RolloutName, TaxName

Input = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="Person-years: a file or folder of .parquet .csv .arrow .dta .sas7bdat .sav.",
    ),
]
PanelOption = Annotated[
    Path, typer.Option("--panel", help="Person-years: a file, a folder or a generated register.")
]
BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Directory of a bundle.")]
BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", help="Directory of a bundle.", show_default="bundles/small"),
]
MappingOption = Annotated[
    str | None,
    typer.Option(
        "--mapping",
        help="How the source names things: a YAML file or a shipped name (lisa, nlsy79).",
    ),
]
Prices = Annotated[
    str | None,
    typer.Option(
        help="'nominal', or the year in whose prices all amounts are.", show_default="nominal"
    ),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option(help="Stop at rows that break a rule, or drop and count them."),
]
Rejected = Annotated[
    Path | None, typer.Option(help="Where the rows that break a rule go (.parquet or .csv).")
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same numbers.")]
PathsOption = Annotated[int, typer.Option("--paths", help="Simulated futures a person.")]
ScenarioOption = Annotated[
    str | None,
    typer.Option(
        "--scenario", help="Macro futures: baseline, recession-1990s, high-growth or a CSV file."
    ),
]
RolloutOption = Annotated[
    RolloutName | None,
    typer.Option(
        "--rollout",
        help="How paths are carried: by the decoder, or lightly, faster.",
        show_default="as calibrated",
    ),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        help="Arithmetic of paths; bfloat16 is faster where the processor has units for it.",
        show_default="float32",
    ),
]
Coverage = Annotated[
    str, typer.Option(help="Coverage of the intervals, each strictly between 0 and 1.")
]
Quantiles = Annotated[
    str, typer.Option(help="Quantiles: shares (.05,.5) or a range of per cents (1-99).")
]
Horizons = Annotated[str, typer.Option(help="Years ahead: a range (1-30) or a list (1,5,10).")]
Rate = Annotated[float, typer.Option(help="Real discount rate a year, as a share.")]
ToAge = Annotated[int, typer.Option(help="Last age that counts.")]
FromAge = Annotated[
    int | None, typer.Option(help="Add the observed past from this age, and discount to it.")
]
TaxOption = Annotated[TaxName, typer.Option("--tax", help="Tax rule: se-2022, paper or none.")]
Database = Annotated[
    str | None,
    typer.Option(
        envvar="SAGA_DATABASE",
        help="Ledger whose thresholds serve: sqlite:///FILE or postgresql://...",
        show_default="none",
    ),
]
DatabaseKey = Annotated[
    Path | None,
    typer.Option(
        envvar="SAGA_DATABASE_KEY",
        help="File of the ledger's secret.",
        show_default="FILE.key, made if missing",
    ),
]
Record = Annotated[
    bool,
    typer.Option(
        "--record", help="Enter what is promised in the ledger, to be judged when outcomes come in."
    ),
]
Split = Annotated[
    Literal["person"],
    typer.Option(help="How persons are divided into training, validation, calibration and test."),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="Persons simulated at a time (large jobs: processes).", show_default="all cores"
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes; the bytes do not depend on it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
