"""Person-years of PSID heads and spouses from the public file of the package ogusa.

Usage: python examples/psid.py ogusa-0.2.3-py3-none-any.whl psid/people.parquet

The file has a row per household and interview, see docs/how-to/psid.md. The result has a row per
person and year of income, the year before the interview, with the codes of the source;
`examples/psid_mapping.yaml` recodes them.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import polars as pl

MEMBER = "ogusa/psid_lifetime_income.csv.gz"
BASE_YEAR = 2010  # of the prices in the file
AGES = (14, 100)  # other numbers stand for an unknown age
SCHOOLING_YEARS = 17  # the highest code of years of schooling; 99 is unknown


def read_households(wheel: Path) -> pl.DataFrame:
    """The rows of the households, from the wheel or from the file in it."""
    if wheel.suffix != ".whl":
        return pl.read_csv(wheel, infer_schema_length=None)
    with zipfile.ZipFile(wheel) as package, package.open(MEMBER) as compressed:
        return pl.read_csv(compressed.read(), infer_schema_length=None)


def spouse_earnings(households: pl.DataFrame) -> pl.Expr:
    """Spouses' labour income in prices of 2010.

    The source has it in two columns in nominal dollars. Its sum of them is empty wherever one is.
    """
    base = households.filter(pl.col("year_data") == BASE_YEAR)["CPIAUCSL"].first()
    nominal = pl.coalesce("spouse_labor_inc_post1993", "spouse_labor_inc_pre1993")
    return nominal * base / pl.col("CPIAUCSL")


def person_years(households: pl.DataFrame) -> pl.DataFrame:
    """One row per person and year, sorted; birth years are the median of year minus age."""
    rows = households.with_columns(
        year=pl.col("year_data").cast(pl.Int32), of_spouse=spouse_earnings(households)
    )
    other_sex = 3 - pl.col("head_gender")  # the file does not have the spouse's sex
    persons = {
        "head": (pl.col("head_labor_inc"), pl.col("of_spouse"), pl.col("head_gender")),
        "spouse": (pl.col("of_spouse"), pl.col("head_labor_inc"), other_sex),
    }
    parts = [
        rows.filter(pl.col(f"{role}_id").is_not_null()).select(
            pl.col(f"{role}_id").cast(pl.Int64).alias("person_id"),
            pl.col("ID1968").cast(pl.Int64).alias("family"),
            "year",
            earnings=earnings,
            spouse_earnings=pl.when(pl.col("spouse_id").is_not_null()).then(partner),
            sex=sex,
            # An interview is in the year after the year of income.
            born=pl.when(pl.col(f"{role}_age").is_between(*AGES)).then(
                pl.col("year") + 1 - pl.col(f"{role}_age")
            ),
            schooling=pl.when(pl.col(f"{role}_yrs_educ").is_between(1, SCHOOLING_YEARS)).then(
                pl.col(f"{role}_yrs_educ")
            ),
            race=pl.col(f"{role}_race"),
            hours=pl.col(f"{role}_annual_hours"),
            role=pl.lit(role),
            marital_status=pl.col("marital_status"),
            children=pl.col("num_children_under18").clip(upper_bound=3),
            family_income=pl.col("family_total_inc"),
        )
        for role, (earnings, partner, sex) in persons.items()
    ]
    people = pl.concat(parts).unique(["person_id", "year"], keep="first", maintain_order=True)
    same = pl.col("sex").mode().sort().first()
    return (
        people.with_columns(
            birth_year=pl.col("born").median().over("person_id").round().cast(pl.Int32),
            sex=same.over("person_id"),
        )
        .drop("born")
        .drop_nulls("birth_year")
        .sort("person_id", "year")
    )


def main() -> None:
    """Convert the file in the wheel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the wheel, or the file in it")
    parser.add_argument("out", type=Path, help="Parquet file to write")
    arguments = parser.parse_args()
    people = person_years(read_households(arguments.wheel))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    people.write_parquet(arguments.out)


if __name__ == "__main__":
    main()
