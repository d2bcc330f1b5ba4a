"""What a simulated register is held against: each figure with its concept, population, source and band.

Marks: V read in a public source, D derived from figures that were read, M recalled from the literature (a band to aim inside, not a
statistic to quote), P published by the authors of the SAGA paper (arXiv 2605.19014) on a register that nobody outside can read. Enforced
is what the sources marked V say on their own concept and population; what is M or P is reported beside it.

The rule of the bands stands in `saga.register.validation.target`.
"""

from __future__ import annotations

from collections.abc import Iterator

from saga.register.validation.reported import circumstances, linear, paper, recalled
from saga.register.validation.target import RELATIVE, Kind, Target

BUST = (
    1991,
    1992,
    1993,
)  # years t of a change from t - 1 to t: unemployment rises by 1.4 to 3.5 points a year
BUST_2009 = (2009,)
BOOM = (1998, 1999, 2000, 2006, 2007)  # unemployment falls by a point or so a year
GROUPS = ("all", "women", "men")


def targets() -> tuple[Target, ...]:
    """The whole table, in the order in which it is read."""
    enforced = (
        _levels(),
        _bins(),
        _employment(),
        _zeros(),
        _gender(),
        _family(),
        _education(),
        _premia(),
        _growth(),
        _signs(),
    )
    return tuple(
        target
        for part in (*enforced, recalled(), circumstances(), linear(), paper())
        for target in part
    )


# Labour earnings, taxable transfers (sickness, parental and unemployment benefit, disability pension) and pensions, nominal SEK.
TAXABLE = "earned income as taxed: labour earnings + sickness, parental, unemployment benefit + disability pension + pensions, SEK of the year"
LABOUR = "labour earnings"
_SCB = "Statistics Sweden, "

_LEVEL_STATISTICS: tuple[tuple[str, str, Kind], ...] = (
    ("mean", "mean", "amount"),
    ("mean_positive", "mean of those above 0", "amount"),
    ("p10", "P10", "amount"),
    ("p25", "P25", "amount"),
    ("p50", "P50", "amount"),
    ("p75", "P75", "amount"),
    ("p90", "P90", "amount"),
    ("top5", "mean of the top 5 %", "amount"),
    ("top1", "mean of the top 1 %", "amount"),
    ("p90_p10", "P90/P10", "ratio"),
    ("gini", "Gini, zeros counted", "gini"),
)
_LEVELS_2020: dict[str, tuple[float, ...]] = {
    "all": (
        357_662,
        378_579,
        47_450,
        199_152,
        343_868,
        462_208,
        606_561,
        1_119_811,
        2_028_760,
        12.8,
        0.366,
    ),
    "women": (
        317_910,
        335_766,
        43_440,
        177_129,
        313_837,
        420_324,
        543_395,
        904_003,
        1_462_404,
        12.5,
        0.355,
    ),
    "men": (
        395_746,
        419_771,
        52_750,
        229_004,
        375_868,
        500_751,
        661_752,
        1_293_930,
        2_465_568,
        12.5,
        0.366,
    ),
}
_DECILE_MEANS = (
    9_567,
    103_201,
    198_259,
    271_485,
    322_368,
    364_435,
    408_797,
    463_253,
    543_857,
    891_400,
)


def _levels() -> Iterator[Target]:
    """Distribution of total earned income 2020 among residents of the whole year."""
    source = _SCB + "Sammanräknad förvärvsinkomst 2020, decilindelning"
    who = "20-64 at the end of 2020, resident all year (in the register at the end of 2019 and of 2020)"
    for group, values in _LEVELS_2020.items():
        for (key, statistic, kind), value in zip(_LEVEL_STATISTICS, values, strict=True):
            yield Target(
                f"level.{group}.{key}",
                "Income 2020",
                TAXABLE,
                f"{who}; {group}",
                statistic,
                kind,
                source,
                "V",
                True,
                value,
            )
    for decile, value in enumerate(_DECILE_MEANS, start=1):
        statistic = f"mean of decile {decile}"
        yield Target(
            f"level.all.decile{decile}",
            "Income 2020",
            TAXABLE,
            f"{who}; all",
            statistic,
            "amount",
            source,
            "V",
            True,
            value,
        )
    for key, statistic, value in (
        ("mean", "women's mean / men's", 317_910 / 395_746),
        ("p50", "women's median / men's", 313_837 / 375_868),
    ):
        yield Target(
            f"level.ratio.{key}",
            "Income 2020",
            TAXABLE,
            f"{who}",
            statistic,
            "ratio",
            source,
            "D",
            True,
            round(value, 3),
        )


