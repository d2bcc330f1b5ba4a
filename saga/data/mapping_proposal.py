"""A proposal for the mapping of a source that has none: what its columns seem to be, and questions.

Names and contents decide together. Where they leave a doubt, the line has a comment with a question
mark. No cell is shown, apart from codes of sex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from saga.data.casting import in_groups, with_decimal_point
from saga.data.csv_text import UTF_8
from saga.data.mapping import WHOLE, SourceMapping
from saga.schema import MAX_LOG, NAMES

_ID = r"person_?id|p_?id|pers(on)?|idpers|l[oö]pnr|lnr|pnr|nr|case_?id|id"
_YEAR = r"year|ar|år|jahr|ann[eé]e|syear|yr|ds|time|t|date"
_BIRTH = (
    r"birth_?(year|yr)|year_?of_?birth|yob|byear|born|geb(urts)?[_ ]?jahr|f[oö]delse[_ ]?[aå]r"
    r"|ann[eé]e[_ ]?(de[_ ]?)?naissance"
)
_AGE = r"(?<![a-zåäö])(age|alder|ålder|alter)(?![a-zåäö])"
_EARNINGS = (
    r".*(earn|wage|salar|salaire|arbink|income|inkomst|lon|lön|lohn|löhne|einkommen|verdienst"
    r"|revenu).*"
)
_FAMILY = r"(family|fam|household|hh|hushall)_?(id|nr|no)?"
_SEX = r"sexe?|gender|kon|kön|geschlecht"
_SEXES = {
    **dict.fromkeys(("f", "female", "woman", "w", "kvinna", "k", "frau", "femme"), "female"),
    **dict.fromkeys(("m", "male", "man", "mann", "h", "homme"), "male"),
    **{"weiblich": "female", "männlich": "male", "maennlich": "male"},
}
_PLAIN = r"[A-Za-zÅÄÖåäöÜü_][\w.]*"  # a name that needs no quotes in YAML
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")  # of YAML
_FEW_CODES = 30  # a column with more different numbers has amounts
_SMALL = 5_000  # if half of the yearly earnings are below, they may be in hundreds or thousands
_THOUSANDS = (
    r"(?<![a-zåäö])(tkr|[tk]sek|[tk]eur|[tk]€|tusen\w*|tausend\w*|thousands?|milliers)(?![a-z])"
)
_MONEY = r"(?<![a-zåäö])[tk]?(eur|usd|gbp|chf|nok|dkk|pln|czk|huf)(?![a-zåäö])"
_SHARE = 0.95  # of the cells or persons of a column that must look alike
_QUESTION = "  # ? "
_CURRENCY = """\
# ? The amounts are read as SEK of each year. For another currency, remove the # of these lines:
# currency: USD
# floor: none    # if nobody has 0; or an amount: scores do not tell smaller ones apart
# macro: none    # or {file: series.csv}, with unemployment, real wages and inflation by year
# deflator: {file: cpi.csv, base_year: 2022}    # without it, state --prices
# scale: 100     # if amounts are in hundreds"""


@dataclass(frozen=True)
class Proposal:
    """The text of a mapping, and what the user should look at before using it.

    `has_years` says whether columns name a person and a year.
    """

    text: str
    questions: tuple[str, ...]
    has_years: bool = True


