"""What a register is compared with but not held to: bands recalled from the literature, circumstances of life, a linear process,
the SAGA paper's sample."""

from __future__ import annotations

from collections.abc import Iterator

from saga.register.validation.target import Kind, Target

PAPER = "Sample of the paper"


def recalled() -> Iterator[Target]:
    """Bands recalled from the literature: reported, not enforced, and not to be quoted as published."""
    change, source = (
        "change of log real earnings, both above half a price base amount",
        "GRID country study of Sweden, recalled",
    )
    prime = "25-55"
    bands: tuple[tuple[str, str, str, tuple[float, float], tuple[float, float]], ...] = (
        ("log_spread.1995", "log real earnings", "P90-P10, 1995", (1.4, 1.7), (1.5, 1.8)),
        ("log_spread.2016", "log real earnings", "P90-P10, 2016", (1.2, 1.5), (1.2, 1.5)),
        (
            "change1.spread.boom",
            f"1-year {change}",
            "P90-P10 in upturns",
            (0.45, 0.65),
            (0.65, 0.85),
        ),
        ("change1.spread.bust", f"1-year {change}", "P90-P10, 1992-94", (0.65, 0.85), (0.80, 1.00)),
        ("change5.spread", f"5-year {change}", "P90-P10", (0.8, 1.1), (1.1, 1.4)),
        ("change1.std", f"1-year {change}", "standard deviation", (0.40, 0.55), (0.45, 0.65)),
        ("change1.kelley.boom", f"1-year {change}", "Kelley in upturns", (0.0, 0.15), (0.0, 0.15)),
        (
            "change1.kelley.bust",
            f"1-year {change}",
            "Kelley, 1991-93",
            (-0.30, -0.10),
            (-0.15, 0.0),
        ),
        ("change1.peak", f"1-year {change}", "excess Crow-Siddiqui", (6.0, 12.0), (5.0, 10.0)),
        ("change5.peak", f"5-year {change}", "excess Crow-Siddiqui", (3.0, 7.0), (2.0, 5.0)),
    )
    for key, concept, statistic, men, women in bands:
        for group, (low, high) in (("men", men), ("women", women)):
            yield Target(
                f"grid.{key}.{group}",
                "Changes (recalled)",
                concept,
                f"{prime}, {group}",
                statistic,
                "range",
                source,
                "M",
                False,
                low=low,
                high=high,
            )
    for years, low, high in ((5, 0.75, 0.85), (10, 0.65, 0.80)):
        yield Target(
            f"grid.rank{years}.men",
            "Changes (recalled)",
            "rank of real labour earnings by year",
            "35-54 at the start, men",
            f"rank-rank slope over {years} years",
            "range",
            source,
            "M",
            False,
            low=low,
            high=high,
        )
    yield Target(
        "grid.rank5.women_less",
        "Changes (recalled)",
        "rank of real labour earnings by year",
        "35-54 at the start",
        "rank-rank slope over 5 years, women's less men's",
        "below",
        source,
        "M",
        False,
    )
    for key, statistic, kind in (
        ("kelley_by_age", "Kelley, 45-55 less 25-34", "below"),
        ("peak_by_age", "excess Crow-Siddiqui, 45-55 less 25-34", "above"),
        ("kelley_by_rank", "Kelley, top fifth of past earnings less bottom fifth", "below"),
        (
            "peak_by_rank",
            "excess Crow-Siddiqui, top fifth of past earnings less bottom fifth",
            "above",
        ),
    ):
        sign: Kind = "below" if kind == "below" else "above"
        yield Target(
            f"grid.{key}",
            "Changes (recalled)",
            f"1-year {change}",
            f"{prime}, all",
            statistic,
            sign,
            source,
            "M",
            False,
        )
    yield Target(
        "lifetime.dispersion",
        "Lifetime earnings",
        "real labour earnings, added up over 25-54",
        "born 1965-68, in the register each year of 25-54",
        "1 - coefficient of variation of the sum / mean over years of the annual one",
        "range",
        "Björklund (1993), as quoted; other years and ages",
        "V",
        False,
        low=0.35,
        high=0.40,
    )
    concept = "real labour earnings, zeros counted: event study with age and year dummies, the year before the first birth as base"
    for key, statistic, value, origin in (
        (
            "mothers",
            "mothers' loss relative to fathers', mean of 5-10 years after",
            0.26,
            "Kleven et al. (2019), Sweden, recalled",
        ),
        (
            "gap15",
            "mothers' loss relative to fathers', 15 years after",
            0.32,
            "Angelov et al. (2016), within couples, recalled",
        ),
    ):
        who = "parents, first birth at 20-45"
        yield Target(
            f"child_penalty.{key}",
            "Children",
            concept,
            who,
            statistic,
            "share",
            origin,
            "M",
            False,
            value,
        )
    for year, value in ((1991, 26.0), (2020, 29.5)):
        yield Target(
            f"first_birth.{year}",
            "Children",
            "age at the first child at home",
            f"women, {year}",
            "mean age",
            "ratio",
            "recalled (26 in 1990)" if year == 1991 else "recalled",
            "M",
            False,
            value,
        )