# Lower edges of the classes in SEK; the first is exactly 0, the second begins above it; each ends below the next edge.
BIN_EDGES = (
    20,
    40,
    60,
    100,
    140,
    200,
    280,
    300,
    350,
    400,
    450,
    500,
    600,
    800,
    1000,
)  # thousand SEK
BIN_NAMES = (
    "0", "1-19", "20-39", "40-59", "60-99", "100-139", "140-199", "200-279", "280-299",
    "300-349", "350-399", "400-449", "450-499", "500-599", "600-799", "800-999", "1000+",
)  # fmt: skip
_BINS_2020: dict[str, tuple[float, ...]] = {
    "all": (8.1, 2.3, 1.8, 1.9, 3.1, 4.7, 6.2, 11.0, 3.7, 11.0, 11.2, 9.4, 7.1, 8.8, 6.2, 1.9, 1.7),
    "women": (
        7.7,
        2.5,
        2.0,
        2.3,
        3.5,
        5.2,
        7.6,
        13.4,
        4.5,
        12.5,
        11.3,
        8.4,
        6.0,
        7.0,
        4.3,
        1.2,
        0.9,
    ),
    "men": (8.6, 2.1, 1.5, 1.6, 2.6, 4.2, 5.0, 8.6, 2.9, 9.6, 11.2, 10.3, 8.1, 10.6, 8.1, 2.5, 2.4),
}


def _bins() -> Iterator[Target]:
    """Classes of assessed income among all who were liable to tax at some time of the year."""
    # Those who died or left during the year are liable too, but have no row at its end: under 1 % of the population.
    who = "20-64 at the end of {year}, liable to tax during the year: all in the register at its end; {group}"
    source = _SCB + "Fastställd förvärvsinkomst {year}"
    for group, values in _BINS_2020.items():
        for name, value in zip(BIN_NAMES, values, strict=True):
            yield Target(
                f"bins.{group}.{name}",
                "Income classes 2020",
                TAXABLE,
                who.format(year=2020, group=group),
                f"share, {name} thousand",
                "share",
                source.format(year=2020),
                "V",
                True,
                round(value / 100.0, 4),
            )
    # The published mean counts zeros: without them it would lie 8 % higher, near the mean above 0 of the 2020 table.
    for group, zero, mean in zip(
        GROUPS, (0.078, 0.074, 0.082), (335_800, 299_500, 370_000), strict=True
    ):
        population, origin = who.format(year=2019, group=group), source.format(year=2019)
        yield Target(
            f"assessed2019.{group}.zero",
            "Income 2019",
            TAXABLE,
            population,
            "share with 0",
            "share",
            origin,
            "V",
            True,
            zero,
        )
        yield Target(
            f"assessed2019.{group}.mean",
            "Income 2019",
            TAXABLE,
            population,
            "mean, zeros counted",
            "amount",
            origin,
            "V",
            True,
            mean,
        )


EMPLOYMENT_AGES = ((16, 19), (20, 24), (25, 34), (35, 44), (45, 54), (55, 64), (20, 64))
_EMPLOYED_2015: dict[str, tuple[float, ...]] = {
    "all": (19.3, 60.8, 75.7, 84.3, 84.9, 75.2, 77.9),
    "women": (21.7, 60.9, 73.8, 83.1, 84.2, 73.8, 76.8),
    "men": (17.1, 60.6, 77.4, 85.6, 85.5, 76.6, 79.0),
}


def _employment() -> Iterator[Target]:
    """Register employment in November, as the expected share at work or on paid leave in a week drawn at random."""
    concept = "weeks at work, and weeks of paid sickness or parental leave from a job, out of 52"
    source = _SCB + "RAMS, November 2015, in Statistik om Stockholm b237"
    for group, values in _EMPLOYED_2015.items():
        for (first, last), value in zip(EMPLOYMENT_AGES, values, strict=True):
            yield Target(
                f"employment.{group}.{first}-{last}",
                "Employment 2015",
                concept,
                f"{first}-{last}, {group}",
                "mean share of the year",
                "share",
                source,
                "V",
                True,
                round(value / 100.0, 4),
            )


