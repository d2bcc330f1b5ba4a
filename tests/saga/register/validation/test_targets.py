"""The table of targets is whole and consistent, and its bands follow the one rule that was fixed before any simulation."""

import pytest

from saga.register.validation.register_check import MEASURES
from saga.register.validation.target import Target
from saga.register.validation.targets import BIN_EDGES, BIN_NAMES, targets

TABLE = targets()
BY_KEY = {target.key: target for target in TABLE}


def test_every_target_says_what_it_is_of_and_where_it_is_from():
    assert len(BY_KEY) == len(TABLE)
    for target in TABLE:
        assert all((target.topic, target.concept, target.population, target.statistic)), target.key
        assert target.source or target.key.startswith("ar1."), target.key
        assert (target.key.split(".")[0] in MEASURES) or "Not rebuilt" in target.source, target.key


def test_what_is_enforced_was_read_and_what_was_recalled_is_only_reported():
    assert {target.mark for target in TABLE if target.enforced} == {"V", "D"}
    assert not any(target.enforced for target in TABLE if target.mark in ("M", "P"))
    for target in TABLE:
        if target.enforced:
            assert target.target is not None or target.kind in ("range", "above", "below"), (
                target.key
            )


@pytest.mark.parametrize(
    ("kind", "aim", "low", "high"),
    [
        ("amount", 200_000.0, 190_000 - 300, 210_000 + 300),
        ("ratio", 0.8, 0.76 - 300, 0.84 + 300),
        ("share", 0.3, 0.28 - 300, 0.32 + 300),
        ("gini", 0.366, 0.346 - 300, 0.386 + 300),
        ("above", None, 300, None),
        ("below", None, None, -300),
        ("none", None, None, None),
    ],
)
def test_the_rule_of_the_bands_is_a_fixed_margin_and_three_standard_errors(kind, aim, low, high):
    target = Target(
        "key", "topic", "concept", "population", "statistic", kind, "source", "V", True, aim
    )
    for found, expected in zip(target.band(100.0), (low, high), strict=True):
        assert found == (None if expected is None else pytest.approx(expected))


def test_a_range_is_widened_on_both_sides():
    target = Target(
        "key",
        "topic",
        "concept",
        "population",
        "statistic",
        "range",
        "source",
        "V",
        True,
        low=0.08,
        high=0.22,
    )
    assert target.band(0.01) == pytest.approx((0.05, 0.25))


def test_published_figures_agree_with_each_other():
    """The tables were copied right: classes sum to one, decile means average to the mean, quantiles rise, all lies between the sexes."""
    for group in ("all", "women", "men"):
        shares = [BY_KEY[f"bins.{group}.{name}"].target for name in BIN_NAMES]
        assert sum(shares) == pytest.approx(1.0, abs=0.004)  # 17 figures rounded to .001
        level = {
            target.key.split(".")[-1]: target.target
            for target in TABLE
            if target.key.startswith(f"level.{group}.")
        }
        assert (
            level["p10"]
            < level["p25"]
            < level["p50"]
            < level["p75"]
            < level["p90"]
            < level["top5"]
            < level["top1"]
        )
        assert level["p90"] / level["p10"] == pytest.approx(level["p90_p10"], abs=0.06)
    deciles = [BY_KEY[f"level.all.decile{d}"].target for d in range(1, 11)]
    assert sum(deciles) / 10 == pytest.approx(BY_KEY["level.all.mean"].target, rel=1e-4)
    for statistic in ("mean", "mean_positive", "p10", "p25", "p50", "p75", "p90", "top5", "top1"):
        women, everybody, men = (
            BY_KEY[f"level.{group}.{statistic}"].target for group in ("women", "all", "men")
        )
        assert women < everybody < men
    for group in ("women", "men"):
        assert sum(
            t.target for t in TABLE if t.key.startswith(f"education.2019.{group}.")
        ) == pytest.approx(1.0, abs=0.0015)
    assert len(BIN_EDGES) + 2 == len(BIN_NAMES)
