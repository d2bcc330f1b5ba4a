"""Integrated gradients: complete, zero for unknown entries, right for a linear forecast."""

from __future__ import annotations

import json
import logging
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from saga.evaluation.explain import attribution as module
from saga.evaluation.explain.attribution import (
    FIGURES,
    Explanation,
    attribute_forecast,
    features,
    scaled_parts,
)
from saga.evaluation.explain.changed_records import forecast_changes
from saga.evaluation.explain.explanation_page import SUFFIXES, PersonExplanation, write_explanation

from saga.data.panel import Panel
from saga.errors import InputError, UsageError
from saga.features.sequences import Tokens, encode, pad
from saga.forecast_checks import find_ineligible
from saga.forecaster import Forecaster
from saga.model import Saga
from saga.model.members import Member
from saga.pages.layout import check_page
from tests.command_line import done, refusal


@pytest.fixture(scope="module")
def small_panel(forecaster: Forecaster, register_panel: Panel) -> Panel:
    """Six persons with 5 to 15 years of record."""
    lengths = register_panel.frame.group_by("person_id", maintain_order=True).len()
    refused = find_ineligible(register_panel)
    able = [
        p for p in lengths.filter(pl.col("len").is_between(5, 15))["person_id"] if p not in refused
    ]
    return register_panel.only(able[:6])


# Differences of logs are of order 1, of probabilities 0.1; 50 nodes leave a few thousandths.
@pytest.mark.parametrize(("figure", "tolerance"), [("mean", 0.005), ("p_zero", 0.002)])
def test_attributions_are_complete(
    forecaster: Forecaster, small_panel: Panel, figure: module.Figure, tolerance: float
) -> None:
    for person in small_panel.persons():
        explanation = attribute_forecast(forecaster, small_panel, person, figure=figure, gap=2)
        assert abs(explanation.residual) < tolerance
        assert explanation.year == explanation.origin + 2
        assert explanation.table.height == small_panel.only([person]).frame.height * len(
            features(forecaster.transforms)
        )
        if figure == "p_zero":
            assert 0 <= explanation.value <= 1


def test_the_explanation_of_members_is_the_average_of_theirs(
    forecaster: Forecaster, small_panel: Panel
) -> None:
    person, (member,) = small_panel.persons()[0], forecaster.model.members
    other = member._replace(network=deepcopy(member.network))
    with torch.no_grad():
        other.network.skip.weight.mul_(0.5)

    def explained(*members: Member) -> Explanation:
        changed = copy(forecaster)
        changed.model = replace(forecaster.model, members=members)
        return attribute_forecast(changed, small_panel, person)

    one, two, both = explained(member), explained(other), explained(member, other)
    assert abs(one.value - two.value) > 0.001
    assert both.value == pytest.approx((one.value + two.value) / 2)
    assert both.baseline == pytest.approx((one.baseline + two.baseline) / 2)
    of_each = (one.table["attribution"] + two.table["attribution"]) / 2
    np.testing.assert_allclose(both.table["attribution"], of_each)