def _zeros() -> Iterator[Target]:
    source = "between the zero shares of assessed income 2020 (8.1 %) and the share not employed in November 2015 (22.1 %)"
    yield Target(
        "zeros.20-64",
        "Zero earnings",
        LABOUR,
        "20-64, 1990-2022",
        "share with exactly 0",
        "range",
        source,
        "V",
        True,
        low=0.08,
        high=0.22,
    )


WAGE_PERIODS = (
    (2004, 2008),
    (2009, 2009),
    (2010, 2012),
    (2013, 2015),
    (2016, 2016),
    (2017, 2018),
    (2019, 2021),
    (2022, 2022),
)
_WAGE_RATIO = (0.84, 0.85, 0.86, 0.87, 0.88, 0.89, 0.90, 0.901)


def _gender() -> Iterator[Target]:
    """Wages of women relative to men, and what is accumulated by 44."""
    concept = "pay of a full-time full-year job: full time, 98 % of the weeks worked, no sickness or parental benefit; mean of years"
    for (first, last), ratio in zip(WAGE_PERIODS, _WAGE_RATIO, strict=True):
        source = (
            _SCB + "gender equality, unweighted wages"
            if last < 2022
            else "Swedish National Mediation Office, 2022"
        )
        when = str(first) if first == last else f"{first}-{last}"
        yield Target(
            f"wage_ratio.{when}",
            "Women and men",
            concept,
            f"20-64, {when}",
            "women's mean / men's",
            "ratio",
            source,
            "V",
            True,
            ratio,
        )
    yield Target(
        "gap44",
        "Women and men",
        "labour earnings in real SEK, added up from 16 to 44",
        "born 1974-75, in the register each year from 18 to 44",
        "1 - women's mean / men's",
        "share",
        "Nisén et al. (2024), Sweden",
        "V",
        True,
        0.29,
    )
    yield Target(
        "wage_gap.unexplained",
        "Women and men",
        "wage gap after standard weighting",
        "2022",
        "percentage",
        "none",
        "Swedish National Mediation Office, 2022: 4.7 %. Not rebuilt: its weighting uses occupation codes and sectors not in the register",
        "V",
        False,
        0.047,
    )


CHILDLESS = {
    "women": ((1950, 45, 0.125), (1960, 45, 0.143), (1965, 45, 0.138)),
    "men": ((1945, 55, 0.176), (1950, 55, 0.189), (1955, 55, 0.207)),
}


def _family() -> Iterator[Target]:
    """Childlessness by cohort, from the lives of the cohort simulated again: the panel does not see births before 1990."""
    source = "childbearing by cohort, docplayer.se/105975148"
    concept = "births of the cohort's lives, simulated again with the register's parameters, seed and years"
    for group, rows in CHILDLESS.items():
        for born, age, value in rows:
            who = f"{group} born {born}, native and foreign-born, resident at {age}"
            yield Target(
                f"childless.{group}.{born}",
                "Children",
                concept,
                who,
                f"share without a birth by {age}",
                "share",
                source,
                "V",
                True,
                value,
            )


LEVELS = ("compulsory", "upper_secondary", "short_tertiary", "long_tertiary")
# SUN 2000: compulsory = levels 1 + 2, upper secondary = 3 + 4, post-secondary under 3 years = 5, of 3 years or more = 6 + 7.
_EDUCATION_2019 = {"women": (0.097, 0.413, 0.169, 0.322), "men": (0.133, 0.494, 0.158, 0.215)}