def circumstances() -> Iterator[Target]:
    """What lives consist of besides earnings, so that every mechanism has a figure that would notice its absence.

    The bands are wide and from general knowledge of Swedish statistics. They were fixed before the register was measured against them,
    but after its parameters were set and by those who knew these: they show what a mechanism does, and confirm nothing. None is enforced,
    the one figure that was read included.
    """
    taxable = "labour earnings, taxable transfers and pensions"
    pay, works, some = (
        "log pay of a full-time full-year job",
        "with labour earnings above 0",
        "share with any",
    )
    scb, insurance, general = (
        "Statistics Sweden, recalled",
        "Swedish Social Insurance Agency, recalled",
        "general knowledge",
    )
    rows: tuple[tuple[str, str, str, str, float, float, str], ...] = (
        ("spouses", "labour earnings of a person and the partner, both above half a price base amount", "35-55, 2011-22",
         "rank correlation within sex and year", 0.10, 0.30, general),
        ("abroad", "years without a row in the register", "born 1965-88, in the register at 25 and at 34",
         "share with such a year in between", 0.01, 0.06, scb),
        ("foreign", "born abroad", "20-64, 2022", "share", 0.20, 0.27, scb),
        ("foreign_pay", pay, "25-64, 2010-19", "mean, foreign-born less native", -0.16, -0.04,
         "Swedish National Mediation Office, recalled"),
        ("settled", "weeks at work or on paid leave from a job, out of 52", "25-54, 2015",
         "mean, foreign-born with ten years or more in the country less native", -0.22, -0.06, scb),
        ("late_degree", "highest education, known level only", "born 1970-82, in the register at 30 and at 40",
         "share with a higher level at 40 than at 30", 0.04, 0.14, scb),
        ("second_chance", "highest education", "born 1975-87, compulsory education at 25, level known at 35", "share with more at 35",
         0.08, 0.30, scb),
        ("disability.2005", "disability pension", "50-64, 2005", some, 0.15, 0.25, insurance),
        ("disability.2020", "disability pension", "50-64, 2020", some, 0.05, 0.12, insurance),
        ("pensioners", "pension and no labour earnings", "60-64, 1995-2005", "share", 0.07, 0.25, general),
        ("age_pay", "pay of a full-time full-year job", "2019", "mean at 45-54 / mean at 25-29", 1.15, 1.40, scb),
        ("mothers", "parental benefit", "women with a child born in the year", some, 0.85, 1.0, insurance),
        ("sickness.women", "sickness benefit", f"20-64, women {works}, 2019", some, 0.08, 0.18, insurance),
        ("sickness.men", "sickness benefit", f"20-64, men {works}, 2019", some, 0.04, 0.11, insurance),
        ("own_firm", "only person of the workplace, working time not stated", "20-64, workplace known, 2015", "share", 0.04, 0.12,
         scb),
        ("jobs", "employers in the year", f"20-64, {works}, 2015", "share with more than one", 0.12, 0.30, scb),
        ("industry_change", "industry, 2 digits of SNI 2007",
         "25-54 the year before, labour earnings above half a price base amount in both years, 2010-19",
         "share with another than the year before", 0.05, 0.13, scb),
        ("managers", "occupation in SSYK major group 1", "occupation known, 2015", "share at 45-54 less share at 25-34", 0.02, 0.09,
         scb),
        ("pay_fan", pay, "2010-19", "variance at 50-54 less variance at 30-34", 0.02, 0.08, scb),
        ("lifetime_slope", "log real labour earnings above half a price base amount, at 45-49",
         "men born 1965-68, in the register each year of 25-54", "slope on the log of the earnings added up over 25-54", 1.0, 1.3,
         "Böhlmark and Lindquist (2006), recalled"),
        ("leavers", f"{taxable}: nothing two years later", "30-54, labour earnings above half a price base amount, still there then",
         "share", 0.003, 0.020, general),
        ("zero_again", "labour earnings", "25-54, a year without after one with", "share without in the next year, too", 0.45, 0.75,
         general),
        ("zero_after_three", "labour earnings", "25-54, three years without, no disability pension in the third",
         "share without in the next year, too", 0.75, 0.94, general),
        ("scar", "change of log pay from a full-time full-year job to one five years later",
         "30-54 at the start and without unemployment benefit, all years", "mean, unemployment benefit in the next year less none",
         -0.12, -0.03, "Eliason and Storrie (2006), recalled"),
        ("loss_by_trade", "unemployment benefit the year after labour earnings above half a price base amount without any",
         "25-54, 1991-93", "share, from goods production and construction / from public services", 1.8, 5.0,
         general),
    )  # fmt: skip
    topic = "Circumstances (recalled)"
    for key, concept, who, statistic, low, high, source in rows:
        yield Target(
            f"circumstance.{key}",
            topic,
            concept,
            who,
            statistic,
            "range",
            source,
            "M",
            False,
            low=low,
            high=high,
        )
    yield Target(
        "circumstance.loss_cycle",
        topic,
        "unemployment benefit the year after labour earnings above half a price base amount without any",
        "25-54, 1991-93 and upturns",
        "log of the share in downturn / upturn, goods production and construction less public services",
        "above",
        general,
        "M",
        False,
    )
    yield Target(
        "circumstance.level_unknown",
        topic,
        "highest education",
        "20-64, end of 2019",
        "share unknown",
        "share",
        "Statistics Sweden, education and circular migration, 31 December 2019",
        "V",
        False,
        0.028,
    )


