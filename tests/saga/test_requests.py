"""Every option is stored in one canonical form, or refused with the values that are allowed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga.bundle import default_bundle
from saga.cli.options import read_fractions, read_prices, read_whole_numbers
from saga.errors import UsageError
from saga.requests import Draws, ForecastRequest, LifetimeRequest, PathsRequest, PopulationRequest


def horizons_of(text: str) -> object:
    return ForecastRequest(horizons=read_whole_numbers(text)).horizons


def coverage_of(text: str) -> object:
    coverage = read_fractions(text)
    assert (
        ForecastRequest(coverage=coverage).coverage == LifetimeRequest(coverage=coverage).coverage
    )
    return ForecastRequest(coverage=coverage).coverage


def quantiles_of(text: str) -> object:
    quantiles = read_fractions(text)
    assert (
        ForecastRequest(quantiles=quantiles).quantiles
        == LifetimeRequest(quantiles=quantiles).quantiles
    )
    return ForecastRequest(quantiles=quantiles).quantiles


@pytest.mark.parametrize(
    ("read", "text", "values"),
    [
        (horizons_of, "1-30", tuple(range(1, 31))),
        (horizons_of, "1,5,10", (1, 5, 10)),
        (horizons_of, "10, 5,1,5", (1, 5, 10)),
        (horizons_of, "1-3,20", (1, 2, 3, 20)),
        (horizons_of, "30", (30,)),
        (coverage_of, ".9,.5, 0.90", (0.5, 0.9)),
        (quantiles_of, ".5,.05", (0.05, 0.5)),
        (quantiles_of, "5,50, 95", (0.05, 0.5, 0.95)),
        (quantiles_of, "1-99", tuple(percent / 100 for percent in range(1, 100))),
    ],
)
def test_lists_are_read_sorted_without_doubles_and_may_be_ranges(
    read: Callable[[str], object], text: str, values: tuple[float, ...]
) -> None:
    assert read(text) == values


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (horizons_of, "0/31/0-5/1-31/5-1//a/1,,2/-3/1.5/1-/1-99999999999"),
        (coverage_of, "1/1.0/0/0.0/-.5/nan/inf//ninety/.5,1.0/90"),
        (quantiles_of, "0-99/1-100/0/1/0,50/5,100/.5,50/-.1/x"),
    ],
)
def test_what_is_no_horizon_and_no_share_is_refused(
    read: Callable[[str], object], texts: str
) -> None:
    for text in texts.split("/"):
        with pytest.raises((UsageError, ValueError)):
            read(text)


@given(st.sets(st.integers(1, 30), min_size=1))
def test_any_set_of_horizons_survives_being_written_as_text(horizons: set[int]) -> None:
    assert horizons_of(",".join(map(str, horizons))) == tuple(sorted(horizons))


def test_equal_requests_are_one_value() -> None:
    request = ForecastRequest(horizons=[5, 1, 5], coverage=[0.9, 0.5], quantiles=[0.5])
    assert request == ForecastRequest((1, 5), (0.5, 0.9), (0.5,))
    assert hash(request) == hash(ForecastRequest((1, 5), (0.5, 0.9), (0.5,)))
    assert request.n_years == 5
    assert ForecastRequest((1, 5), bands=7).n_years == 7


def test_prices_are_nominal_unless_a_year_is_given() -> None:
    assert read_prices("nominal") is None
    assert read_prices("2022") == 2022
    for text in ("real", "22", "-202", "2022.0"):
        with pytest.raises(ValueError, match="nominal"):
            read_prices(text)


def test_the_default_bundle_is_the_named_one_or_that_of_the_folder_or_that_beside_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAGA_BUNDLE", raising=False)
    assert default_bundle().parts[-2:] == ("bundles", "small")
    (tmp_path / "bundles" / "small").mkdir(parents=True)
    assert default_bundle() == Path("bundles/small")
    monkeypatch.setenv("SAGA_BUNDLE", "/srv/saga/b")
    assert default_bundle() == Path("/srv/saga/b")


@pytest.mark.parametrize(
    ("kind", "entry", "value"),
    [
        (ForecastRequest, "horizons", 5),
        (ForecastRequest, "horizons", "1-5"),
        (ForecastRequest, "horizons", (1.5,)),
        (ForecastRequest, "coverage", 0.9),
        (ForecastRequest, "coverage", ("x",)),
        (ForecastRequest, "quantiles", (None,)),
        (ForecastRequest, "bands", 2.5),
        (LifetimeRequest, "rate", "2%"),
        (LifetimeRequest, "tax", 2026),
        (LifetimeRequest, "to_age", "64"),
        (LifetimeRequest, "from_age", "20"),
        (Draws, "n_paths", "many"),
        (Draws, "seed", "x"),
        (Draws, "seed", True),
        (LifetimeRequest, "rate", False),
        (ForecastRequest, "horizons", (True,)),
        (ForecastRequest, "unrounded", "no"),
        (ForecastRequest, "limits", "false"),
        (PathsRequest, "wages", 1),
        # Numbers outside their range.
        (Draws, "n_paths", 1),
        (Draws, "n_paths", 10_001),
        (Draws, "seed", -1),
        (Draws, "seed", 2**63),
        (LifetimeRequest, "rate", 1.0),
        (LifetimeRequest, "rate", float("nan")),
        (LifetimeRequest, "to_age", 65),
        (LifetimeRequest, "to_age", 16),
        (LifetimeRequest, "tax", "us-2023"),
        (PathsRequest, "to_age", 65),
        (PathsRequest, "to_age", 16),
        (ForecastRequest, "bands", 0),
        (ForecastRequest, "bands", 31),
        # A lifetime starts before it ends, which is at age 64.
        (LifetimeRequest, "from_age", 15),
        (LifetimeRequest, "from_age", 64),
        (LifetimeRequest, "from_age", 70),
    ],
)
def test_a_value_of_another_type_or_out_of_its_range_is_refused(
    kind: Callable[..., object], entry: str, value: object
) -> None:
    with pytest.raises(UsageError):
        kind(**{entry: value})


@pytest.mark.parametrize(
    ("entry", "value", "example"),
    [("by", "sex", "['sex']"), ("compare", "male/female", "['male/female']"), ("by", [1], "[")],
)
def test_a_list_of_texts_is_shown_by_an_example(entry: str, value: object, example: str) -> None:
    with pytest.raises(UsageError) as caught:
        PopulationRequest(**{entry: value})  # type: ignore[arg-type]
    assert f"{entry} is a list of texts, such as {example}" in str(caught.value)


def test_help_shows_what_options_mean_and_no_machinery() -> None:
    signature = str(inspect.signature(ForecastRequest))
    assert "int | None, Also bands for all of the next K years together.]" in signature
    assert "hint=" not in signature
