"""Every option is read to one canonical form or refused with the values that are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga import options
from saga.errors import UsageError


@pytest.mark.parametrize(
    ("text", "horizons"),
    [
        ("1-30", tuple(range(1, 31))),
        ("1,5,10", (1, 5, 10)),
        ("10, 5,1,5", (1, 5, 10)),
        ("1-3,20", (1, 2, 3, 20)),
        ("30", (30,)),
    ],
)
def test_horizons_are_ranges_and_lists(text: str, horizons: tuple[int, ...]) -> None:
    assert options.parse_horizons(text) == horizons


@pytest.mark.parametrize(
    "text", ["0", "31", "0-5", "1-31", "5-1", "", "a", "1,,2", "-3", "1.5", "1-", "1-99999999999"]
)
def test_horizons_outside_1_to_30_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"[Hh]orizons"):
        options.parse_horizons(text)


@given(st.sets(st.integers(1, 30), min_size=1))
def test_any_set_of_horizons_survives_being_written_as_text(horizons: set[int]) -> None:
    assert options.parse_horizons(",".join(map(str, horizons))) == tuple(sorted(horizons))


def test_coverage_is_read_sorted_without_doubles() -> None:
    assert options.parse_coverage(".9,.5, 0.90") == (0.5, 0.9)


@pytest.mark.parametrize(
    "text", ["1", "1.0", "0", "0.0", "-.5", "nan", "inf", "", "ninety", ".5,1.0", "90"]
)
def test_coverage_outside_the_open_unit_interval_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"[Cc]overage"):
        options.parse_coverage(text)


def test_quantiles_are_shares_or_a_range_of_per_cents() -> None:
    assert options.parse_quantiles(".5,.05") == (0.05, 0.5)
    assert options.parse_quantiles("1-99") == tuple(percent / 100 for percent in range(1, 100))
    for text in ("0-99", "1-100", "0", "1", "-.1", "x"):
        with pytest.raises(UsageError, match=r"[Qq]uantiles"):
            options.parse_quantiles(text)


def test_numbers_outside_their_range_are_refused() -> None:
    assert (options.check_paths(2), options.check_seed(0), options.check_rate(0.0)) == (2, 0, 0.0)
    assert options.check_ages(64) == (64, None)
    assert options.check_ages(64, 20) == (64, 20)
    for refused in (
        lambda: options.check_paths(1),
        lambda: options.check_paths(10_001),
        lambda: options.check_seed(-1),
        lambda: options.check_rate(1.0),
        lambda: options.check_rate(float("nan")),
        lambda: options.check_ages(65),
        lambda: options.check_ages(16),
        lambda: options.check_tax("se-2023"),
    ):
        with pytest.raises(UsageError):
            refused()
    for from_age in (15, 64, 70):
        with pytest.raises(UsageError, match="starts"):
            options.check_ages(64, from_age)


def test_prices_are_nominal_unless_a_year_is_given() -> None:
    assert options.parse_prices(None) is None
    assert options.parse_prices("nominal") is None
    assert options.parse_prices("2022") == 2022
    for text in ("real", "22", "-202", "2022.0"):
        with pytest.raises(UsageError, match="nominal"):
            options.parse_prices(text)


def test_the_default_bundle_is_the_named_one_else_the_one_here_else_the_one_beside_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAGA_BUNDLE", raising=False)
    assert options.default_bundle().parts[-2:] == ("bundles", "small")
    (tmp_path / "bundles" / "small").mkdir(parents=True)
    assert options.default_bundle() == Path("bundles/small")
    monkeypatch.setenv("SAGA_BUNDLE", "/srv/saga/b")
    assert options.default_bundle() == Path("/srv/saga/b")
