"""From paths to tables: margins add up, nobody can be found by differencing, all formats agree."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Generator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from differencing import possible_range
from polars_readstat import read_readstat
from scored_folder import path_rows, write_scored

from saga.arrays import Bools, Floats
from saga.batch.run_folder import MANIFEST
from saga.data.facts import read_facts, shipped_facts
from saga.files.atomic import digest_file
from saga.group_statistics import GROUP_STATISTICS
from saga.pages.format import estimated_chance, unit_of
from saga.pages.group import TOTAL
from saga.population import policy_tables
from saga.population.scored_paths import person_levels
from saga.population.table_files import stata_file
from saga.population.table_grid import Grid
from tests.command_line import answer, done, refusal

PERSONS, YEARS, PATHS = 300, 3, 4
LEVELS = ("compulsory", "upper_secondary", "short_tertiary", "long_tertiary")
RARE = LEVELS[3]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(8)
    earnings = rng.lognormal(12, 0.5, (PERSONS, YEARS, PATHS))
    earnings[rng.random(earnings.shape) < 0.1] = 0
    return write_scored(tmp_path_factory.mktemp("scored") / "out", path_rows(earnings.round()))


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The persons, with a rare education among men."""
    rng = np.random.default_rng(9)
    sex = rng.choice(["female", "male"], PERSONS)
    education = rng.choice(LEVELS[:3], PERSONS)
    education[np.flatnonzero(sex == "male")[:4]] = RARE
    education[np.flatnonzero(sex == "female")[:40]] = RARE
    path = tmp_path_factory.mktemp("panel") / "panel.csv"
    pl.DataFrame(
        {
            "person_id": [f"{number:04d}" for number in range(PERSONS)],
            "year": 2022,
            "birth_year": rng.integers(1970, 1990, PERSONS),
            "earnings": 1000.0,
            "sex": sex,
            "education_level": education,
        }
    ).write_csv(path)
    return path


def _run(scored: Path, panel: Path, out: Path, *more: str) -> pl.DataFrame:
    exact = "--round-persons 1 --round-amounts 1 --transition-years 1"
    by = "" if "--by" in more else "--by sex,education_level"
    done("tables", scored, "--panel", panel, "--out", out, exact, by, more)
    return pl.read_csv(out / "statistics.csv", infer_schema_length=None)


def _log(out: Path) -> Path:
    return out.with_name(f"{out.name}-internal") / "internal_suppression_log.csv"


def _width(table: pl.DataFrame, statistic: str) -> float:
    """How closely men with the rare education are known in the first year, from what is published.

    Published numbers are rounded to 1: each sum may be wrong by half of its number of terms.
    """
    rows = table.filter(pl.col("statistic") == statistic, pl.col("year") == table["year"].min())
    sexes, levels = ("female", "male", TOTAL), (*LEVELS, TOTAL)
    values = np.array(
        [
            [rows.filter(sex=sex, education_level=level)["value"].item() for level in levels]
            for sex in sexes
        ],
        dtype=np.float64,
    )
    cell = (sexes.index("male"), levels.index(RARE))
    assert np.isnan(values[cell])
    low, high = possible_range(values, np.isnan(values), cell, slack=0.5 * values.size)
    return high - low


@pytest.fixture(scope="module")
def published(
    scored: Path, panel: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, pl.DataFrame]:
    out = tmp_path_factory.mktemp("tables") / "out"
    return out, _run(scored, panel, out)


def test_what_is_published_lies_apart_from_the_log_of_small_cells(
    published: tuple[Path, pl.DataFrame],
) -> None:
    out, _ = published
    assert sorted(path.name for path in out.iterdir()) == [
        "provenance.json",
        "statistics.csv",
        "statistics.dta",
        "tables.html",
        "tables.xlsx",
        "transitions.csv",
        "transitions.dta",
    ]
    assert _log(out).is_file()


def test_tables_without_a_published_value_say_so(scored: Path, panel: Path, tmp_path: Path) -> None:
    line = ("tables", scored, "--panel", panel, "--by sex", "--out", tmp_path / "out")
    codes = [warning["code"] for warning in answer(*line, f"--minimum {PERSONS + 1}")["warnings"]]
    assert codes == ["all-suppressed"]