def _education() -> Iterator[Target]:
    """Attainment among those whose level is known."""
    concept = "highest education, SUN 2000 in 4 groups, known level only"
    for group, shares in _EDUCATION_2019.items():
        for level, share in zip(LEVELS, shares, strict=True):
            yield Target(
                f"education.2019.{group}.{level}",
                "Education",
                concept,
                f"20-64, end of 2019, {group}",
                f"share with {level}",
                "share",
                _SCB + "education and circular migration, 31 December 2019",
                "D",
                True,
                share,
            )
    overview, oecd = _SCB + "Sverige i siffror", "OECD, Education at a Glance 2022, Sweden"
    # The register's coverage was improved in 2000, which raises the levels of later figures.
    yield Target(
        "education.1990.long",
        "Education",
        concept,
        "25-64, 1990",
        "share with long_tertiary",
        "share",
        overview,
        "V",
        True,
        0.11,
    )
    yield Target(
        "education.2017.long",
        "Education",
        concept,
        "25-64, 2017",
        "share with long_tertiary",
        "share",
        overview,
        "V",
        True,
        0.27,
    )
    yield Target(
        "education.2017.compulsory",
        "Education",
        concept,
        "25-64, 2017",
        "share with compulsory",
        "share",
        overview,
        "V",
        True,
        0.12,
    )
    yield Target(
        "education.2022.tertiary",
        "Education",
        concept,
        "25-64, 2022",
        "share with any tertiary",
        "share",
        _SCB + "register of education, in Hållbarometern",
        "V",
        True,
        0.462,
    )
    for year, value in ((2000, 0.34), (2021, 0.49)):
        key, who = f"education.{year}.young_tertiary", f"25-34, {year}"
        yield Target(
            key,
            "Education",
            concept,
            who,
            "share with any tertiary",
            "share",
            oecd,
            "V",
            True,
            value,
        )
    yield Target(
        "education.2021.young_compulsory",
        "Education",
        concept,
        "25-34, 2021",
        "share with compulsory",
        "share",
        oecd,
        "V",
        True,
        0.16,
    )


def _premia() -> Iterator[Target]:
    """Relative earnings by education, as the OECD forms them: ratios of mean earnings of those with earnings."""
    oecd = "OECD, Education at a Glance 2015, Sweden"
    concept = "labour earnings above 0"
    rows: tuple[tuple[str, str, str, Kind, float | None, float | None, float | None, bool], ...] = (
        (
            "tertiary",
            "25-64, 2013",
            "mean, any tertiary / upper secondary",
            "ratio",
            1.25,
            None,
            None,
            True,
        ),
        # Vocational +9 %, general +10 %: the register has one group for both.
        (
            "upper_secondary",
            "25-34, 2013",
            "mean, upper secondary / compulsory",
            "ratio",
            1.095,
            None,
            None,
            True,
        ),
        # The register has one group for bachelor's (+15 and +17 %) and for master's degrees and doctorates (+46 and +36 %).
        (
            "long",
            "25-64, 2013",
            "mean, long tertiary / upper secondary",
            "range",
            None,
            1.15,
            1.46,
            False,
        ),
        (
            "long_young",
            "25-34, 2013",
            "mean, long tertiary / compulsory",
            "range",
            None,
            1.17,
            1.36,
            False,
        ),
    )
    for key, who, statistic, kind, value, low, high, enforced in rows:
        yield Target(
            f"premium.{key}",
            "Education premia",
            concept,
            who,
            statistic,
            kind,
            oecd,
            "V",
            enforced,
            value,
            low,
            high,
        )
    job = "log pay of a full-time full-year job"
    origin = "quoted at avhandlingar.se/avhandling/17068061b2"
    yield Target(
        "premium.university_rise",
        "Education premia",
        job,
        "25-64",
        "long tertiary less upper secondary, 2001 less 1992",
        "above",
        origin,
        "V",
        True,
    )
    yield Target(
        "premium.gymnasium_flat",
        "Education premia",
        job,
        "25-64",
        "upper secondary less compulsory, 2001 less 1992",
        "range",
        origin,
        "V",
        True,
        low=-RELATIVE,
        high=RELATIVE,
    )
    yield Target(
        "premium.lifetime",
        "Education premia",
        "lifetime earnings",
        "graduates and upper secondary, by field",
        "graduates / upper secondary",
        "none",
        "SACO 2016: 19.0 / 16.4 million SEK. Not rebuilt: a model life of full employment by field of degree, from wages of one year",
        "D",
        False,
        1.159,
    )


# Growth of pay deflated by the mean growth of prices (KPIF) that the same source states: first, last, prices, real, enforced.
PAY_GROWTH = (
    (
        1990,
        1999,
        0.037,
        0.009,
        False,
    ),  # the source's mean includes 1990 itself, for which the register has no year before
    (1999, 2009, 0.018, 0.018, True),
    (2009, 2019, 0.014, 0.012, True),
    (2019, 2020, 0.005, 0.016, True),
)


