"""Attention is a distribution over the past, along the rollout's own years; the diversity of heads is 0 and 1 where it must be."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from saga import attention as attention_module
from saga.attention import attention_by_lag, attention_weights, head_diversity, subspace_diversity
from saga.data.panel import Panel
from saga.errors import InputError
from saga.features.calendar import macro_features
from saga.features.sequences import encode
from saga.forecaster import Forecaster
from saga.keyed_random import uniforms
from saga.macro.history import log_wage_index
from saga.model.decoder import rotation
from saga.requests import Draws

PATHS = 8


@pytest.fixture(scope="module")
def forecaster(tiny_bundle: object) -> Forecaster:
    return Forecaster.load(str(tiny_bundle), threads=1)


@pytest.fixture(scope="module")
def some(forecaster: Forecaster, register_panel: Panel) -> Panel:
    """Eight persons with at least four years of record, young enough for ten years more."""
    last = register_panel.frame.group_by("person_id", maintain_order=True).agg(
        pl.len(), pl.col("year", "birth_year").last()
    )
    able = last.filter(
        pl.col("len") >= 4, pl.col("year") == 2022, pl.col("year") - pl.col("birth_year") < 50
    )["person_id"]
    refused = forecaster.obstacles(register_panel)
    return register_panel.only([person for person in able if person not in refused][:8])


def tokens(
    forecaster: Forecaster, panel: Panel, person: int, steps: int
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    drawn = forecaster.simulate(panel, Draws(PATHS, 3), to_horizon=steps + 1, recalibrate=False)
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    return attention_module._continued(
        forecaster, sequences, person, drawn.earnings[person, :steps].astype(np.float64), 3
    )


def test_each_row_of_attention_is_a_distribution_over_the_past(
    forecaster: Forecaster, some: Panel
) -> None:
    token, age, _ = tokens(forecaster, some, 0, 5)
    with torch.no_grad():
        for weights in attention_weights(forecaster.network, token, age):
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
            assert (weights >= 0).all()
            assert weights.triu(1).abs().max() == 0


def test_a_mask_that_shows_the_future_is_seen(
    forecaster: Forecaster, some: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, age, _ = tokens(forecaster, some, 0, 5)
    monkeypatch.setattr(
        attention_module,
        "causal_mask",
        lambda age, span=None: torch.zeros(age.shape[1], age.shape[1]),
    )
    with torch.no_grad():
        assert attention_weights(forecaster.network, token, age)[0].triu(1).abs().max() > 0


def test_the_weights_are_those_that_the_decoder_applies(
    forecaster: Forecaster, some: Panel
) -> None:
    token, age, _ = tokens(forecaster, some, 1, 3)
    net = forecaster.network
    cos, sin = (r.to(token) for r in rotation(age, net.config.head_size))
    far = age[:, :, None] - age[:, None, :] > net.decoder.span
    mask = torch.full((token.shape[1],) * 2, float("-inf")).triu(1).masked_fill(far, float("-inf"))
    with torch.no_grad():
        x = token
        for block, weights in zip(net.stack, attention_weights(net, token, age), strict=True):
            _, _, v = block.project(x, cos, sin)
            attended = torch.einsum("nhij,njs->nihs", weights, v).flatten(2)
            expected, _, _ = block(x, cos, sin, mask)
            torch.testing.assert_close(block.finish(x, attended), expected, rtol=1e-4, atol=1e-5)
            x = expected


def test_attention_is_read_along_the_years_that_the_rollout_drew(
    forecaster: Forecaster, some: Panel
) -> None:
    """The head, asked behind the last of the rebuilt tokens, draws the rollout's next year with the rollout's random numbers."""
    net, steps, compared = forecaster.network, 4, 0
    drawn = forecaster.simulate(some, Draws(PATHS, 3), to_horizon=steps + 1, recalibrate=False)
    for person in range(3):
        token, age, years = tokens(forecaster, some, person, steps)
        origin = int(drawn.origin_year[person])
        assert forecaster.process is not None
        macro = forecaster.process.draw(3, PATHS, origin, origin + steps + 1)
        features = macro_features(macro, forecaster.process.unemployment(origin))
        wage = (
            forecaster.calendar.wage_index(np.array([origin]))[0]
            + log_wage_index(macro[..., 1])[:, -1]
        )
        with torch.no_grad():
            hidden, _ = net.hidden(token, age)
            law = net.head(
                hidden[:, -1],
                torch.tensor([1]),
                torch.from_numpy(features[:, -1].astype(np.float32)),
            )
            u = uniforms(PATHS, "path", 3, str(drawn.person_id[person]), origin + steps + 1)
            dead, positive, z = net.head.sample(law, torch.from_numpy(u.astype(np.float32)))
        alive = drawn.earnings[person, steps] > 0
        expected = np.where((positive & ~dead).numpy(), np.exp(z.numpy() + wage), 0.0)
        np.testing.assert_allclose(drawn.earnings[person, steps][alive], expected[alive], rtol=2e-3)
        compared += int(alive.sum())
        assert years[-1] == origin + steps
    assert compared >= PATHS


def test_the_table_sums_to_one_and_knows_drawn_years(forecaster: Forecaster, some: Panel) -> None:
    table = attention_by_lag(forecaster, some, horizons=(1, 6), paths=PATHS)
    sums = table.group_by("horizon", "layer", "head").agg(pl.col("weight").sum())
    np.testing.assert_allclose(sums["weight"], 1.0, atol=1e-5)
    config = forecaster.network.config
    assert sums.height == 2 * config.layers * config.heads
    assert table.filter(horizon=1)["lag"].min() == 0
    assert table.filter(horizon=6)["lag"].min() == -5
    longest = (
        some.frame.group_by("person_id")
        .agg(pl.col("year").max() - pl.col("year").min())["year"]
        .max()
    )
    assert table["lag"].max() == longest


def test_who_cannot_reach_a_horizon_takes_no_part_in_it(
    forecaster: Forecaster, some: Panel
) -> None:
    older = some.with_frame(some.frame.with_columns(pl.lit(1964, pl.Int32).alias("birth_year")))
    table = attention_by_lag(forecaster, older, horizons=(1, 6, 7), paths=2)
    assert table["horizon"].unique().sort().to_list() == [1, 6]
    with pytest.raises(InputError):
        attention_by_lag(
            forecaster,
            some.with_frame(some.frame.with_columns(pl.lit(None, pl.Float64).alias("earnings"))),
            horizons=(1,),
        )


def test_diversity_is_0_for_one_subspace_1_for_orthogonal_ones_and_known_for_random_ones() -> None:
    draw = torch.Generator().manual_seed(0)
    base = torch.randn(24, 4, generator=draw)
    mixed = torch.stack([base @ torch.randn(4, 4, generator=draw) for _ in range(5)])
    assert subspace_diversity(mixed) == pytest.approx(0, abs=1e-9)
    assert subspace_diversity(torch.eye(24).view(24, 6, 4).transpose(0, 1) * 3) == pytest.approx(1)
    # Two lines at an angle: sin².
    assert subspace_diversity(torch.tensor([[[1.0], [0.0]], [[1.0], [1.0]]])) == pytest.approx(0.5)
    random = [subspace_diversity(torch.randn(2, 24, 4, generator=draw)) or 0.0 for _ in range(300)]
    assert np.mean(random) == pytest.approx(1 - 4 / 24, abs=4 * np.std(random) / np.sqrt(300))
    assert subspace_diversity(base[None]) is None


def test_diversity_of_a_network_sees_heads_that_are_copies(forecaster: Forecaster) -> None:
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
    found = head_diversity(copied)
    np.testing.assert_allclose(found.filter(part="queries")["index"], 0.0, atol=1e-9)
    np.testing.assert_allclose(found.filter(part="outputs")["index"], 1.0, atol=1e-6)


def test_the_model_card_holds_the_diversity_of_the_bundle_s_heads(forecaster: Forecaster) -> None:
    index = head_diversity(forecaster.network).pivot("part", index="layer", values="index")
    for row in index.iter_rows(named=True):
        assert f"{row['queries']:.2f} and {row['outputs']:.2f}" in forecaster.bundle.card
