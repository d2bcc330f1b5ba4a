"""The table of a panel's columns: meaning, type, codes and range of each.

One row of a panel is a person-year. Validation, reading, the tokens of the model, the API's request
body and `GET /v1/variables` all read this table.

To add a column, add it to COLUMNS and run `python docs/columns/write.py`. Kind `money` or `number`
and `category` are inputs of the network and of trees, `label` is not. README.md states the number
of columns. The register leaves a number empty until `saga/register/simulation/records.py` fills it;
a column of text must be filled there at once (a category: `_LABELS`). The mappings in
`saga/data/mappings/` name its sources.

Every bundle is bound to the names, kinds, types and codes of the table, so the shipped ones are
refused until `make prior` and `make bundle` have trained them again; tests that train a bundle
themselves pass before that. Descriptions and bounds are not bound. A column for one panel alone
needs no code: `extra` of a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["id", "year", "money", "number", "category", "label"]

EDUCATION_LEVELS = ("compulsory", "upper_secondary", "short_tertiary", "long_tertiary")
BIRTH_REGIONS = (
    "sweden",
    "nordic",
    "eu",
    "europe_other",
    "africa",
    "north_america",
    "south_america",
    "asia_oceania",
)
COUNTIES = (
    "01", "03", "04", "05", "06", "07", "08", "09", "10", "12", "13",
    "14", "17", "18", "19", "20", "21", "22", "23", "24", "25",
)  # fmt: skip
MARITAL_STATUSES = ("single", "married", "cohabiting", "divorced", "widowed")
YOUNGEST_CHILD = ("none", "infant", "preschool", "school", "teen")

MIN_AGE, MAX_AGE = 16, 64
N_AGES = MAX_AGE - MIN_AGE + 1
MAX_CONTEXT_YEARS = 50  # most years of a record that a forecast uses
PRICE_YEAR = 2022
MAX_LOG = 20.0  # logarithms of earnings of a year are below, in any currency
MAX_AMOUNT = 1e12  # of money, above or below 0; more is a mistake in any currency


@dataclass(frozen=True)
class Column:
    """One column of the panel.

    `codes` lists the allowed values of a category, or the regular expression `pattern` describes
    them. `static` columns do not change with the year. `lasting` columns seldom change, so a
    rollout continues with the last known value.
    """

    name: str
    kind: Kind
    dtype_name: str
    description: str
    unit: str = ""
    codes: tuple[str, ...] = ()
    pattern: str = ""
    minimum: float | None = None
    maximum: float | None = None
    required: bool = False
    static: bool = False
    lasting: bool = False

    @property
    def dtype(self) -> pl.DataType:
        """The polars type of the column in a validated panel."""
        import polars  # not at the top: code that only checks options needs no polars

        dtype: pl.DataType = getattr(polars, self.dtype_name)()
        return dtype


def _money(
    name: str, description: str, *, negative: bool = False, required: bool = False
) -> Column:
    return Column(
        name,
        "money",
        "Float64",
        description,
        "SEK a year",
        minimum=None if negative else 0.0,
        required=required,
    )


def _category(
    name: str,
    description: str,
    codes: tuple[str, ...] = (),
    *,
    pattern: str = "",
    static: bool = False,
    lasting: bool = False,
) -> Column:
    return Column(
        name,
        "category",
        "String",
        description,
        "code",
        codes=codes,
        pattern=pattern,
        static=static,
        lasting=lasting,
    )


COLUMNS: tuple[Column, ...] = (
    Column(
        "person_id", "id", "String", "Person; leading zeros are kept", required=True, static=True
    ),
    Column(
        "year",
        "year",
        "Int32",
        "Calendar year of the record",
        "year",
        minimum=1900,
        maximum=2200,
        required=True,
    ),
    Column(
        "birth_year",
        "year",
        "Int32",
        "Year of birth",
        "year",
        minimum=1850,
        maximum=2200,
        required=True,
        static=True,
    ),
    _money("earnings", "Labour earnings of the year: 0 is none, null is unknown", required=True),
    _money("capital_income", "Capital income; losses are negative", negative=True),
    _money("transfers", "All taxable and tax-free transfers"),
    _money("sickness_benefit", "Sickness benefit"),
    _money("parental_benefit", "Parental benefit"),
    _money("unemployment_benefit", "Unemployment benefit"),
    _money("disability_pension", "Sickness and activity compensation"),
    _money("pension_income", "Old-age, occupational and private pensions"),
    _money("housing_supplement", "Housing supplement"),
    Column(
        "employment_rate",
        "number",
        "Float64",
        "Weeks worked / 52",
        "share",
        minimum=0.0,
        maximum=1.0,
    ),
    _money("employer_mean_earnings", "Mean earnings at the main employer"),
    Column(
        "employer_size", "number", "Float64", "Persons at the main employer", "persons", minimum=0.0
    ),
    Column("full_time", "number", "Float64", "1 full time, 0 not", "0/1", minimum=0.0, maximum=1.0),
    Column("employers", "number", "Float64", "Employers during the year", "count", minimum=0.0),
    _money("spouse_earnings", "Labour earnings of the spouse or partner"),
    _category("occupation", "Occupation, SSYK 2012, 3 digits", pattern=r"^\d{3}$"),
    _category("industry", "Industry, SNI 2007, 2 digits", pattern=r"^\d{2}$"),
    _category("county", "County of residence, SCB code", COUNTIES),
    _category(
        "education_level",
        "Highest education, SUN 2000 level in 4 groups",
        EDUCATION_LEVELS,
        lasting=True,
    ),
    _category(
        "education_field",
        "Field of education, SUN2000Inr, 1 digit",
        tuple("0123456789"),
        lasting=True,
    ),
    _category("sex", "Sex in the register", ("female", "male"), static=True),
    _category("birth_region", "Region of birth", BIRTH_REGIONS, static=True),
    _category("marital_status", "Civil status, or cohabitation if observed", MARITAL_STATUSES),
    _category("children", "Children at home, 3 stands for 3 or more", tuple("0123")),
    _category("youngest_child", "Age of the youngest child at home", YOUNGEST_CHILD),
    Column(
        "entry_year",
        "label",
        "Int32",
        "First year the person could be observed",
        "year",
        static=True,
    ),
    Column(
        "exit_year",
        "label",
        "Int32",
        "First year without the person, after death or emigration",
        "year",
        static=True,
    ),
    Column(
        "exit_reason",
        "label",
        "String",
        "Why the person left",
        "code",
        codes=("dead", "emigrated"),
        static=True,
    ),
)

BY_NAME: dict[str, Column] = {column.name: column for column in COLUMNS}
NAMES: tuple[str, ...] = tuple(BY_NAME)
REQUIRED: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.required)
MONEY: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.kind == "money")
# The model's inputs, in the order of the token's subvectors.
CONTINUOUS: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.kind in ("money", "number"))
CATEGORICAL: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.kind == "category")
STATIC: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.static)
EXIT: tuple[str, ...] = ("entry_year", "exit_year", "exit_reason")


# A panel's own columns, which a mapping names, follow those of the table. The prefix distinguishes
# them from columns that programs add to a panel's rows.
EXTRA_PREFIX = "extra_"
# Families are clusters of persons in standard errors, never a feature.
FAMILY = Column("family_id", "label", "String", "Family of the person", static=True)


def extra_column(source: str, kind: Kind, *, static: bool = False, lasting: bool = False) -> Column:
    """The own column of the panel for a column of the source, or for a column named like that."""
    plain = re.sub(r"\W+", "_", source).strip("_").lower()
    name = EXTRA_PREFIX + plain.removeprefix(EXTRA_PREFIX)
    dtype_name = "Float64" if kind == "number" else "String"
    return Column(name, kind, dtype_name, f"{source} of the source", static=static, lasting=lasting)


@cache
def polars_schema() -> Mapping[str, pl.DataType]:
    """Column name -> polars type of a validated panel, in canonical order."""
    return MappingProxyType({column.name: column.dtype for column in COLUMNS})
