"""The table of targets is complete and consistent, and its bands follow the stated rule."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from saga.register.validation.level_statistics import CLASS_EDGES, CLASS_NAMES
from saga.register.validation.register_check import MEASURES, targets
from saga.register.validation.targets import TARGETS_FILE, Band, RegisterTarget, read_targets

BY_KEY = {target.key: target for target in targets()}


def published(key: str) -> float:
    value = BY_KEY[key].value
    assert value is not None, key
    return value


def target_of(
    band: Band, value: float | None = None, low: float | None = None, high: float | None = None
) -> RegisterTarget:
    return RegisterTarget(
        "key", "topic", "concept", "population", "statistic", band, value, low, high
    )


def test_every_target_states_its_population_and_source() -> None:
    assert len(BY_KEY) == len(targets())
    for target in targets():
        texts = (target.topic, target.concept, target.population, target.statistic)
        assert all(texts), target.key
        assert target.source, target.key
        assert target.family in MEASURES or "Not rebuilt" in target.source, target.key
        assert (target.band == "not_rebuilt") == ("Not rebuilt" in target.source), target.key


def test_enforced_targets_were_read_and_recalled_ones_are_only_reported() -> None:
    assert {target.mark for target in targets() if target.enforced} == {"V", "D"}
    assert not any(target.enforced for target in targets() if target.mark in ("M", "P"))
    for target in targets():
        if target.enforced:
            has_band = target.value is not None or target.band in ("range", "above", "below")
            assert has_band, target.key


@pytest.mark.parametrize(
    ("band", "value", "low", "high"),
    [
        ("amount", 200_000.0, 190_000 - 300, 210_000 + 300),
        ("ratio", 0.8, 0.76 - 300, 0.84 + 300),
        ("share", 0.3, 0.28 - 300, 0.32 + 300),
        ("gini", 0.366, 0.346 - 300, 0.386 + 300),
        ("above", None, 300, None),
        ("below", None, None, -300),
    ],
)
def test_bands_are_a_fixed_margin_and_three_standard_errors(
    band: Band, value: float | None, low: float | None, high: float | None
) -> None:
    bounds = target_of(band, value).bounds(100.0)
    for bound, expected in zip(bounds, (low, high), strict=True):
        assert bound == (None if expected is None else pytest.approx(expected))


def test_published_figures_agree_with_each_other() -> None:
    """The tables were copied correctly.

    Classes sum to one, decile means average to the mean, quantiles rise, and the figures of all
    persons lie between those of the sexes.
    """
    for group in ("all", "women", "men"):
        shares = [published(f"bins.{group}.{name}") for name in CLASS_NAMES]
        assert sum(shares) == pytest.approx(1.0, abs=0.004)  # 17 figures rounded to .001
        rising = ("p10", "p25", "p50", "p75", "p90", "top5", "top1")
        amounts = [published(f"level.{group}.{key}") for key in rising]
        assert all(low < high for low, high in pairwise(amounts))
        ratio = published(f"level.{group}.p90") / published(f"level.{group}.p10")
        assert ratio == pytest.approx(published(f"level.{group}.p90_p10"), abs=0.06)
    deciles = [published(f"level.all.decile{d}") for d in range(1, 11)]
    assert sum(deciles) / 10 == pytest.approx(published("level.all.mean"), rel=1e-4)
    for statistic in ("mean", "mean_positive", "p10", "p25", "p50", "p75", "p90", "top5", "top1"):
        women, everybody, men = (
            published(f"level.{group}.{statistic}") for group in ("women", "all", "men")
        )
        assert women < everybody < men
    for group in ("women", "men"):
        education = [key for key in BY_KEY if key.startswith(f"education.2019.{group}.")]
        assert sum(map(published, education)) == pytest.approx(1.0, abs=0.0015)
    assert len(CLASS_EDGES) + 2 == len(CLASS_NAMES)
    for key, rounded_ratio in (
        ("mean", published("level.women.mean") / published("level.men.mean")),
        ("p50", published("level.women.p50") / published("level.men.p50")),
    ):
        assert published(f"level.ratio.{key}") == round(rounded_ratio, 3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("level.all.mean,", "height.all.mean,", "no measure for the key height.all.mean"),
        ("level.all.p25,", "level.all.p10,", "level.all.p10 is not unique"),
        (",amount,357662,", ",amount,,", "level.all.mean lacks the value of its band amount"),
        (",range,,0.08,0.22", ",range,,0.08,", "zeros.20-64 lacks the value of its band range"),
        (",amount,357662,", ",amounts,357662,", "band"),
        (",357662,,,true,V,", ",357662,,,true,M,", "level.all.mean is enforced without"),
        ("key,topic,", "key,theme,", "theme"),
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = TARGETS_FILE.read_text(encoding="utf-8")
    assert old in text
    file = tmp_path / "targets.csv"
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_targets(MEASURES, file)
