"""The page of policy tables: statistics of a population by groups and years."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from saga.forecast_warnings import SIMULATED
from saga.group_statistics import (
    ALL_STATISTICS,
    COMPARISONS,
    GROUP_STATISTICS,
    LIFETIME_COMPARISONS,
    OF_LIFETIMES,
    OF_YEARS,
)
from saga.pages.format import estimated_chance, listed, money, number, percent, short, unit_of
from saga.pages.layout import render_page

TOTAL = "total"  # level of a margin
_MAX_YEARS, _YEAR_STEP = 8, 5  # of more than 8 years the page has 2030, 2035 .., first and last
_PAPER_LETTERS, _PADDING = 150, 2  # of a line on A4 in the type of ranges; of a column of it
_LARGER = 1.3  # width of a letter of values, names and headings, in those of ranges
_AMOUNTS = ("value", "lower_90", "upper_90")
_FEW = 5  # persons beyond a percentile, whose range is then marked
_Texts = tuple[str, str, str]


def table_years(statistics: pl.DataFrame) -> list[int]:
    """The years of the tables; events may be about others."""
    of_tables = statistics.filter(pl.col("statistic") != "chance")
    return of_tables["year"].drop_nulls().unique().sort().to_list()


def shown_years(years: Sequence[int]) -> list[int]:
    """The years that the page and the console show: all, or the first, the last and each fifth."""
    step = 1 if len(years) <= _MAX_YEARS else _YEAR_STEP
    return [year for year in years if year % step == 0 or year in (years[0], years[-1])]


def describe_suppressed(statistics: pl.DataFrame, suppressed_until: Mapping[int, int]) -> str:
    """How many values are suppressed, and with which last years fewer or more would be.

    `suppressed_until` has the number for each last year that the tables can have.
    """
    last = table_years(statistics)[-1]
    statistics = statistics.filter(
        pl.col("year").is_not_null(), pl.col("statistic").is_in(GROUP_STATISTICS)
    )
    per_year = statistics.filter(year=last).height
    counts = {year: n // done for done, (year, n) in enumerate(suppressed_until.items(), start=1)}
    fewer = [year for year in counts if counts[year] < counts[last]]  # all of them are earlier
    best = [year for year in fewer if counts[year] == min(counts.values())]
    parts = [
        f"{suppressed_until[last]:,} of {statistics.height:,} values up to {last} are suppressed."
    ]
    parts += [
        f"With --until {year}, {counts[year]} of the {per_year} values of a year would be, "
        f"instead of {counts[last]}."
        for year in sorted({*fewer[-1:], *best[-1:]}, reverse=True)
    ]
    final = max(counts)
    if final > last:
        parts.append(
            f"The tables end where the most values can be published; with --until {final}, "
            f"{counts[final]} of the values of a year would be suppressed."
        )
    if 2 * counts[last] > per_year:
        parts.append(
            "Broader groups or more persons show more, and so may a lower --minimum or a higher "
            "share of --dominance."
        )
    return " ".join(parts)


def entrants_until(provenance: Mapping[str, Any], year: int) -> float:
    """How many persons have joined the tables' persons up to a year."""
    joined = provenance.get("inflow", {}).items()
    return float(sum(persons for entered, persons in joined if int(entered) <= year))


