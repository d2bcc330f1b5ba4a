"""Attention is a distribution over past and simulated years; head diversity has known values."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from saga.evaluation.explain.attention import _continued_record, attention_by_lag
from saga.training.head_subspaces import head_diversity, subspace_diversity

from saga.data.panel import Panel
from saga.data.rules import find_ineligible
from saga.errors import InputError
from saga.features.calendar import macro_features
from saga.features.sequences import encode
from saga.forecaster import Forecaster
from saga.macro.history import log_wage_index
from saga.model import backbones
from saga.model.decoder import rotation
from saga.requests import Draws
from saga.simulation.path_numbers import path_orders, path_uniforms

PATHS = 8


@pytest.fixture(scope="module")
def forecaster(tiny_bundle: object) -> Forecaster:
    return Forecaster.load(str(tiny_bundle), threads=1)


@pytest.fixture(scope="module")
def people(forecaster: Forecaster, register_panel: Panel) -> Panel:
    """Eight persons with at least four years of record, young enough for ten years more."""
    last = register_panel.frame.group_by("person_id", maintain_order=True).agg(
        pl.len(), pl.col("year", "birth_year").last()
    )
    eligible = last.filter(
        pl.col("len") >= 4, pl.col("year") == 2022, pl.col("year") - pl.col("birth_year") < 50
    )["person_id"]
    refused = find_ineligible(register_panel)
    return register_panel.only([person for person in eligible if person not in refused][:8])


def tokens(
    forecaster: Forecaster, panel: Panel, person: int, steps: int
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    paths = forecaster.simulate(panel, Draws(PATHS, 3), to_horizon=steps + 1, recalibrate=False)
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    return _continued_record(
        forecaster, sequences, person, paths.earnings[person, :steps].astype(np.float64), 3
    )


def test_each_row_of_attention_is_a_distribution_over_the_past(
    forecaster: Forecaster, people: Panel
) -> None:
    token, age, _ = tokens(forecaster, people, 0, 5)
    with torch.no_grad():
        for weights in forecaster.network.decoder.attention(token, age):
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
            assert (weights >= 0).all()
            assert weights.triu(1).abs().max() == 0


def test_a_mask_that_shows_the_future_is_detected(
    forecaster: Forecaster, people: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, age, _ = tokens(forecaster, people, 0, 5)
    monkeypatch.setattr(
        backbones,
        "causal_mask",
        lambda age, _span: torch.zeros(age.shape[1], age.shape[1]),
    )
    with torch.no_grad():
        assert forecaster.network.decoder.attention(token, age)[0].triu(1).abs().max() > 0


def test_the_weights_are_those_that_the_decoder_applies(
    forecaster: Forecaster, people: Panel
) -> None:
    token, age, _ = tokens(forecaster, people, 1, 3)
    network = forecaster.network
    cos, sin = (r.to(token) for r in rotation(age, network.config.head_size))
    far = age[:, :, None] - age[:, None, :] > network.decoder.span
    mask = torch.full((token.shape[1],) * 2, float("-inf")).triu(1).masked_fill(far, float("-inf"))
    with torch.no_grad():
        x = token
        for block, weights in zip(
            network.stack, network.decoder.attention(token, age), strict=True
        ):
            _, _, v = block.project(x, cos, sin)
            attended = torch.einsum("nhij,njs->nihs", weights, v).flatten(2)
            expected, _, _ = block(x, cos, sin, mask)
            torch.testing.assert_close(block.finish(x, attended), expected, rtol=1e-4, atol=1e-5)
            x = expected


def test_continued_records_are_those_of_the_rollout(forecaster: Forecaster, people: Panel) -> None:
    """After the last token, the head and the rollout's random numbers give its next year."""
    network, steps, compared = forecaster.network, 4, 0
    paths = forecaster.simulate(people, Draws(PATHS, 3), to_horizon=steps + 1, recalibrate=False)
    for person in range(3):
        token, age, years = tokens(forecaster, people, person, steps)
        origin = int(paths.origin_year[person])
        assert forecaster.process is not None
        macro = forecaster.process.draw(3, PATHS, origin, origin + steps + 1)
        features = macro_features(macro, forecaster.process.unemployment(origin))
        wage = (
            forecaster.calendar.wage_index(np.array([origin]))[0]
            + log_wage_index(macro[..., 1])[:, -1]
        )
        with torch.no_grad():
            hidden, _ = network.hidden(token, age)
            distribution = network.head(
                hidden[:, -1],
                torch.tensor([1]),
                torch.from_numpy(features[:, -1].astype(np.float32)),
            )
            name = [str(paths.person_id[person])]
            year = np.array([origin + steps + 1])
            u = path_uniforms(path_orders(PATHS, 3, name), steps, 3, name, year)[0]
            dead, positive, z = network.head.sample(
                distribution, torch.from_numpy(u.astype(np.float32))
            )
        alive = paths.earnings[person, steps] > 0
        expected = np.where((positive & ~dead).numpy(), np.exp(z.numpy() + wage), 0.0)
        np.testing.assert_allclose(paths.earnings[person, steps][alive], expected[alive], rtol=2e-3)
        compared += int(alive.sum())
        assert years[-1] == origin + steps
    assert compared >= PATHS