def test_a_lost_feature_is_incomplete(
    forecaster: Forecaster, small_panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The explained value must be the model's own: without earnings it is not."""
    person = small_panel.persons()[0]
    whole = attribute_forecast(forecaster, small_panel, person)

    def without_earnings(network: Saga, record: Tokens) -> tuple[torch.Tensor, torch.Tensor]:
        start, parts = scaled_parts(network, record)
        parts[:, :, 0] = 0
        return start, parts

    monkeypatch.setattr(module, "scaled_parts", without_earnings)
    assert attribute_forecast(forecaster, small_panel, person).value != pytest.approx(
        whole.value, abs=1e-3
    )


def test_the_explained_value_is_the_forecast_of_the_network(
    forecaster: Forecaster, small_panel: Panel
) -> None:
    """p_zero and the mean of logs against draws from the head with the same inputs."""
    person = small_panel.persons()[1]
    record = pad(
        encode(small_panel.only([person]), forecaster.transforms, forecaster.calendar),
        np.array([0]),
    )
    network = forecaster.network
    covariates, wage = module.expected_macro(forecaster, int(record.year[0, -1]), 1)
    arrays = (record.state.astype(np.int64), record.z, record.other, record.codes, record.age)
    with torch.no_grad():
        hidden, _ = network.hidden(
            network.tokens(*map(torch.from_numpy, arrays)), torch.from_numpy(record.age)
        )
        distribution = network.head(hidden[:, -1], torch.tensor([1]), covariates.float())
        distribution = type(distribution)(
            *(part.expand(20_000, *part.shape[1:]) for part in distribution)
        )
        _, positive, z = network.head.sample(distribution, (torch.arange(20_000) + 0.5) / 20_000)
    assert attribute_forecast(
        forecaster, small_panel, person, figure="p_zero"
    ).value == pytest.approx(1 - positive.float().mean().item(), abs=1e-3)
    assert attribute_forecast(forecaster, small_panel, person).value == pytest.approx(
        z[positive].mean().item() + wage, abs=5e-3
    )


def test_attributions_of_a_linear_forecast_are_its_terms(
    forecaster: Forecaster, small_panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the identity as network, an attribution is the entry's part of the last token."""
    person = small_panel.persons()[2]

    class Linear(torch.nn.Module):
        def forward(
            self, hidden: torch.Tensor, _gap: torch.Tensor, _macro: torch.Tensor
        ) -> torch.Tensor:
            return hidden.sum(-1)

    linear = Forecaster(forecaster.bundle)
    monkeypatch.setattr(Saga, "hidden", lambda _self, token, _age: (token, []))
    monkeypatch.setattr(linear.network, "head", Linear())
    monkeypatch.setattr(module, "figure_of", lambda values, *_: values)
    explanation = attribute_forecast(linear, small_panel, person)
    record = pad(
        encode(small_panel.only([person]), forecaster.transforms, forecaster.calendar),
        np.array([0]),
    )
    with torch.no_grad():
        _, parts = scaled_parts(linear.network, record)
    np.testing.assert_allclose(
        explanation.table["attribution"]
        .to_numpy()
        .reshape(-1, len(features(forecaster.transforms)))[-1],
        parts[0, -1].sum(-1).numpy(),
        atol=1e-4,
    )
    assert (
        explanation.table.filter(pl.col("year") < explanation.origin)["attribution"].abs().max()
        == 0
    )


def test_unknown_entries_have_no_attribution(forecaster: Forecaster, small_panel: Panel) -> None:
    person = small_panel.persons()[0]
    hidden = small_panel.with_frame(
        small_panel.frame.with_columns(
            pl.lit(None, small_panel.frame["occupation"].dtype).alias("occupation")
        )
    )
    explanation = attribute_forecast(forecaster, hidden, person)
    by_feature = dict(
        explanation.table.group_by("feature").agg(pl.col("attribution").abs().sum()).iter_rows()
    )
    assert by_feature["occupation"] == 0
    assert by_feature["earnings"] > 0


def test_wrong_arguments_are_refused(forecaster: Forecaster, small_panel: Panel) -> None:
    person = small_panel.persons()[0]
    with pytest.raises(UsageError, match="1 to 5"):
        attribute_forecast(forecaster, small_panel, person, gap=6)
    with pytest.raises(UsageError, match="no figure"):
        attribute_forecast(forecaster, small_panel, person, figure="mode")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"no such person.*person nobody"):
        attribute_forecast(forecaster, small_panel, "nobody")
    for name in ("x.pdf", "x"):
        with pytest.raises(UsageError, match="must end"):
            check_page(Path(name), "explanation", SUFFIXES)


def test_files_contain_the_explanation_and_the_log_does_not(
    forecaster: Forecaster, small_panel: Panel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    person = small_panel.persons()[0]
    with caplog.at_level(logging.DEBUG):
        explanation = attribute_forecast(forecaster, small_panel, person)
        for suffix in ("html", "json"):
            whole = PersonExplanation(
                explanation,
                forecaster.forecast(small_panel.only([person])).plot(),
                forecast_changes(forecaster, small_panel.only([person]), 1),
                {"bundle": forecaster.bundle.digest},
            )
            write_explanation(whole, check_page(tmp_path / f"e.{suffix}", "explanation", SUFFIXES))
    assert person not in caplog.text
    stored = json.loads((tmp_path / "e.json").read_text())
    assert sum(row["attribution"] for row in stored["attributions"]) == pytest.approx(
        stored["value"] - stored["baseline"], abs=0.01
    )
    assert stored["sentences"][0].startswith("In ")
    html = (tmp_path / "e.html").read_text()
    assert "<svg" in html
    assert "earnings" in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert "https://" not in html


def test_the_command_writes_a_page_and_prints_nothing_about_the_person(
    tiny_bundle: Path, small_panel: Panel, tmp_path: Path
) -> None:
    person, source = small_panel.persons()[0], tmp_path / "people.parquet"
    small_panel.frame.write_parquet(source)
    line = f"explain {source} --prices 2022 --bundle {tiny_bundle} --out {tmp_path}/e.html --person"
    assert person not in done(line, [person], "--figure p_zero --years-ahead 3").output
    assert FIGURES["p_zero"] in (tmp_path / "e.html").read_text()
    refusal(line, "nobody")