def render_group(
    statistics: pl.DataFrame,
    transitions: pl.DataFrame,
    provenance: Mapping[str, Any],
    suppressed_until: Mapping[int, int],
    dynamics: pl.DataFrame | None = None,
) -> str:
    """The page: a table per statistic, with a row per group and a column per year; then flows.

    Last, if there are `dynamics`, how careers move.

    Groups are in the order of the statistics; those suppressed are in the table of persons alone.
    All frames are those of `saga.population.policy_tables.PolicyTables`.
    """
    described = describe_suppressed(statistics, suppressed_until)
    events = statistics.filter(statistic="chance")
    groups = statistics.columns[1 : statistics.columns.index("statistic")]
    years = table_years(statistics)
    persons = statistics.filter(pl.col("statistic") == "persons")
    everybody = persons.filter(
        pl.col("year") == years[0], *(pl.col(group) == TOTAL for group in groups)
    )["value"]
    unit = f"{provenance['currency']} of {provenance['price_year']}"
    inhabited = persons.filter(pl.col("suppressed") | (pl.col("value") > 0))[groups].unique()
    if groups:  # a group without a person in any year, such as an impossible age, has no row
        pairs = statistics.filter(
            pl.col("statistic").is_in([*COMPARISONS, *LIFETIME_COMPARISONS]),
            (pl.col("value").is_not_null() | pl.col("suppressed")).any().over(*groups, "statistic"),
        )
        has_persons = statistics.join(inhabited, on=groups, how="semi", maintain_order="left")
        statistics = pl.concat([has_persons, pairs])
    statistics = _mark_few(statistics, persons, groups, bool(provenance.get("weighted")))
    sections = []
    for of_tables, at in ((OF_YEARS, shown_years(years)), (OF_LIFETIMES, [None])):
        shown = statistics.filter(pl.col("year").is_in(at, nulls_equal=True))
        for name, statistic in of_tables.items():
            hidden = pl.col("suppressed") & (name != "persons")  # a group is in all years
            rows = shown.filter(~hidden, statistic=name)
            cells = rows.partition_by(groups, maintain_order=True) if groups else [rows]
            if rows.height:
                heads = [_words(group).capitalize() for group in groups]
                columns = ["lifetime" if year is None else str(year) for year in at]
                heading, scale = statistic.meaning, 1.0
                if statistic.is_money:
                    ends = rows.select(pl.max_horizontal(pl.col(_AMOUNTS).abs())).to_series()
                    scale, scale_name = unit_of(float(ends.fill_null(0).max()))  # type: ignore[arg-type]
                    heading += f", {scale_name}{unit}"
                of_cells = [
                    _page_row(
                        cell, groups, [_texts(row, scale) for row in cell.iter_rows(named=True)]
                    )
                    for cell in cells
                ]
                sections.append(
                    {
                        "name": heading,
                        "groups": heads,
                        "blocks": _blocks(heads, columns, of_cells),
                    }
                )
    sections += _flows(transitions)
    sections += _moves(dynamics) if dynamics is not None else ()
    by = listed(map(_words, groups or [""]))
    values = {
        "title": "Earnings of a population" + (f" by {by}" if by else ""),
        "by": by,
        "persons": "the persons"
        if everybody.null_count()
        else f"about {money(everybody[0])} persons",
        "first_year": years[0],
        "last_year": years[-1],
        "entrants": money(entrants_until(provenance, years[-1])) if "inflow" in provenance else "",
        "vintages": provenance.get("vintages"),
        "reference": provenance.get("reference", {}).get("scenario"),
        "weighted": bool(provenance.get("weighted")),
        "has_few": statistics["rests_on_few"].any(),
        "simulated": SIMULATED if provenance.get("trained_on") == "simulated people" else "",
        "suppressed": described,
        "years_left_out": shown_years(years) != years,
        "warnings": [warning["message"] for warning in provenance["warnings"]],
        "sections": sections,
        "chances": [(row["event"], _chance(row)) for row in events.iter_rows(named=True)],
        "provenance": {
            _words(name): str(value) for name, value in provenance.items() if name != "warnings"
        },
    }
    return render_page("group.html", values)


def _mark_few(
    statistics: pl.DataFrame, persons: pl.DataFrame, groups: Sequence[str], weighted: bool
) -> pl.DataFrame:
    """The statistics with `rests_on_few`: percentiles beyond which fewer than five persons are.

    `persons` are the rows of numbers of persons; those of the first year are behind lifetimes.
    Numbers that are `weighted` do not tell it.
    """
    share = pl.col("statistic").str.extract(r"^(?:lifetime_)?p(\d+)$").cast(pl.Float64) / 100
    number = persons.select(*groups, of_year="year", number="value")
    of_year = pl.col("year").fill_null(persons["year"].min())
    beyond = pl.col("number") * pl.min_horizontal(share, 1 - share)
    return (
        statistics.with_columns(of_year=of_year)
        .join(number, on=[*groups, "of_year"], how="left", maintain_order="left")
        .with_columns(rests_on_few=(beyond.round(6) < _FEW).fill_null(False) & (not weighted))
        .drop("of_year", "number")
    )