def linear() -> Iterator[Target]:
    """What an AR(1) with fixed effects fitted to the register would show in its place: a comparison, no target."""
    change = "1-year change of log real earnings, both above half a price base amount"
    fades = "slope of the change over six years on its first year, in the lowest third of first-year changes less in the highest"
    for key, statistic, who in (
        ("peak", "excess Crow-Siddiqui (0 for a normal)", "25-55"),
        ("kurtosis", "kurtosis (3 for a normal)", "25-55"),
        ("fading_bottom", fades, "25-55, lowest fifth of past earnings"),
        ("fading_top", fades, "25-55, highest fifth of past earnings"),
    ):
        for whose, name in (
            ("register", "the register"),
            ("fitted", "AR(1) with fixed effects fitted to it"),
        ):
            yield Target(
                f"ar1.{key}.{whose}",
                "Against a linear process",
                change,
                f"{who}; {name}",
                statistic,
                "none",
                "",
                None,
                False,
            )


def paper() -> Iterator[Target]:
    """The sample of the SAGA paper: selected on attachment, therefore with fewer zeros."""
    source = "SAGA paper (arXiv 2605.19014), LISA: 61,284,903 person-years of 2,143,817 persons"
    who = "born 1960-90 with ten years in the register in a row (gaps up to two years) that end at 26-54, five of them with earnings"
    yield Target(
        "paper.zeros",
        PAPER,
        "labour earnings",
        who,
        "share of person-years with exactly 0",
        "share",
        source,
        "P",
        False,
        0.074,
    )
    yield Target(
        "paper.years",
        PAPER,
        "rows in the register, 16-64",
        who,
        "rows a person",
        "ratio",
        source,
        "P",
        False,
        28.587,
    )
    yield Target(
        "paper.lifetime_gini",
        PAPER,
        "lifetime earnings of the observed part",
        who,
        "Gini",
        "none",
        "SAGA paper. Not rebuilt: its test persons were born 1983-85, whose years to 64 no register has seen",
        "P",
        False,
        0.341,
    )