def _growth() -> Iterator[Target]:
    concept = (
        "mean pay of a full-time full-year job, deflated by the price growth that the source states"
    )
    for first, last, _, real, enforced in PAY_GROWTH:
        value = round((1.0 + real) ** (last - first), 3)
        yield Target(
            f"growth.{first}-{last}",
            "Growth of pay",
            concept,
            f"20-64, {last} and {first}",
            f"{last} / {first}",
            "ratio",
            "Swedish National Mediation Office, real wages by decade",
            "V",
            enforced,
            value,
        )
    yield Target(
        "growth.1995-2022",
        "Growth of pay",
        concept,
        "20-64, 2022 and 1995",
        "2022 / 1995",
        "ratio",
        "Ekonomifakta",
        "V",
        True,
        1.60,
    )


_FRIEDRICH = "Friedrich, Laun and Meghir (2022), abstract"
_BUSCH = "Busch, Domeij, Guvenen and Madera (2022), abstract"


def _signs() -> Iterator[Target]:
    """What the sources state without a number."""
    change = "1-year change of log real earnings, both above half a price base amount"
    log = "log real earnings above half a price base amount"
    prime = "25-55"
    rows: tuple[tuple[str, str, str, str, Kind, str], ...] = (
        (
            "kelley.bust",
            change,
            f"{prime}, all",
            "Kelley 1991-93 less Kelley in upturns",
            "below",
            _BUSCH,
        ),
        (
            "kelley.bust_men",
            change,
            f"{prime}, men",
            "Kelley 1991-93 less Kelley in upturns",
            "below",
            _BUSCH,
        ),
        (
            "kelley.bust_2009",
            change,
            f"{prime}, all",
            "Kelley 2009 less Kelley in upturns",
            "below",
            _BUSCH,
        ),
        (
            "kelley.cycle",
            change,
            f"{prime}, all, 1991-2022",
            "correlation of Kelley with the rise of unemployment",
            "below",
            _BUSCH,
        ),
        (
            "spread.acyclical",
            change,
            f"{prime}, all, 1991-2022",
            "size of the correlation with the rise of unemployment: Kelley's less that of P90-P10",
            "above",
            _BUSCH,
        ),
        (
            "volatility.women",
            change,
            f"{prime}, 1991-2016",
            "P90-P10, women's less men's",
            "above",
            _FRIEDRICH,
        ),
        (
            "cycle.men",
            "mean real labour earnings of those resident in both years, zeros counted",
            f"{prime}, 1991-2022",
            "slope of growth on the rise of unemployment, men's less women's",
            "below",
            _FRIEDRICH,
        ),
        (
            "jump.men",
            log,
            f"{prime}, men",
            "variance, 1995 less 1990",
            "above",
            "Domeij and Flodén (2010); Gustavsson (2007)",
        ),
        ("jump.all", log, f"{prime}, all", "P90-P10, 1995 less 1990", "above", _FRIEDRICH),
        (
            "jump.persistent",
            log,
            f"{prime}, men",
            "covariance over three years, 1996-99 less 1990-93",
            "above",
            "Gustavsson (2007)",
        ),
        (
            "inequality.falls",
            log,
            f"{prime}, all",
            "P90-P10, 2014-16 less 1995-97",
            "below",
            _FRIEDRICH,
        ),
        (
            "foreign.volatility",
            change,
            f"{prime}, below the year's median, 1991-2016",
            "P90-P10, foreign-born less native",
            "above",
            _FRIEDRICH,
        ),
        (
            "foreign.losses",
            "real earnings a year later under half of this year's, zero counted",
            f"{prime}, below the year's median, 1991-2016",
            "share, foreign-born less native",
            "above",
            _FRIEDRICH,
        ),
        (
            "skew.low_educated",
            change,
            f"{prime}, 1991-2016",
            "Kelley, compulsory less long tertiary",
            "below",
            _FRIEDRICH,
        ),
    )
    for key, concept, who, statistic, kind, source in rows:
        yield Target(f"sign.{key}", "Signs", concept, who, statistic, kind, source, "V", True)
