"""Simulated careers as one CSV file a year in the columns of a microsimulation model.

Usage: python examples/hand_over.py PATHS PANEL.csv LAYOUT OUT [PATH]
"""

import sys
from pathlib import Path

import polars as pl

MALE, AGE = pl.col("sex") == "male", pl.col("year") - pl.col("birth_year")
STATUS = pl.when(pl.col("state") == "retired").then(4).when(pl.col("earnings") > 0).then(1)
LAYOUTS: dict[str, dict[str, pl.Expr]] = {
    "liam2": {
        "period": pl.col("year"),
        "id": pl.col("number"),
        "age": AGE,
        "gender": MALE,
        "earnings": pl.col("earnings"),
    },
    "policyengine": {
        "person_id": pl.col("number"),
        "age": AGE,
        "employment_income": pl.col("earnings"),
    },
    "simpaths": {
        "idPers": pl.col("number"),
        "statInterviewYear": pl.col("year"),
        "demAge": AGE,
        "demMaleFlag": MALE.cast(pl.Int8),
        "labC4": STATUS.otherwise(3),
        "yEmpPersGrossMonth": (pl.col("earnings") / 12).arcsinh(),
    },
}


def main(paths: str, panel: str, layout: str, out: str, path: str = "0") -> None:
    """Write the careers of one path, without years after a death or an emigration."""
    records = pl.read_csv(panel, schema_overrides={"person_id": pl.String}).sort("year")
    careers = pl.read_parquet(f"{paths}/part-*.parquet").filter(pl.col("path") == int(path))
    if layout not in LAYOUTS:
        sys.exit(f"There is no layout {layout}. Use one of {', '.join(LAYOUTS)}.")
    if "sex" not in records.columns:
        sys.exit(f"{panel} has no column sex, which the layouts need.")
    if "state" not in careers.columns:
        sys.exit(f"{paths} has no column state. Score again with --circumstances.")
    people = records.group_by("person_id").last().sort("person_id").with_row_index("number", 1)
    gone = pl.col("state").cast(pl.String).is_in(["dead", "abroad"]).fill_null(value=False)
    careers = careers.filter(~gone).join(
        people.select("person_id", "number", "birth_year", "sex"), on="person_id"
    )
    Path(out).mkdir(parents=True, exist_ok=True)
    for year in careers["year"].unique().sort():
        rows = careers.filter(pl.col("year") == year).sort("number")
        rows.select(**LAYOUTS[layout]).write_csv(Path(out) / f"{layout}_{year}.csv")


if __name__ == "__main__":
    main(*sys.argv[1:])
