"""What a register is compared with but not held to: bands recalled from the literature, a linear process, the SAGA paper's sample."""

from __future__ import annotations

from collections.abc import Iterator

from saga.register.target import Kind, Target

PAPER = "Sample of the paper"


def recalled() -> Iterator[Target]:
    """Bands recalled from the literature: reported, not enforced, and not to be quoted as published."""
    change, source = "change of log real earnings, both above half a price base amount", "GRID country study of Sweden, recalled"
    prime = "25-55"
    bands: tuple[tuple[str, str, str, tuple[float, float], tuple[float, float]], ...] = (
        ("log_spread.1995", "log real earnings", "P90-P10, 1995", (1.4, 1.7), (1.5, 1.8)),
        ("log_spread.2016", "log real earnings", "P90-P10, 2016", (1.2, 1.5), (1.2, 1.5)),
        ("change1.spread.boom", f"1-year {change}", "P90-P10 in upturns", (0.45, 0.65), (0.65, 0.85)),
        ("change1.spread.bust", f"1-year {change}", "P90-P10, 1992-94", (0.65, 0.85), (0.80, 1.00)),
        ("change5.spread", f"5-year {change}", "P90-P10", (0.8, 1.1), (1.1, 1.4)),
        ("change1.std", f"1-year {change}", "standard deviation", (0.40, 0.55), (0.45, 0.65)),
        ("change1.kelley.boom", f"1-year {change}", "Kelley in upturns", (0.0, 0.15), (0.0, 0.15)),
        ("change1.kelley.bust", f"1-year {change}", "Kelley, 1991-93", (-0.30, -0.10), (-0.15, 0.0)),
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
        ("peak_by_rank", "excess Crow-Siddiqui, top fifth of past earnings less bottom fifth", "above"),
    ):
        sign: Kind = "below" if kind == "below" else "above"
        yield Target(f"grid.{key}", "Changes (recalled)", f"1-year {change}", f"{prime}, all", statistic, sign, source, "M", False)
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
        ("mothers", "mothers' loss relative to fathers', mean of 5-10 years after", 0.26, "Kleven et al. (2019), Sweden, recalled"),
        ("gap15", "mothers' loss relative to fathers', 15 years after", 0.32, "Angelov et al. (2016), within couples, recalled"),
    ):
        who = "parents, first birth at 20-45"
        yield Target(f"child_penalty.{key}", "Children", concept, who, statistic, "share", origin, "M", False, value)
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
        for whose, name in (("register", "the register"), ("fitted", "AR(1) with fixed effects fitted to it")):
            yield Target(f"ar1.{key}.{whose}", "Against a linear process", change, f"{who}; {name}", statistic, "none", "", None, False)


def paper() -> Iterator[Target]:
    """The sample of the SAGA paper: selected on attachment, therefore with fewer zeros."""
    source = "SAGA paper (arXiv 2605.19014), LISA: 61,284,903 person-years of 2,143,817 persons"
    who = "born 1960-90 with ten years in the register in a row (gaps up to two years) that end at 26-54, five of them with earnings"
    yield Target("paper.zeros", PAPER, "labour earnings", who, "share of person-years with exactly 0", "share", source, "P", False, 0.074)
    yield Target("paper.years", PAPER, "rows in the register, 16-64", who, "rows a person", "ratio", source, "P", False, 28.587)
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