def test_the_sum_of_all_persons_is_printed(scored: Path, panel: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed = done("tables", scored, "--panel", panel, "--by sex --out", out).stdout
    table = pl.read_csv(out / "statistics.csv", infer_schema_length=None)
    sums = table.filter(pl.col("statistic") == "total", pl.col("sex") == TOTAL)
    year, value, lower, upper = sums.select("year", "value", "lower_90", "upper_90").row(0)
    shown = next(row.split() for row in printed.splitlines() if row.split()[:1] == [f"{year}"])
    scale, unit = unit_of(sums["upper_90"].max())  # type: ignore[arg-type]
    assert f"all persons, {unit}" in " ".join(printed.split())
    numbers = [float(number.replace(",", "")) for number in shown[1:]]
    assert numbers == pytest.approx([value / scale, lower / scale, upper / scale], rel=5e-3)
    heading = "Mean present value of later earnings to age 64, at 2 %, "
    lifetimes = " ".join(printed.split()).split(heading)[1]
    mean = _one(table, statistic="lifetime_mean", sex=TOTAL)
    scale, unit = unit_of(mean["upper_90"])
    _, amounts = lifetimes.split("90 % from to")
    numbers = [float(number.replace(",", "")) for number in re.findall(r"[\d.,]+", amounts)[:3]]
    assert lifetimes.startswith(unit)
    assert numbers == pytest.approx(
        [mean[name] / scale for name in ("value", "lower_90", "upper_90")], rel=5e-3
    )


def test_printed_sums_have_the_texts_of_the_page_and_end_alike(tmp_path: Path) -> None:
    """Sums of 81.3, 83 and 120 million in three years, alike on all paths."""
    of_person = np.array([4_065_000.0, 4_150_000, 6_000_000])
    rows = path_rows(np.broadcast_to(of_person[:, None], (20, 3, 4)))
    scored = write_scored(tmp_path / "paths", rows)
    printed = done("tables", scored, "--out", tmp_path / "out").stdout.splitlines()
    table = [
        line.rstrip() for line in printed if line.split()[:1] in (["2023"], ["2024"], ["2025"])
    ]
    assert [line.split()[1:] for line in table] == [[text] * 3 for text in ("81.3", "83.0", "120")]
    assert len({len(line) for line in table}) == 1, "right-aligned"
    for years, said in ((2, False), (3, True), (99, True)):  # the tables have three
        out = tmp_path / f"{years}"
        text = done("tables", scored, "--out", out, f"--transition-years {years}").stdout
        assert (f"no transitions, for which {years + 1} years" in " ".join(text.split())) == said
        assert pl.read_csv(out / "transitions.csv").is_empty() == said


def test_a_rare_cell_and_others_that_would_reveal_it_are_hidden_in_all_years(
    published: tuple[Path, pl.DataFrame],
) -> None:
    out, table = published
    by_year = table.drop_nulls("year")
    hidden = by_year.filter("suppressed").select("sex", "education_level", "year").unique()
    cells = hidden.select("sex", "education_level").unique()
    assert ("male", RARE) in cells.rows()
    assert hidden.height == cells.height * YEARS
    assert cells.height >= 4
    values = by_year.filter(pl.col("suppressed"))["value"]
    assert values.null_count() == hidden.height * len(GROUP_STATISTICS)
    log = pl.read_csv(_log(out)).filter(table="statistics")
    assert set(log["rule"]) == {"minimum", "complementary"}
    logged = log.select("sex", "education_level").unique().rows()
    assert set(logged) == set(cells.rows())


@pytest.mark.thorough
def test_few_records_that_end_early_hide_nothing_of_later_years(
    panel: Path, tmp_path: Path
) -> None:
    """Five persons whose paths begin a year before all others': too few for a table of theirs."""
    earnings = np.random.default_rng(8).lognormal(12, 0.5, (PERSONS, YEARS, PATHS))
    early = path_rows(earnings[:5, :1], first_year=2022)
    rows = [early, path_rows(earnings)]
    tables, warnings = [], []
    records = pl.read_csv(panel, schema_overrides={"person_id": pl.String})
    sooner = tmp_path / "sooner.csv"
    last = pl.when(pl.col("person_id") < "0005").then(2021).otherwise("year")
    records.with_columns(year=last).write_csv(sooner)
    for name, parts, seen in (("with", rows, sooner), ("without", rows[1:], panel)):
        scored = write_scored(tmp_path / f"{name}-paths", pl.concat(parts))
        tables.append(_run(scored, seen, tmp_path / name).drop_nulls("year"))
        out = tmp_path / f"{name}-again"
        warnings.append(answer("tables", scored, "--out", out)["warnings"])
        assert ("were last seen before 2022" in (out / "tables.html").read_text()) == bool(
            warnings[-1]
        )
        assert json.loads((out / "provenance.json").read_text())["warnings"] == warnings[-1]
    ((told,), none) = warnings
    assert told["message"].startswith("Fewer than 10 "), "it is a number of persons as others"
    assert none == []
    assert tables[0].equals(tables[1])
    assert tables[0]["year"].min() == 2023


def test_a_table_ends_before_few_persons_hide_all_years(panel: Path, tmp_path: Path) -> None:
    """After four of twenty years only eight men are left."""
    earnings = np.random.default_rng(8).lognormal(12, 0.5, (PERSONS, 20, PATHS))
    men = pl.read_csv(panel)["sex"].to_numpy() == "male"
    rows = path_rows(earnings)
    gone = [f"{number:04d}" for number in np.flatnonzero(men)[8:]]
    left = rows.filter(~pl.col("person_id").is_in(gone) | (pl.col("year") < 2027))
    scored = write_scored(tmp_path / "paths", left)
    table = _run(scored, panel, tmp_path / "out", "--by", "sex").drop_nulls("year")
    assert table["year"].unique().to_list() == [2023, 2024, 2025, 2026]
    assert not table["suppressed"].any()
    page = (tmp_path / "out" / "tables.html").read_text()
    assert f"0 of {12 * len(GROUP_STATISTICS)} values up to 2026 are suppressed" in page
    assert (
        f"with --until 2042, {2 * len(GROUP_STATISTICS)} of the values of a year would be" in page
    )
    log = pl.read_csv(_log(tmp_path / "out"))
    assert log.filter(rule="minimum", table="statistics").row(0)[:3] == ("statistics", 2027, "male")
    (other,) = log.filter(rule="complementary", table="statistics").rows(named=True)
    assert (other["sex"], other["year"], other["hides"]) == ("female", 2027, "male")
    table = _run(scored, panel, tmp_path / "all", "--by", "sex", "--until", "2042")
    table = table.drop_nulls("year")
    assert table.filter("suppressed").height == 20 * 22
    page = (tmp_path / "all" / "tables.html").read_text()
    assert "440 of 660 values up to 2042 are suppressed. With --until 2026, 0 of the 33" in page
    years = re.findall(r'<th scope="col">(\d+)</th>', page)
    assert years[:6] == ["2023", "2025", "2030", "2035", "2040", "2042"]


def test_a_group_that_is_small_before_it_leaves_is_hidden(panel: Path, tmp_path: Path) -> None:
    """Five persons, in the first year alone."""
    earnings = np.random.default_rng(8).lognormal(12, 0.5, (PERSONS, YEARS, PATHS))
    rows = path_rows(earnings).filter((pl.col("year") == 2023) | (pl.col("person_id") > "0004"))
    records = pl.read_csv(panel, schema_overrides={"person_id": pl.String})
    older = pl.when(pl.col("person_id") <= "0004").then(1959).otherwise(1980)
    records.with_columns(birth_year=older).write_csv(tmp_path / "older.csv")
    scored = write_scored(tmp_path / "paths", rows)
    out, asked = tmp_path / "out", ("--by", "birth_year", "--until", "2025")
    table = _run(scored, tmp_path / "older.csv", out, *asked)
    of_year = table.filter(year=2023, statistic="persons")
    assert of_year.filter(birth_year="1959")["suppressed"].all()


def test_everybody_is_published_where_all_groups_are_small(panel: Path, tmp_path: Path) -> None:
    """Cohorts of six; after four of twenty years eight persons are left."""
    earnings = np.random.default_rng(8).lognormal(12, 0.5, (60, 20, PATHS))
    rows = path_rows(earnings).filter((pl.col("year") < 2027) | (pl.col("person_id") < "0008"))
    cohorts = tmp_path / "cohorts.csv"
    records = pl.read_csv(panel, schema_overrides={"person_id": pl.String}).head(60)
    records.with_columns(birth_year=1970 + pl.int_range(60) // 6).write_csv(cohorts)
    scored = write_scored(tmp_path / "paths", rows)
    table = _run(scored, cohorts, tmp_path / "out", "--by", "birth_year").drop_nulls("year")
    shown = table.filter(~pl.col("suppressed"))
    assert set(shown["birth_year"].cast(pl.String)) == {TOTAL}
    assert shown["year"].unique().to_list() == [2023, 2024, 2025, 2026]


def test_levels_keep_their_order_and_hidden_groups_are_in_the_first_table_alone(
    published: tuple[Path, pl.DataFrame],
) -> None:
    out, table = published
    assert table["education_level"].unique(maintain_order=True).to_list() == [*LEVELS, TOTAL]
    hidden = table.filter("suppressed", statistic="persons")
    assert (out / "tables.html").read_text().count(">x</td>") == hidden.height > 0


def _hide_unsafe_alone(
    _magnitudes: object, unsafe: Bools, _protection: float, hidden: Bools
) -> Generator[None, None, tuple[Bools, dict[int, int]]]:
    yield
    return unsafe | hidden, {}


def test_differencing_with_the_margins_recovers_no_hidden_cell(
    scored: Path,
    panel: Path,
    published: tuple[Path, pl.DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _width(published[1], "persons") > 2, "four men, up to one more or fewer"
    protected = 2 * 0.15 * 4 * 100_000
    assert _width(published[1], "total") > protected
    # Negative control: without further hidden cells the total is known but for rounding.
    monkeypatch.setattr(policy_tables, "suppress", _hide_unsafe_alone)
    assert _width(_run(scored, panel, tmp_path / "out"), "total") < 100 < protected


def test_all_formats_have_the_same_numbers_and_no_hidden_one(
    published: tuple[Path, pl.DataFrame],
) -> None:
    out, table = published
    stata = read_readstat(str(out / "statistics.dta"))
    assert stata["value"].to_list() == table["value"].to_list()
    with zipfile.ZipFile(out / "tables.xlsx") as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml")
    assert sheet.count(b"<row ") == 1 + len(table) - table["value"].null_count()
    page = (out / "tables.html").read_text()
    women = table.filter(statistic="persons", sex="female", education_level=TOTAL, year=2023)
    assert f"<td>{women['value'].item():,.0f}</td>" in page
    assert ">x</td>" in page
    assert re.search(r"Sum of earnings, [a-z]+ SEK of 2022", page)
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["rules"]["minimum"] == 10
    assert len(provenance["scored"]) == len(provenance["panel_digest"]) == 64


def test_a_table_whose_column_has_no_value_is_written_for_stata_too(tmp_path: Path) -> None:
    frame = pl.DataFrame({"year": [2022], "value": [None], "suppressed": [False]})
    (tmp_path / "table.dta").write_bytes(stata_file(frame))
    assert read_readstat(str(tmp_path / "table.dta"))["value"].to_list() == [None]


@pytest.mark.parametrize("by", ["sex", "sex,education_level"])
def test_a_level_is_compared_with_all(by: str, scored: Path, panel: Path, tmp_path: Path) -> None:
    table = _run(scored, panel, tmp_path / "out", "--by", by, "--compare", "female/total")
    others = dict.fromkeys(by.split(",")[1:], TOTAL)
    rows = table.filter(pl.col("year").is_not_null(), **others)
    means = {sex: rows.filter(sex=sex, statistic="mean")["value"] for sex in ("female", TOTAL)}
    ratio = rows.filter(sex="female/total", statistic="mean_ratio")["value"]
    assert ratio.to_list() == pytest.approx((means["female"] / means[TOTAL]).to_list(), rel=0.01)
    assert (ratio - 1).abs().max() > 0.01  # type: ignore[operator]


def test_transitions_are_shares_and_hide_small_classes(
    published: tuple[Path, pl.DataFrame],
) -> None:
    rows = pl.read_csv(published[0] / "transitions.csv", infer_schema_length=None)
    shown = rows.filter(~pl.col("suppressed")).drop_nulls("share")
    keys = ["year", "sex", "education_level", "class"]
    sums = shown.group_by(keys).agg(pl.col("share").sum())
    assert sums["share"].to_list() == pytest.approx([1] * sums.height, abs=0.004)
    hidden = rows.filter(sex="male", education_level=RARE)
    assert hidden["share"].null_count() == hidden.height


def _one(table: pl.DataFrame, **cell: object) -> dict[str, float]:
    """The row of a cell; a year of None is that of lifetimes."""
    conditions = [pl.col(name).eq_missing(pl.lit(value)) for name, value in cell.items()]
    return table.filter(conditions).row(0, named=True)


def test_comparisons_lifetimes_and_chances_are_those_of_the_paths(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    """On every path first: the ratio of means is not the mean of persons' ratios."""
    events = (
        "mean female 2024 < 160000, mean female 2024 > 160000, mean_ratio male/female 2025 < in "
        "2023, lifetime_mean all > 1, mean female 2023 > in 2022"
    )
    more = ["--by", "sex", "--compare", "male/female", "--events", events, "--rate", "0.1"]
    table = _run(scored, panel, tmp_path / "out", *more, "--tax", "paper")
    rows = pl.read_parquet(scored / "part-*.parquet").join(
        pl.read_csv(panel, infer_schema=False).select("person_id", "sex"), on="person_id"
    )

    def by_path(sex: str, year: int) -> Floats:
        means = rows.filter(sex=sex, year=year).group_by("path").agg(pl.col("earnings").mean())
        return means.sort("path")["earnings"].to_numpy()

    ratio = {year: by_path("male", year) / by_path("female", year) for year in (2023, 2025)}
    found = _one(table, statistic="mean_ratio", sex="male/female", year=2025)
    assert found["value"] == pytest.approx(ratio[2025].mean(), abs=1e-4)
    assert found["lower_90"] <= found["value"] <= found["upper_90"]
    gap = _one(table, statistic="mean_gap", sex="male/female", year=2023)["value"]
    assert gap == pytest.approx((by_path("male", 2023) - by_path("female", 2023)).mean(), abs=0.5)
    discounted = rows.with_columns(pl.col("earnings") / 1.1 ** (pl.col("year") - 2022.0))
    lifetime = discounted["earnings"].sum() / PERSONS / PATHS
    whole = _one(table, statistic="lifetime_mean", sex=TOTAL, year=None)["value"]
    assert whole == pytest.approx(lifetime, abs=0.5)
    net = _one(table, statistic="lifetime_net_mean", sex=TOTAL, year=None)["value"]
    assert 0.5 * whole < net < 0.676 * whole  # the paper's rule takes 32.4 % and more
    chances = {row["event"]: row["value"] for row in table.drop_nulls("event").to_dicts()}
    below, above, narrower, all_of_it, grows = chances.values()
    assert below == (by_path("female", 2024) < 160_000).mean() == 1 - above
    assert narrower == (ratio[2025] < ratio[2023]).mean()
    assert (all_of_it, grows) == (1, 1), "in 2022 everybody had 1,000 in the panel"


def test_a_ratio_has_the_chances_of_its_inverse(panel: Path, tmp_path: Path) -> None:
    """Also where few paths are stretched by the model's error."""
    rng = np.random.default_rng(10)
    economy = rng.lognormal(12, 0.5, (PERSONS, YEARS, 40 * PATHS))
    error = {"everybody": {"1": 0.1}, "groups": {"1": 0.1, "3": 0.4}}
    vintages = {"cutoffs": [2000], "separate": {"1": 1}, "deviations": {"mean_ratio": error}}
    scored = write_scored(tmp_path / "in", path_rows(economy), stated={"vintages": vintages})
    pairs = [
        (f"{name}ratio male/female {year}{than}", f"{name}ratio female/male {year}{inverse}")
        for name, year in (("mean_", "2025 "), ("p50_", "2024 "), ("lifetime_mean_", ""))
        for than, inverse in (("< 1.25", "> 0.8"), ("> 0.96", "< 1.041666666666667"))
    ]
    pairs.append(("mean_ratio male/female 2025 < in 2023", "mean_ratio female/male 2025 > in 2023"))
    events = ", ".join(event for pair in pairs for event in pair)
    more = ["--by", "sex", "--compare", "male/female,female/male", "--events", events]
    table = _run(scored, panel, tmp_path / "out", *more)
    chances = {row["event"]: row["value"] for row in table.drop_nulls("event").to_dicts()}
    assert [chances[a] for a, _ in pairs] == [chances[b] for _, b in pairs]
    assert 0 < chances[pairs[0][0]] < 1


def test_what_is_said_of_a_hidden_group_is_hidden(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    """Its share of a comparison, its lifetime and the chance of an event."""
    events = f"mean male and {RARE} 2024 < 1, mean male 2024 < 1"
    table = _run(scored, panel, tmp_path / "out", "--compare", "male/female", "--events", events)
    about = table.filter(pl.col("sex").is_in(["male", "male/female"]), education_level=RARE)
    assert {"mean", "mean_gap", "lifetime_mean", "chance"} <= set(about["statistic"])
    bands = about.select("value", "lower_90", "upper_90", "^sd_.*$", "mc_error")
    assert bands.null_count().row(0) == (about.height,) * len(bands.columns)
    assert about["suppressed"].all()
    assert not table.filter(event="mean male 2024 < 1")["suppressed"].item()


def test_an_event_after_the_tables_is_of_a_group_that_may_be_small_then(
    panel: Path, tmp_path: Path
) -> None:
    """Eight men have paths from 2025 on, and eight had a record in 2021; a table ends in 2024."""
    earnings = np.random.default_rng(8).lognormal(12, 0.5, (PERSONS, 4, PATHS))
    people = pl.read_csv(panel, infer_schema=False)
    men = people.filter(sex="male")["person_id"]
    rows = path_rows(earnings)
    left = rows.filter(~pl.col("person_id").is_in(men[8:].implode()) | (pl.col("year") < 2025))
    scored = write_scored(tmp_path / "paths", left)
    earlier = people.filter(~pl.col("person_id").is_in(men[8:].implode())).with_columns(
        year=pl.lit("2021")
    )
    longer = tmp_path / "longer.csv"
    pl.concat([people, earlier]).write_csv(longer)
    events = ["mean male 2024 > 1", "mean male 2025 > 1", "mean male 2024 > in 2021"]
    events += ["mean male 2024 > in 2022"]
    table = _run(scored, longer, tmp_path / "out", "--by", "sex", "--events", ",".join(events))
    assert table["year"].max() == 2025, "the events come last"
    chances = table.drop_nulls("event")
    assert chances["suppressed"].to_list() == [False, True, True, False]
    assert chances["value"].to_list() == [1, None, None, 1]
    # What happens on every path is not certain: the paths are few.
    assert chances["mc_error"][0] == pytest.approx((1 - 1 / PATHS) ** 0.5 / PATHS, abs=1e-4)


def test_a_year_of_records_is_protected_like_the_years_of_tables(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    """One man has a record of 2021, and 40 women have."""
    is_hidden = {
        "mean male 2021 > 900": True,
        "mean male 2023 > in 2021": True,
        "mean_ratio male/female 2021 > 0.1": True,
        "total female 2021 > 900": True,  # the total of all less it is that of the man
        "mean female 2022 > in 2021": True,
        "total all 2021 > 900": False,
        "mean male 2022 > 900": False,
        "mean male 2022 > in 2023": False,
    }
    people = pl.read_csv(panel, infer_schema=False)
    few = [people.filter(sex="male").head(1), people.filter(sex="female").head(40)]
    earlier = pl.concat(few).with_columns(year=pl.lit("2021"))
    longer = tmp_path / "longer.csv"
    pl.concat([people, earlier]).write_csv(longer)
    table = _run(scored, longer, tmp_path / "out", "--by", "sex", "--events", ",".join(is_hidden))
    chances = table.drop_nulls("event")
    assert dict(chances.select("event", "suppressed").iter_rows()) == is_hidden
    assert chances["value"].is_null().to_list() == chances["suppressed"].to_list()
    assert not table.filter(pl.col("event").is_null())["suppressed"].any()


def test_an_event_about_the_records_moves_no_year_of_the_tables(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    line = ("tables", scored, "--panel", panel, "--by sex", "--until 2024", "--out")
    plain = answer(*line, tmp_path / "plain")
    said = answer(*line, tmp_path / "asked", ["--events", "mean all 2022 < 3e5"])
    assert said["years"] == plain["years"] == [2023, 2024]
    pages = [(tmp_path / name / "tables.html").read_text() for name in ("plain", "asked")]
    headings = [re.findall(r"<th[^>]*>(\d{4})</th>", page) for page in pages]
    assert headings[0] == headings[1]
    assert set(headings[0]) == {"2023", "2024"}


def test_tables_that_end_before_the_asked_year_say_so(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    line = ("tables", scored, "--panel", panel, "--until 2199", "--out", tmp_path / "out")
    said = answer(*line)
    (told,) = [warning for warning in said["warnings"] if warning.get("option") == "until"]
    assert told["message"].startswith(f"The tables end in {said['years'][1]}: ")
    assert told["message"] in (tmp_path / "out" / "tables.html").read_text()


@pytest.mark.parametrize(
    "changed", [{"year": "2021", "earnings": ""}, {"year": "2021", "person_id": "x"}]
)
def test_a_year_in_which_nothing_is_known_of_these_persons_is_told(
    scored: Path, panel: Path, tmp_path: Path, changed: dict[str, str]
) -> None:
    people = pl.read_csv(panel, infer_schema=False)
    earlier = people.head(1).with_columns(pl.lit(of).alias(name) for name, of in changed.items())
    pl.concat([people, earlier]).write_csv(tmp_path / "longer.csv")
    line = ("tables", scored, "--panel", tmp_path / "longer.csv", "--by sex", "--out")
    message = refusal(*line, tmp_path / "out", ["--events", "mean all 2023 < in 2021"])
    assert "Nothing is known about 2021" in message


def test_only_persons_with_weights_are_a_sample(scored: Path, panel: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.csv"
    ids = [f"{number:04d}" for number in range(PERSONS)]
    pl.DataFrame({"person_id": ids, "weight": 50.0}).write_csv(weights)
    means = []
    for name, more in (("panel", []), ("sample", ["--weights", str(weights)])):
        table = _run(scored, panel, tmp_path / name, "--by", "sex", *more)
        means.append(_one(table, statistic="mean", sex=TOTAL, year=2024))
    these, population = means
    assert these["sd_persons"] == 0 < population["sd_persons"]
    assert population["sd_paths"] == pytest.approx(these["sd_paths"] / 50**0.5, abs=1)
    assert population["sd_economy"] == these["sd_economy"]
    provenance = json.loads((tmp_path / "sample" / "provenance.json").read_text())
    assert provenance["weights_digest"] == digest_file(weights)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--events women<2", "is no event"),
        ("--events 'persons female 2024 < 13'", "is no event"),  # tables round it
        ("--events 'total all 2024 > 40,000,000'", "40000000 or 4e7"),
        ("--events 'mean_ratio male/female 2024 < 1,02'", "numbers have a decimal point"),
        ("--events 'total all 2024 > 1,5e9'", "numbers have a decimal point"),
        ("--events 'total all 2024 > 40 000'", "no separators of thousands"),
        ("--events 'zero_share all 2024 < 10'", "Write 0.1 for 10 %"),
        ("--events 'mean_ratio male/female 2024 < 102'", "Write 1.02 for 2 % more"),
        ("--events 'mean all < 2'", "needs a year"),
        ("--events 'lifetime_mean all 2030 < 2'", "has no year"),
        ("--events 'mean women 2024 < 2'", "which no group has"),
        ("--events 'mean all 1999 < 2'", "Nothing is known about 1999"),
        ("--events 'lifetime_net_mean all > 2'", "is about lifetime_net_mean, which"),
        ("--events 'pensionable_total all 2024 > 2'", "is about pensionable_total, which"),
        ("--by base_amounts --events 'lifetime_mean all > 2'", "is about lifetime_mean, which"),
        ("--events 'mean all 2024 < 2; mean all 2024 < 3'", "Separate with commas"),
        ("--compare 'male/female;female/male'", "Separate with commas"),
        ("--compare female", "no pair of groups"),
        ("--compare male/female/total", "no pair of groups"),
        ("--events 'mean_ratio male/female/total 2024 < 1'", "no pair of groups"),
        ("--compare female/children", "which no group has"),
    ],
)
def test_events_and_comparisons_that_cannot_be_told_are_named(
    scored: Path, panel: Path, tmp_path: Path, options: str, message: str
) -> None:
    line = ("tables", scored, "--panel", panel, "--out", tmp_path / "out", "--by sex")
    assert message in refusal(*line, options)


def test_a_panel_that_was_not_scored_is_told(panel: Path, tmp_path: Path) -> None:
    """Paths show birth years and last years (below); a digest shows that anything else differs."""
    people = pl.read_csv(panel, infer_schema=False).with_columns(birth_year=pl.lit("1960"))
    people.write_csv(tmp_path / "p.csv")
    rows = path_rows(np.full((PERSONS, 2, 4), 1e5))
    scored = write_scored(tmp_path / "scored", rows)
    manifest = json.loads((scored / MANIFEST).read_text())
    digest = digest_file(tmp_path / "p.csv")
    manifest["run"] |= {
        "input": {"files": {"people.csv": digest}},
        "recipe": {"product": "paths", "to_age": 64},
    }
    (scored / MANIFEST).write_text(json.dumps(manifest))
    line = ("tables", scored, "--by sex --panel")

    def given(name: str, **changed: pl.Expr) -> Path:
        people.with_columns(**changed).write_csv(tmp_path / name)
        return tmp_path / name

    same = done(*line, given("same.csv"), "--out", tmp_path / "same")
    assert "Warning" not in same.stderr
    swapped = pl.when(pl.col("sex") == "male").then(pl.lit("female")).otherwise(pl.lit("male"))
    for number, change in enumerate(({"sex": swapped}, {"earnings": pl.lit("2000")})):
        other = done(*line, given("p2.csv", **change), "--out", tmp_path / f"other{number}")
        assert "other content than the files that were scored" in " ".join(other.stderr.split())


@pytest.mark.parametrize("command", ["tables", "tables --by sex", "tables --weights", "align"])
@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("person_id", "0099", "The panel does not have persons of the scored run"),
        ("year", "2021", "The year of persons is not that of the scored ones"),
        ("birth_year", "1961", "The birth_year of persons is not that of the scored ones"),
    ],
)
def test_every_command_with_paths_refuses_a_panel_of_other_persons(
    command: str, column: str, value: str, complaint: str, tmp_path: Path
) -> None:
    ids = [f"{number:04d}" for number in range(20)]
    people = pl.DataFrame({"person_id": ids, "year": "2022", "birth_year": "1960", "sex": "male"})
    changed = pl.when(pl.col("person_id") == "0001").then(pl.lit(value)).otherwise(column)
    other = people.with_columns(changed.alias(column), earnings=pl.lit("1"))
    other.write_csv(tmp_path / "other.csv")
    people.select("person_id", weight=pl.lit(2)).write_csv(tmp_path / "weights.csv")
    (tmp_path / "targets.csv").write_text("year,total\n2023,1\n")
    scored = write_scored(tmp_path / "paths", path_rows(np.ones((20, 2, 2))))
    manifest = json.loads((scored / MANIFEST).read_text())
    manifest["run"] |= {"recipe": {"product": "paths", "to_age": 64}}
    (scored / MANIFEST).write_text(json.dumps(manifest))
    name, *options = command.split()
    more = [*options, tmp_path / "weights.csv"] if "--weights" in options else options
    more = ["--targets", tmp_path / "targets.csv"] if name == "align" else more
    panel = ("--panel", tmp_path / "other.csv", "--out", tmp_path / "out")
    message = refusal(name, scored, more, *panel)
    assert complaint in message
    assert "person 0001" in message


def test_the_chance_of_an_event_has_its_error_on_screen_and_page(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    out, event = tmp_path / "out", "mean female 2024 < 160000"
    printed = done("tables", scored, "--panel", panel, "--by sex --out", out, "--events", [event])
    (row,) = pl.read_csv(out / "statistics.csv").filter(statistic="chance").iter_rows(named=True)
    error = (row["value"] * (1 - row["value"]) / PATHS) ** 0.5
    text = estimated_chance(row["value"], error)
    assert f"(plus or minus {200 * error:.0f} points, because the futures are few)" in text
    assert f"{event}: {text}" in " ".join(printed.stdout.split())
    assert text in (out / "tables.html").read_text()
    explorer = (Path(__file__).parents[3] / "api/web/sentences.js").read_text()
    assert "(plus or minus ${points} points, because the futures are few)" in explorer


def test_wrong_options_folders_and_weights_are_named(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    rows, weights = path_rows(np.ones((4, 1, 2))), tmp_path / "weights.csv"
    forecasts = write_scored(tmp_path / "forecasts", rows, product="forecasts")
    changed = write_scored(tmp_path / "changed", rows)
    (changed / "part-00001.parquet").write_bytes(b"")
    stranger = rows.with_columns(person_id=pl.lit("z") + pl.col("person_id"))
    strangers = write_scored(tmp_path / "strangers", stranger)
    nobody = write_scored(tmp_path / "nobody", rows)
    finished = json.loads((nobody / MANIFEST).read_text())
    (nobody / MANIFEST).write_text(json.dumps({**finished, "parts": []}))
    for folder, more, content, message in (
        (scored, "--by shoe_size", "", "shoe_size"),
        (scored, "--by sex,sex", "", "twice"),
        (scored, "--by sex --minimum 1", "", "3 persons"),
        (scored, "--by sex --until 2001", "", "begin in 2023"),
        (scored, "--by sex --dominance two", "", "--dominance"),
        (forecasts, "--by sex", "", "joint paths"),
        (tmp_path, "--by sex", "", "no complete scoring run"),
        (nobody, "--by sex", "", "nobody of the input could be forecast"),
        (changed, "--by sex", "", "was changed"),
        (strangers, "--by sex", "", "does not have persons"),
        (scored, f"--by sex --weights {weights}", "person_id,weight\n0001,-2\n", "not positive"),
        (scored, f"--by sex --weights {weights}", "person_id,weight\n0001,2\n", "have persons"),
    ):
        weights.write_text(content)
        line = ("tables", folder, "--panel", panel, "--out", tmp_path / "out")
        assert message in refusal(*line, more)


def test_bands_of_pensionable_earnings_have_flows_and_totals_that_add_up(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    """The Orange Report's shape: less 7 %, at most 7.5 base amounts, by hand for 2023."""
    out = tmp_path / "out"
    table = _run(scored, panel, out, "--by", "cohort,base_amounts")
    earnings = pl.concat(map(pl.read_parquet, scored.glob("*.parquet"))).filter(year=2023)
    prices = shipped_facts().price_index
    law = earnings["earnings"].to_numpy() * prices[2023] / prices[2022]
    income = np.floor(law / 100 + 1e-6) * 100
    fee = np.ceil((0.07 * np.minimum(income, 8.07 * 74_300) - 1e-6) / 100 - 0.5) * 100
    counted = np.where(income < 0.423 * 52_500, 0.0, np.minimum(income - fee, 7.5 * 74_300))
    limits = np.array([0, 1, 3, 5, 7.5]) * 74_300
    bands = ["not pensionable", "0-1", "1-3", "3-5", "5-ceiling", "ceiling"]
    number = np.where(counted > 0, np.searchsorted(limits, counted, "right"), 0)
    assert 0 < (counted == limits[-1]).sum()
    shown = table.filter(statistic="persons", cohort=TOTAL, year=2023)
    persons = dict(shown.select("base_amounts", "value").iter_rows())
    for k, band in enumerate(bands):
        if persons[band] is not None:
            assert persons[band] == pytest.approx((number == k).sum() / PATHS, abs=0.5)
    assert persons["not pensionable"] is not None
    page = (out / "tables.html").read_text()
    assert page.index(">not pensionable<") < page.index(">0-1<") < page.index(">1-3<")
    flows = pl.read_csv(out / "transitions.csv", infer_schema_length=None)
    assert set(flows["class"]) == {*bands, TOTAL}
    sums = flows.drop_nulls("share").group_by("year", "cohort", "class").agg(pl.col("share").sum())
    assert len(sums)
    assert sums["share"].to_numpy() == pytest.approx(1.0, abs=0.004)
    expected = counted.sum() / PATHS * prices[2022] / prices[2023]
    rows = table.filter(pl.col("year") == 2023, statistic="pensionable_total", cohort=TOTAL)
    totals = dict(rows.select("base_amounts", "value").iter_rows())
    assert totals[TOTAL] == pytest.approx(expected, abs=1)
    of_bands = [value for band, value in totals.items() if band != TOTAL]
    assert None in of_bands or sum(of_bands) == pytest.approx(expected, abs=len(of_bands))
    assert totals["not pensionable"] == 0
    mean = _one(table, year=2023, statistic="pensionable_mean", cohort=TOTAL, base_amounts=TOTAL)
    assert mean["value"] == pytest.approx(expected / PERSONS, abs=1)
    assert "Sum of pensionable earnings" in page
    others = _run(scored, panel, tmp_path / "others", "--by", "cohort")
    assert not others["statistic"].str.starts_with("pensionable").any()


def test_tables_use_the_facts_of_their_paths_and_refuse_others(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    """An office's base amount is ten times as large: nobody earns more than one of them."""
    facts = tmp_path / "office.csv"
    header = "series,year,value,unit,mark,source"
    amounts = shipped_facts().series["income_base_amount"].values
    rows = [f"income_base_amount,{year},{10 * a},SEK,V,the office" for year, a in amounts.items()]
    facts.write_text("\n".join([header, *rows]) + "\n")
    earnings = pl.concat(map(pl.read_parquet, scored.glob("*.parquet")))
    stated = {"facts": read_facts(facts).provenance()}
    of_office = write_scored(tmp_path / "scored", earnings, stated=stated)
    by = ("--by", "base_amounts")
    table = _run(of_office, panel, tmp_path / "out", *by, "--facts", str(facts))
    poor, all_others = (
        table.filter(is_poor, statistic="persons", year=2023)["value"].sum()
        for is_poor in (
            pl.col("base_amounts").is_in(["not pensionable", "0-1"]),
            ~pl.col("base_amounts").is_in(["not pensionable", "0-1", TOTAL]),
        )
    )
    assert all_others < PERSONS / 100 < poor
    for paths, option in ((of_office, ()), (scored, ("--facts", facts))):
        line = ("tables", paths, "--panel", panel, "--out", tmp_path / "other", *by, *option)
        assert "which are not the same. Give the facts of the scoring run" in refusal(*line)


@pytest.mark.parametrize(("group", "level"), [("age", "20-29"), ("cohort", "2000-2009")])
def test_levels_are_found_where_a_filter_leaves_no_row_of_a_chunk(group: str, level: str) -> None:
    """As in later years, if ids begin with the birth year and a join made two chunks of one column.

    Formats of Polars panic there.
    """
    born = pl.concat([pl.Series("birth_year", [year] * 9) for year in (1950, 2000)], rechunk=False)
    persons = pl.DataFrame([pl.Series("weight", [1.0] * 18), born]).filter(birth_year=2000)
    assert persons["birth_year"].n_chunks() == 2
    assert persons.select(person_levels(group, 2023)).to_series().to_list() == [level] * 9


def test_fifths_of_career_earnings_are_equal_groups_that_keep_their_order(
    scored: Path, panel: Path, tmp_path: Path
) -> None:
    """OG-Core's shape: earnings by year and fifth of career earnings, of each birth year."""
    fifths = [f"career fifth {k}" for k in range(1, 6)]
    career = (
        pl.read_parquet(scored / "part-*.parquet")
        .group_by("person_id")
        .agg(pl.col("earnings").mean())
    )
    poor = pl.col("earnings") < pl.col("earnings").median()
    born = career.select(
        pl.col("person_id").cast(pl.Int64), birth_year=pl.when(poor).then(1970).otherwise(1985)
    )
    people = pl.read_csv(panel).drop("birth_year").join(born, on="person_id")
    panel = tmp_path / "of_two_birth_years.csv"
    people.with_columns(pl.col("person_id").cast(pl.String).str.zfill(4)).write_csv(panel)
    by = ("--by", "birth_year,career_fifth")
    table = _run(scored, panel, tmp_path / "years", *by).filter(statistic="persons", year=2023)
    of_poor = table.filter(pl.col("career_fifth").is_in(fifths), birth_year="1970")
    assert of_poor["value"].to_list() == [PERSONS / 10] * 5
    table = _run(scored, panel, tmp_path / "out", "--by", "career_fifth")
    persons = table.filter(statistic="persons", year=2023)
    numbers = dict(persons.select("career_fifth", "value").iter_rows())
    assert [numbers[name] for name in fifths] == [PERSONS / 5] * 5
    totals = dict(
        table.filter(statistic="total").filter(year=2023)[["career_fifth", "value"]].rows()
    )
    assert sum(totals[name] for name in fifths) == pytest.approx(totals[TOTAL], abs=3)
    means = dict(table.filter(statistic="mean").filter(year=2023)[["career_fifth", "value"]].rows())
    assert [means[name] for name in fifths] == sorted(means[name] for name in fifths)
    # With weights they are fifths of the population, however many persons of the panel these are.
    weights = career.select("person_id", weight=pl.when(poor).then(5.0).otherwise(1.0))
    weights.write_csv(tmp_path / "weights.csv")
    more = ["--by", "career_fifth", "--weights", str(tmp_path / "weights.csv")]
    weighted = _run(scored, panel, tmp_path / "weighted", *more).filter(
        statistic="persons", year=2023
    )
    of_fifth = dict(weighted.select("career_fifth", "value").iter_rows())
    fifth_of_all = weights["weight"].sum() / 5
    assert [of_fifth[name] for name in fifths] == pytest.approx([fifth_of_all] * 5, abs=5)


def test_cells_and_comparisons_are_counted_without_going_through_them() -> None:
    """A call may ask for a million million of them."""
    few = Grid(("a", "b"), (("1", "2"), ("x", "y", "z")), ((0, 0, 1), (1, 2, 3)))
    assert few.n_shown == len([*few.cells(), *few.comparisons()])
    many = tuple(map(str, range(9_999)))
    assert Grid(("a", "b", "c"), (many,) * 3, ((0, 0, 1),)).n_shown == 10**12 + 10**8
