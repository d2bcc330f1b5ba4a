"""Simulated careers as one CSV file a year in the columns of a microsimulation model.

Usage: python examples/hand_over.py PATHS PANEL LAYOUT OUT [--mapping FILE] [--path NUMBER]
"""

import argparse
import sys
from pathlib import Path

import polars as pl

from saga import SagaError, read_panel
from saga.population.scored_paths import ScoredPaths, check_panel

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


def numbered(panel: pl.DataFrame, layout: str) -> pl.DataFrame:
    """A row for each person, with a whole number: its id, if all ids are different numbers.

    LIAM2 has them from 1 on: the model keeps lists that are as long as the largest number.
    """
    people = panel.sort("person_id", "year").group_by("person_id", maintain_order=True).last()
    numbers = people["person_id"].cast(pl.Int64, strict=False)
    if layout == "liam2" or numbers.null_count() or numbers.n_unique() < len(numbers):
        return people.with_row_index("number", 1)
    return people.with_columns(number=numbers)


def main(paths: str, panel: str, layout: str, out: Path, mapping: str | None, path: int) -> None:
    """Write the careers of one path, without years after a death or an emigration; say how many."""
    scored, source = ScoredPaths(paths), read_panel(panel, mapping=mapping)
    check_panel(scored, source)
    people, careers = numbered(source.frame, layout), scored.rows.filter(path=path).collect()
    if people["sex"].null_count() == len(people):
        sys.exit(f"{panel} has no column sex, which the layouts need.")
    if "state" not in careers.columns:
        sys.exit(f"{paths} has no column state. Score again with --circumstances.")
    if careers.is_empty():
        sys.exit(f"{paths} has no path {path}. The first path is 0.")
    gone = pl.col("state").cast(pl.String).is_in(["dead", "abroad"]).fill_null(value=False)
    people = people.select("person_id", "number", "birth_year", "sex")
    abroad = careers.filter(pl.col("state").cast(pl.String) == "abroad")
    share = abroad["earnings"].sum() / max(careers["earnings"].sum(), 1)
    sys.stdout.write(f"Left out: {len(abroad)} years abroad, {share:.1%} of all earnings.\n")
    careers = careers.filter(~gone).join(people, on="person_id").sort("number")
    out.mkdir(parents=True, exist_ok=True)
    people.select("number", "person_id").write_csv(out / "persons.csv")
    for (year,), rows in careers.partition_by("year", as_dict=True).items():
        rows.select(**LAYOUTS[layout]).write_csv(out / f"{layout}_{year}.csv")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", help="folder of `saga score --product paths --circumstances`")
    parser.add_argument("panel", help="the persons that were scored")
    parser.add_argument("layout", choices=LAYOUTS)
    parser.add_argument("out", type=Path, help="folder for the files")
    parser.add_argument("--mapping", help="names and codes of the panel, as in saga score")
    parser.add_argument("--path", type=int, default=0, help="which future, from 0")
    try:
        main(**vars(parser.parse_args()))
    except SagaError as error:
        sys.exit(f"Error: {error}")