def propose_mapping(
    rows: pl.DataFrame,
    files: SourceMapping | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> Proposal:
    """The mapping that the columns of a source suggest; `rows` are as the source has them.

    `files` has the encoding by which they were read, and whether their column `year` is the year of
    the files' names; `labels` are `Source.labels`.
    """
    source, questions = _Source(rows), list[str]()
    lines = _of_files(source, files or SourceMapping())
    pair = _person_and_year(source)
    if pair is None:
        why = "No two columns name a person and a year, with one row for each pair of them."
        return Proposal(
            "\n".join([f"# {why}", *lines, ""]),
            (
                f"{why} Which are they? Count rows of a person and year in the data.",
                *_questions(lines),
            ),
            has_years=False,
        )
    person, year = pair
    used = {"person_id": person, "year": year}
    doubts = dict[str, str]()
    born = [
        name
        for name in _ordered(_BIRTH, source.whole_between(1850, 2020), pair)
        if source.is_constant(name, person)
    ]
    if born:
        used["birth_year"] = born[0]
        if not re.fullmatch(_BIRTH, born[0].lower()):
            doubts["birth_year"] = "is this the year of birth"
    else:
        ages = [name for name in source.whole_between(10, 110) if re.search(_AGE, name.lower())]
        hint = f" If {ages[0]} is the age, it is {year} - {ages[0]}." if ages else ""
        questions.append(f"No column has the year of birth. Add birth_year to the data.{hint}")
    amounts = [
        name
        for name, cells in source.numbers.items()
        if name == "earnings" or cells.n_unique() > _FEW_CODES
    ]
    if earnings := _ordered(_EARNINGS, amounts, used.values()):
        used["earnings"] = earnings[0]
        if source.largest(earnings[0]) < MAX_LOG:
            doubts["earnings"] = "are these logarithms? The panel has amounts"
        elif earnings[0] != "earnings":
            rivals = [name for name in earnings[1:] if re.fullmatch(_EARNINGS, name.lower())]
            others = f"; or is it {', '.join(rivals)}" if rivals else ""
            doubts["earnings"] = f"earnings of the whole year from work, before tax{others}"
    else:
        questions.append("No column has amounts. Which are the earnings?")
    if separated := _ordered(_EARNINGS, source.separated, used.values()):
        questions.append(
            f"{', '.join(separated)}: signs separate thousands, which are not read. Are these "
            "amounts? Export them without, such as 310000.50"
        )
    codes = dict[str, str | None]()
    if sexes := [name for name in rows.columns if re.fullmatch(_SEX, name.lower())]:
        used["sex"] = sexes[0]
        codes = _codes_of_sex(rows[sexes[0]], (labels or {}).get(sexes[0].lower(), {}))
    lines += _scale(source, used.get("earnings"))
    lines += _part(
        "columns",
        {key: _quoted(name) for key, name in used.items() if key != name or key in doubts},
        doubts,
    )
    if codes and any(code != new for code, new in codes.items()):
        doubt = {} if all(codes.values()) else {"sex": "which code is female, and which male"}
        text = ", ".join(f"{_quoted(code)}: {new or 'null'}" for code, new in codes.items())
        lines += _part("codes", {"sex": f"{{{text}}}"}, doubt)
    if (name := used.get("earnings")) and (credible := _sentinels(source.numbers[name])):
        lines += _part("keep", {_quoted(name): credible[0]}, {_quoted(name): credible[1]})
    questions += _questions(lines)
    named = re.search(_MONEY, used.get("earnings", "").lower())
    currency = named[1].upper() if named else "USD"
    questions.append(
        f"Is the currency {currency}, as the name says? Then remove the # of its lines."
        if named
        else "Is the currency SEK, in prices of each year?"
    )
    rest = [name for name in rows.columns if name not in (*used.values(), *NAMES)]
    return Proposal(
        "\n".join([*lines, _CURRENCY.replace("USD", currency), *_others(source, rest, person), ""]),
        tuple(questions),
    )


@dataclass(frozen=True)
class _Source:
    """The rows of a source, and what its columns contain."""

    rows: pl.DataFrame

    @cached_property
    def texts(self) -> dict[str, pl.Series]:
        """The columns of texts, without surrounding blanks."""
        return {
            column.name: column.cast(pl.String).str.strip_chars().replace("", None)
            for column in self.rows
            if column.dtype in (pl.String, pl.Categorical, pl.Enum)
        }

    @cached_property
    def signs(self) -> dict[str, str]:
        """Decimal sign of columns of texts; "?" if their dots may also separate thousands."""
        signs = {}
        for name, cells in self.texts.items():
            point, comma = (_numbers(cells, sign).count() for sign in ".,")
            if max(point, comma) < _SHARE * cells.count():
                continue
            if point != comma:
                signs[name] = "." if point > comma else ","
            elif in_groups(cells):
                signs[name] = "?"
        return signs

    def written_with(self, sign: str) -> list[str]:
        """The columns with a decimal sign."""
        return [name for name, of_column in self.signs.items() if of_column == sign]

    @property
    def decimal(self) -> str:
        """The sign that a mapping needs: that of earnings, else of the first column with one.

        Dots that may be either separate thousands, unless other columns have decimal points.
        """
        first = next((self.signs[name] for name in _ordered(_EARNINGS, self.signs, ())), ".")
        return ("." if self.written_with(".") else ",") if first == "?" else first

    @cached_property
    def numbers(self) -> dict[str, pl.Series]:
        """The columns of numbers, read with the decimal sign."""
        result = {}
        for column in self.rows:
            cells = self.texts.get(column.name, column)
            number = _numbers(cells, self.decimal)
            if number.count() and number.count() >= _SHARE * cells.count():
                result[column.name] = number
        return result

    @property
    def separated(self) -> list[str]:
        """The columns of numbers with separators of thousands that no mapping reads."""
        plain = {
            name: _numbers(cells.str.replace_all(r"[,'\u2019\s]", ""))
            for name, cells in self.texts.items()
            if name not in self.numbers
        }
        return [n for n, of in plain.items() if of.count() > _SHARE * self.texts[n].count()]

    def whole_between(self, low: float, high: float) -> list[str]:
        """Columns of whole numbers, nearly all of which are in a range."""
        inside = {
            name: (cells.is_between(low, high) & (cells.floor() == cells)).sum() / cells.count()
            for name, cells in self.numbers.items()
        }
        return [name for name, share in inside.items() if share >= _SHARE]

    def largest(self, name: str) -> float:
        """The largest number of a column."""
        return float(self.numbers[name].drop_nulls().to_numpy().max())

    def is_constant(self, name: str, person: str) -> bool:
        """Whether a column does not change within nearly all persons."""
        values = self.rows.drop_nulls(name).group_by(person).agg(pl.col(name).n_unique())[name]
        return len(values) > 0 and (values == 1).sum() >= _SHARE * len(values)


def _numbers(cells: pl.Series, sign: str = ".") -> pl.Series:
    """Cells as numbers; null where a text is none."""
    if sign == "," and cells.dtype == pl.String:
        cells = cells.to_frame().select(with_decimal_point(cells.name)).to_series()
    return cells.cast(pl.Float64, strict=False)


def _of_files(source: _Source, files: SourceMapping) -> list[str]:
    """The lines about the files and the signs in them."""
    lines = ["year_in_filename: true"] if files.year_in_filename else []
    if files.encoding != UTF_8:
        doubt = (
            "the file does not say it: are all letters of the rows right; else try another, such "
            "as cp850, mac_roman or iso8859-2"
        )
        is_sure = files.encoding.startswith("utf")
        lines.append(f"encoding: {files.encoding}" + ("" if is_sure else _QUESTION + doubt))
    commas, points, either = map(source.written_with, ",.?")
    doubt = ""
    if commas and points:
        others = ", ".join(points if source.decimal == "," else commas)
        doubt = f"{others} has the other sign, and one is read: is it needed; then write all alike"
    elif either and not commas:
        value = "285000" if source.decimal == "," else "285"
        doubt = f"is an amount such as 285.000 in {', '.join(either)} {value}; else change the sign"
    elif commas and all(in_groups(source.texts[name], ",") for name in commas):
        doubt = (
            f"is an amount such as 285,000 in {', '.join(commas)} 285; if commas separate "
            "thousands, export it without them"
        )
    if commas or either:
        lines.append(f"decimal: '{source.decimal}'" + (doubt and _QUESTION + doubt))
    return lines


def _scale(source: _Source, earnings: str | None) -> list[str]:
    """The lines about the unit of the earnings; where they are only small, a comment."""
    if earnings is None:
        return []
    if re.search(_THOUSANDS, earnings.lower()):
        return [f"scale: 1000{_QUESTION}are the amounts in thousands, as the name says"]
    amounts = source.numbers[earnings]
    median = amounts.filter(amounts > 0).median()
    if not isinstance(median, float) or source.largest(earnings) < MAX_LOG or median >= _SMALL:
        return []
    why = f"half of the amounts are below {_SMALL:,}: are they in thousands, or hundreds (100)"
    return [f"# scale: 1000{_QUESTION}{why}"]


def _questions(lines: Iterable[str]) -> list[str]:
    """The questions in lines, each with its key and entry."""
    return [
        re.sub(rf"^[# ]*(\S+): (.*){re.escape(_QUESTION)}", r"\1 (\2): ", line) + "?"
        for line in lines
        if _QUESTION in line
    ]


def _ordered(pattern: str, names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """The names that are not taken; those that match the pattern first."""
    excluded = set(taken)
    free = [name for name in names if name not in excluded]
    return sorted(free, key=lambda name: not re.fullmatch(pattern, name.strip().lower()))


def _person_and_year(source: _Source) -> tuple[str, str] | None:
    """The columns of the person and of the year, which together name a row and alone do not."""
    rows = source.rows
    dates = [column.name for column in rows if column.dtype.is_temporal()]
    years = _ordered(_YEAR, [*source.whole_between(1900, 2100), *dates], ())
    for person in _ordered(_ID, rows.columns, ()):
        if not 1 < rows[person].n_unique() < rows.height:
            continue
        for year in years:
            if year == person or source.is_constant(year, person):
                continue
            if rows.select(person, year).is_unique().sum() >= _SHARE * rows.height:
                return person, year
    return None


def _codes_of_sex(cells: pl.Series, labels: Mapping[str, str]) -> dict[str, str | None]:
    """Code -> female, male, or None if neither the code nor its label says it."""
    texts = cells.drop_nulls().cast(pl.String).str.strip_chars()
    codes = texts.str.replace(WHOLE.pattern, "${1}").unique().sort().to_list()[:_FEW_CODES]
    # Labels may repeat the number, as "[2] Female".
    named = {code: re.sub(r"^[\W\d]+", "", labels.get(code, code)) for code in codes}
    return {code: _SEXES.get(name.lower()) for code, name in named.items() if code}


def _sentinels(earnings: pl.Series) -> tuple[str, str] | None:
    """The credible range of earnings if some look like codes for unknown ones, and a question."""
    known = earnings.drop_nulls().to_numpy()
    largest = known.max()
    negative = int((known < 0).sum())
    nines = int((known == largest).sum()) if re.fullmatch(r"9{5,}", f"{largest:.0f}") else 0
    if not negative + nines:
        return None
    highest = f"{largest - 1:.0f}" if nines else "null"
    return (
        f"[0, {highest}]",
        f"{negative:,} cells are negative, {nines:,} all nines: are they unknown",
    )


def _part(name: str, entries: dict[str, str], doubts: dict[str, str]) -> list[str]:
    """The lines of a part of the mapping; none without entries."""
    lines = [
        f"  {key}: {text}" + (f"{_QUESTION}{doubts[key]}" if key in doubts else "")
        for key, text in entries.items()
    ]
    return [f"{name}:", *lines] if lines else []


def _others(source: _Source, names: list[str], person: str) -> list[str]:
    """Comments about the columns that no entry uses."""
    lines = list[str]()
    if family := [name for name in names if re.fullmatch(_FAMILY, name.lower())]:
        lines.append(f"# family: {_quoted(family[0])}    # for standard errors; never an input")
        names = [name for name in names if name != family[0]]
    if names:
        lines += [
            "# Is one of these the education_level, or another column that SAGA knows",
            "# (docs/columns.md)? Name it above, and its codes. Else, as inputs of a model that",
            "# you train, remove the # of those it may use.",
            "# extra:",
        ]
    for name in names:
        is_number = name in source.numbers and source.rows[name].n_unique() > _FEW_CODES
        static = ", static: true" if source.is_constant(name, person) else ""
        lines.append(
            f"#   {_quoted(name)}: {{kind: {'number' if is_number else 'category'}{static}}}"
        )
    return lines


def _quoted(name: str) -> str:
    """A name or code in YAML."""
    if re.fullmatch(_PLAIN, name) and name.lower() not in _WORDS:
        return name
    return "'" + name.replace("'", "''") + "'"