def _flows(transitions: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Tables of the later class of persons by groups and class, without those suppressed."""
    groups = transitions.columns[2 : transitions.columns.index("to_class")]
    known = transitions.drop_nulls("share")
    years = known["year"].unique().sort().to_list()
    for year in shown_years(years) if years else ():
        rows = known.filter(year=year)
        of_cells = [
            _page_row(cell, groups, [(percent(share), "", "") for share in cell["share"]])
            for cell in rows.partition_by(groups, maintain_order=True)
        ]
        heads = [_words(group).capitalize() for group in groups]
        yield {
            "name": f"Persons of {year} by their class in {rows['to_year'][0]}",
            "groups": heads,
            "blocks": _blocks(heads, list(dict.fromkeys(rows["to_class"])), of_cells),
        }


def _moves(dynamics: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Tables of changes and mobility of careers, one for each lag, the panel beside the paths."""
    sources = dynamics["source"].unique(maintain_order=True).to_list()
    for (lag,), rows in dynamics.partition_by("lag", as_dict=True).items():
        of_statistics = []
        for statistic in rows.partition_by("statistic", maintain_order=True):
            texts = dict.fromkeys(sources, ("x", "", ""))
            for row in statistic.drop_nulls("value").iter_rows(named=True):
                limits = [number(row[end]) for end in _AMOUNTS[1:] if row[end] is not None]
                texts[row["source"]] = (number(row["value"]), " to ".join(limits), "")
            of_statistics.append(_page_row(statistic, ["statistic"], list(texts.values())))
        yield {
            "name": f"Changes of log earnings and moves between fifths, years apart: {lag}",
            "groups": ["Statistic"],
            "blocks": _blocks(["Statistic"], sources, of_statistics),
        }


def _chance(row: Mapping[str, Any]) -> str:
    return "x" if row["suppressed"] else estimated_chance(row["value"], row["mc_error"])


def _blocks(
    groups: Sequence[str], years: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The years in blocks, each as wide as paper allows: its `years` and the `rows` with theirs."""
    names = zip(groups, *(row["groups"] for row in rows), strict=True)
    of_groups = sum(_PADDING + _LARGER * max(map(len, each)) for each in names)
    blocks: list[list[int]] = []
    left = 0.0
    for j, year in enumerate(years):
        values, *ranges = zip(*(row["texts"][j] for row in rows), strict=True)
        larger = _LARGER * max(map(len, (year, *values)))
        width = _PADDING + max(larger, *(len(line) for lines in ranges for line in lines))
        if not blocks or width > left:
            blocks.append([])
            left = _PAPER_LETTERS - of_groups
        blocks[-1].append(j)
        left -= width
    return [
        {
            "years": [years[j] for j in block],
            "rows": [{**row, "texts": [row["texts"][j] for j in block]} for row in rows],
        }
        for block in blocks
    ]


def _page_row(cell: pl.DataFrame, groups: Sequence[str], texts: Sequence[_Texts]) -> dict[str, Any]:
    """A row of the page: the groups of a cell, and its texts by year or later class."""
    levels = [cell[group][0] for group in groups]
    return {
        "groups": ["all" if level == TOTAL else _words(level) for level in levels],
        "texts": texts,
        "is_total": all(level == TOTAL for level in levels),
    }


def _texts(row: Mapping[str, Any], scale: float) -> _Texts:
    """A value, its band and the effect on it in words; x if it is suppressed, * if few are behind.

    Amounts are divided by `scale` and have three digits.
    """
    measured = ALL_STATISTICS[row["statistic"]].unit

    def text(value: float) -> str:
        if measured == "share":
            return percent(value)
        if measured in ("coefficient", "ratio"):
            return number(value)
        return money(value) if measured == "persons" else short(value / scale)

    if row["suppressed"] or row["value"] is None:
        return "x" if row["suppressed"] else "", "", ""
    has_band = row["lower_90"] is not None and measured != "persons"
    limits = f"{text(row['lower_90'])} to {text(row['upper_90'])}" if has_band else ""
    effect = ""
    if has_band and row.get("effect_lower_90") is not None:
        factor, unit = (100, " points") if measured == "share" else (1, "")
        change, low, high = (factor * row[f"effect{end}"] for end in ("", "_lower_90", "_upper_90"))
        show = "{:.1f}".format if unit else text
        effect = f"change {show(change)}{unit} ({show(low)} to {show(high)})"
        if measured == "amount" and row["reference"]:
            effect += f", {percent(row['effect'] / row['reference'])}"
    few = "*" if row["rests_on_few"] else ""
    return f"{text(row['value'])}{few}", limits, effect


def _words(name: str) -> str:
    return name.replace("_", " ")