def test_weights_sum_to_one_and_include_simulated_years(
    forecaster: Forecaster, people: Panel
) -> None:
    table = attention_by_lag(forecaster, people, horizons=(1, 6), n_paths=PATHS)
    sums = table.group_by("horizon", "layer", "head").agg(pl.col("weight").sum())
    np.testing.assert_allclose(sums["weight"], 1.0, atol=1e-5)
    config = forecaster.network.config
    assert sums.height == 2 * config.layers * config.heads
    assert table.filter(horizon=1)["lag"].min() == 0
    assert table.filter(horizon=6)["lag"].min() == -5
    longest = (
        people.frame.group_by("person_id")
        .agg(pl.col("year").max() - pl.col("year").min())["year"]
        .max()
    )
    assert table["lag"].max() == longest


def test_a_person_above_64_at_a_horizon_is_left_out_there(
    forecaster: Forecaster, people: Panel
) -> None:
    older = people.with_frame(people.frame.with_columns(pl.lit(1964, pl.Int32).alias("birth_year")))
    table = attention_by_lag(forecaster, older, horizons=(1, 6, 7), n_paths=2)
    assert table["horizon"].unique().sort().to_list() == [1, 6]
    with pytest.raises(InputError):
        attention_by_lag(
            forecaster,
            people.with_frame(
                people.frame.with_columns(pl.lit(None, pl.Float64).alias("earnings"))
            ),
            horizons=(1,),
        )


def test_diversity_is_0_for_one_subspace_and_1_for_orthogonal_subspaces() -> None:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(24, 4, generator=generator)
    mixed = torch.stack([base @ torch.randn(4, 4, generator=generator) for _ in range(5)])
    assert subspace_diversity(mixed) == pytest.approx(0, abs=1e-9)
    assert subspace_diversity(torch.eye(24).view(24, 6, 4).transpose(0, 1) * 3) == pytest.approx(1)
    # Two lines at an angle: sin².
    assert subspace_diversity(torch.tensor([[[1.0], [0.0]], [[1.0], [1.0]]])) == pytest.approx(0.5)
    random = [
        subspace_diversity(torch.randn(2, 24, 4, generator=generator)) or 0.0 for _ in range(300)
    ]
    assert np.mean(random) == pytest.approx(1 - 4 / 24, abs=4 * np.std(random) / np.sqrt(300))
    assert subspace_diversity(base[None]) is None


def test_diversity_detects_heads_that_are_copies(forecaster: Forecaster) -> None:
    table = head_diversity(forecaster.network)
    config = forecaster.network.config
    assert table.height == 2 * config.layers
    assert table["index"].is_between(0, 1).all()
    copied = Forecaster(forecaster.bundle).network
    with torch.no_grad():
        for block in copied.stack:
            s, d = block.size, block.heads * block.size
            block.qkv.weight[:d] = block.qkv.weight[:s].repeat(block.heads, 1)
            block.out.weight[:] = torch.linalg.qr(block.out.weight).Q
    copies = head_diversity(copied)
    np.testing.assert_allclose(copies.filter(part="queries")["index"], 0.0, atol=1e-9)
    np.testing.assert_allclose(copies.filter(part="outputs")["index"], 1.0, atol=1e-6)


def test_the_model_card_shows_the_diversity_of_the_heads(forecaster: Forecaster) -> None:
    index = head_diversity(forecaster.network).pivot("part", index="layer", values="index")
    for row in index.iter_rows(named=True):
        assert f"{row['queries']:.2f} and {row['outputs']:.2f}" in forecaster.bundle.card
