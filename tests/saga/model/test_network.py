"""The network: causality, gaps and padding for every backbone; every head is a distribution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from saga.evaluation.variants.feedforward import RECORDS
from saga.evaluation.variants.mixture_head import MixtureHead
from saga.evaluation.variants.quantile_head import HEAD_QUANTILES, QuantileHead
from scipy import stats
from torch import Tensor

from saga.errors import UsageError
from saga.features.sequences import N_OTHER, POSITIVE, UNKNOWN, ZERO
from saga.features.transforms import OTHER, Transforms
from saga.model import ModelConfig, Saga
from saga.model.config import BackboneName, HeadName
from saga.model.heads.binned import BinnedDistribution, BinnedHead
from saga.model.heads.head import MIN_TAIL_RATE
from saga.model.network import build_head
from saga.schema import CATEGORICAL

CONFIG = ModelConfig(width=32, layers=2, heads=2, bins=24, head_width=32)


def transforms(
    *, zeros: bool = True, death: bool = True, without: tuple[str, ...] = ()
) -> Transforms:
    codes: dict[str, tuple[str, ...]] = dict.fromkeys(CATEGORICAL, ("a", "b"))
    flat = dict.fromkeys(OTHER, 0.0)
    ones = dict.fromkeys(OTHER, 1.0)
    result = Transforms(
        np.linspace(10, 14, 25), 12.0, 0.6, flat, ones, codes, "SEK", 2022, 24_150.0, zeros, death
    )
    return replace(result, without=without)


@pytest.fixture(scope="module")
def decoder() -> Saga:
    torch.manual_seed(0)
    return Saga(CONFIG, transforms()).eval()


@pytest.fixture(scope="module", params=get_args(BackboneName))
def network(request: pytest.FixtureRequest) -> Saga:
    torch.manual_seed(0)
    return Saga(replace(CONFIG, backbone=request.param), transforms()).eval()


def inputs(n: int, t: int, seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    state = torch.randint(0, 3, (n, t), generator=g)
    years = torch.cumsum(torch.randint(1, 4, (n, t), generator=g), 1)
    return {
        "state": state,
        "z": (12 + 0.6 * torch.randn(n, t, generator=g)) * (state == POSITIVE),
        "other": torch.randn(n, t, N_OTHER, generator=g),
        "codes": torch.randint(0, 3, (n, t, len(CATEGORICAL)), generator=g),
        "age": 20 + years,
        "gap": torch.ones(n, t, dtype=torch.int64),
        "macro": torch.randn(n, t, 4, generator=g),
    }


def change_after(batch: dict[str, Tensor], t: int) -> dict[str, Tensor]:
    n, n_tokens = batch["state"].shape
    other = inputs(n, n_tokens, seed=99)
    return {k: torch.cat([v[:, :t], other[k][:, t:]], 1) for k, v in batch.items()}


def leak(network: Saga) -> float:
    """Largest change of a prediction at tokens 0..4 when everything from token 5 on changes."""
    batch = inputs(3, 10)
    with torch.no_grad():
        a, b = network(**batch).logits, network(**change_after(batch, 5)).logits
    return float((a[:, :5] - b[:, :5]).abs().max())


def test_a_prediction_does_not_depend_on_later_years(network: Saga) -> None:
    assert leak(network) < 1e-6


@pytest.mark.parametrize("layers", [1, 2])
def test_attention_looks_back_no_further_than_the_span(layers: int) -> None:
    """Older years reach a prediction only through later years, so with one layer not at all."""
    torch.manual_seed(0)
    short, long = (
        Saga(replace(CONFIG, layers=layers), replace(transforms(), span=span)).eval()
        for span in (5, 48)
    )
    long.load_state_dict(short.state_dict())
    batch, steps = inputs(3, 10), torch.arange(20, 30)
    batch["age"] = steps.expand(3, -1)
    older = {k: torch.cat([inputs(3, 10, seed=9)[k][:, :4], v[:, 4:]], 1) for k, v in batch.items()}
    older["age"] = batch["age"]
    with torch.no_grad():
        change = {
            network: float(
                (network(**batch).logits[:, 9] - network(**older).logits[:, 9]).abs().max()
            )
            for network in (short, long)
        }
        within_span = [network(**batch).logits[:, :6] for network in (short, long)]
        torch.testing.assert_close(*within_span)
    assert change[long] > 1e-3
    assert (change[short] < 1e-6) == (layers == 1)


def test_padding_and_batch_do_not_change_a_person(network: Saga) -> None:
    batch = inputs(4, 10)
    with torch.no_grad():
        together = network(**batch).logits[2, :6]
        alone = network(**{k: v[2:3, :6] for k, v in batch.items()}).logits[0]
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_positions_are_ages_so_a_gap_changes_a_prediction(network: Saga) -> None:
    batch = inputs(1, 6)
    moved = {**batch, "age": batch["age"] + torch.tensor([0, 0, 0, 2, 2, 2])}
    with torch.no_grad():
        change = network(**batch).logits[:, 5] - network(**moved).logits[:, 5]
    assert change.abs().max() > 1e-4


def test_the_feed_forward_backbone_uses_only_ten_records() -> None:
    torch.manual_seed(0)
    window, lstm = (
        Saga(replace(CONFIG, backbone=name), transforms()).eval()
        for name in ("feedforward", "lstm")
    )
    batch = inputs(2, RECORDS + 3)
    changed = {
        k: torch.cat([inputs(2, RECORDS + 3, seed=7)[k][:, :3], v[:, 3:]], 1)
        for k, v in batch.items()
    }
    with torch.no_grad():
        torch.testing.assert_close(
            window(**batch).logits[:, -1], window(**changed).logits[:, -1], rtol=0, atol=0
        )
        assert (window(**batch).logits[:, -2] - window(**changed).logits[:, -2]).abs().max() > 1e-4
        assert (lstm(**batch).logits[:, -1] - lstm(**changed).logits[:, -1]).abs().max() > 1e-6


def test_only_a_decoder_has_attention(decoder: Saga) -> None:
    assert len(decoder.decoder.stack) == CONFIG.layers
    with pytest.raises(UsageError, match="no attention"):
        _ = Saga(replace(CONFIG, backbone="lstm"), transforms()).decoder


@pytest.mark.parametrize("part", ["calendar", "age", "missingness"])
def test_an_input_that_is_left_out_has_no_effect_and_no_gradient(part: str) -> None:
    torch.manual_seed(0)
    without, complete = (
        Saga(replace(CONFIG, light=8), transforms(without=names)) for names in ((part,), ())
    )
    batch = inputs(3, 6)
    changed = dict(batch)
    if part == "calendar":
        changed["macro"] = inputs(3, 6, seed=5)["macro"]
    elif part == "age":
        changed["age"] = batch["age"] + 9  # the same distances between records
    else:
        batch["other"][:, :, 3] = float("nan")
        changed["other"] = torch.nan_to_num(batch["other"])
    for network, same in ((without, True), (complete, False)):
        with torch.no_grad():
            before, after = network(**batch).logits, network(**changed).logits
        assert torch.allclose(before, after, rtol=1e-4, atol=1e-5) == same
    without(**batch).logits.square().sum().backward()
    masked = {"calendar": without.head.macro.weight, "age": without.tokens.age.weight}.get(part)
    assert masked is None or (masked.grad is None and not masked.any())
    assert (without.parameters_count < complete.parameters_count) == (masked is not None)


@pytest.fixture(scope="module", params=get_args(HeadName))
def head_and_distribution(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A head and one of its distributions, far from the start of training."""
    torch.manual_seed(2)
    head = build_head(replace(CONFIG, head=request.param), transforms())
    for layer in head.outputs():
        torch.nn.init.normal_(layer.weight, std=0.15)
        torch.nn.init.normal_(layer.bias, std=0.5)
    with torch.no_grad():
        distribution = head(torch.randn(1, CONFIG.width), torch.tensor([1]), torch.randn(1, 4))
    return head, distribution._replace(death=torch.tensor([-3.0]))


def repeated(distribution: Any, n: int) -> Any:
    return type(distribution)(*(part.expand(n, *part.shape[1:]) for part in distribution))


def nll(head: Any, distribution: Any, state: int, z: Tensor) -> Tensor:
    dead = torch.zeros(len(z), dtype=torch.bool)
    states = torch.full((len(z),), state)
    earnings: Tensor = head.nll(repeated(distribution, len(z)), states, z, dead)[0]
    return earnings.double()


def test_the_density_integrates_to_one(head_and_distribution: tuple[Any, Any]) -> None:
    z = torch.linspace(-25, 45, 700_001)
    positive = (-nll(*head_and_distribution, POSITIVE, z)).exp()
    zero = (-nll(*head_and_distribution, ZERO, z[:1])).exp()
    total = torch.trapezoid(positive, z.double()) + zero
    assert 0.001 < float(zero) < 0.999
    # The step at each knot costs the trapezium rule about one grid interval.
    assert float(total) == pytest.approx(1, abs=2e-3)


def test_draws_follow_the_density(head_and_distribution: tuple[Any, Any]) -> None:
    head, distribution = head_and_distribution
    n = 40_000
    u = torch.rand(n, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        dead, positive, z = head.sample(repeated(distribution, n), u)
        fine = torch.linspace(-25, 45, 700_001)
        density = (-nll(head, distribution, POSITIVE, fine)).exp()
    hazard = float(torch.sigmoid(distribution.death))
    zero = float((-nll(head, distribution, ZERO, fine[:1])).exp())
    expected = np.array([hazard, (1 - hazard) * zero])
    shares = np.array([float(dead.double().mean()), float((~dead & ~positive).double().mean())])
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected / n)).all()
    cdf = torch.cumulative_trapezoid(density, fine.double()) / (1 - zero)
    uniform = np.interp(z[positive].double().numpy(), fine[1:].numpy(), cdf.numpy())
    assert stats.kstest(uniform, "uniform").pvalue > 1e-4
    wrong = np.interp(z[positive].double().numpy() + 0.1, fine[1:].numpy(), cdf.numpy())
    assert stats.kstest(wrong, "uniform").pvalue < 1e-6


def test_the_cdf_is_the_integral_of_the_density_and_the_inverse_of_draws(
    head_and_distribution: tuple[Any, Any],
) -> None:
    head, distribution = head_and_distribution
    fine = torch.linspace(-25, 45, 700_001)
    density = (-nll(head, distribution, POSITIVE, fine)).exp()
    with torch.no_grad():
        zero, cdf = head.cdf(distribution, fine[None, 1:])
        v = torch.linspace(0.001, 0.999, 999)
        positive, z = head.draw(repeated(distribution, len(v)), v)
        _, at_draws = head.cdf(distribution, z[None])
    assert float(zero) == pytest.approx(
        float((-nll(head, distribution, ZERO, fine[:1])).exp()), rel=1e-4
    )
    integral = float(zero) + torch.cumulative_trapezoid(density, fine.double())
    assert float((cdf[0].double() - integral).abs().max()) < 2e-3
    assert float((at_draws[0] - v)[positive].abs().max()) < 1e-4
    assert bool((v[~positive] <= zero + 1e-6).all())


def test_draws_increase_with_the_uniform_number_and_are_finite_at_its_ends(
    head_and_distribution: tuple[Any, Any],
) -> None:
    head, distribution = head_and_distribution
    u = torch.cat(
        [torch.zeros(1), torch.linspace(1e-4, 1 - 1e-4, 2_000), torch.tensor([1 - 2**-24, 1.0])]
    )
    with torch.no_grad():
        dead, positive, z = head.sample(repeated(distribution, len(u)), u)
    order = torch.where(dead, -2e9, torch.where(positive, z, -1e9))
    assert (order.diff() >= -1e-5).all()
    assert torch.isfinite(z[positive]).all()
    assert float(torch.exp(z[positive]).max()) < 1e12


def test_an_upper_tail_has_a_mean(decoder: Saga) -> None:
    batch = inputs(5, 8)
    with torch.no_grad():
        assert float(decoder(**batch).upper.min()) >= MIN_TAIL_RATE
    head = build_head(replace(CONFIG, head="quantiles"), transforms())
    wide = head(torch.zeros(1, CONFIG.width), torch.tensor([1]), torch.zeros(1, 4))
    wide = wide._replace(knots=torch.tensor([[1.0, 2, 3, 4, 5, 6, 12]]))
    z = torch.tensor([13.0, 14.0])
    rate = float(nll(head, wide, POSITIVE, z).diff().detach())
    assert rate == pytest.approx(MIN_TAIL_RATE, rel=1e-5)


@pytest.mark.parametrize("name", get_args(HeadName))
def test_zeros_and_deaths_absent_from_training_are_not_forecast(name: HeadName) -> None:
    network = Saga(replace(CONFIG, head=name), transforms(zeros=False, death=False)).eval()
    with torch.no_grad():
        distribution = network(**inputs(2, 5))
    dead, positive, _ = network.head.sample(distribution, torch.full((2, 5), 1e-7))
    assert not dead.any()
    assert positive.all()


@pytest.mark.parametrize("name", get_args(HeadName))
def test_training_starts_near_the_marginal_and_scores_only_observed_outcomes(
    name: HeadName,
) -> None:
    torch.manual_seed(0)
    network = Saga(replace(CONFIG, head=name), transforms())
    batch = inputs(20, 6)
    distribution = network(**batch)
    dead = torch.zeros(20, 6, dtype=torch.bool)
    unknown = network.head.loss(
        distribution, torch.full((20, 6), UNKNOWN), torch.zeros(20, 6), dead
    )
    assert not any(part.any() for part in unknown)
    with torch.no_grad():
        u = torch.rand(20, 6, generator=torch.Generator().manual_seed(1))
        _, positive, z = network.head.sample(distribution, u)
    assert 10 < float(z[positive].median()) < 14
    states = torch.full((20, 6), POSITIVE)
    earnings, _ = network.head.loss(distribution, states, batch["z"] + 12.0, dead)
    earnings.mean().backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in network.head.parameters() if p.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_quantiles_do_not_cross_and_the_pinball_loss_is_least_at_those_of_the_outcomes() -> None:
    torch.manual_seed(0)
    head = build_head(replace(CONFIG, head="quantiles"), transforms())
    assert isinstance(head, QuantileHead)
    z = 11.5 + 0.8 * torch.randn(1_000)
    with torch.no_grad():
        start = head(torch.zeros(1, CONFIG.width), torch.tensor([1]), torch.zeros(1, 4))
    assert (start.knots.diff() > 0).all()
    true = torch.quantile(z, torch.tensor(HEAD_QUANTILES))

    def loss(knots: Tensor) -> float:
        distribution = repeated(start._replace(knots=knots[None]), len(z))
        dead = torch.zeros(len(z), dtype=torch.bool)
        earnings, _ = head.loss(distribution, torch.full((len(z),), POSITIVE), z, dead)
        return float(earnings.double().mean())

    for move in (0.05, -0.05):
        assert all(loss(true + move * unit) > loss(true) for unit in torch.eye(len(true)))


def test_the_mixture_of_one_normal_is_that_normal() -> None:
    head = build_head(replace(CONFIG, head="mixture"), transforms())
    assert isinstance(head, MixtureHead)
    with torch.no_grad():
        mixture = head(torch.zeros(1, CONFIG.width), torch.tensor([1]), torch.zeros(1, 4))
    mixture = mixture._replace(
        zero=torch.tensor([-40.0]), weight_logits=torch.tensor([[0.0, *[-50.0] * 4]])
    )
    u = torch.linspace(0.001, 0.999, 999)
    _, _, z = head.sample(repeated(mixture._replace(death=torch.tensor([-100.0])), 999), u)
    mean, deviation = float(mixture.mean[0, 0]), float(mixture.deviation[0, 0])
    expected = stats.norm.ppf(u.numpy(), mean, deviation)
    np.testing.assert_allclose(z.numpy(), expected, atol=2e-4)


@pytest.mark.parametrize("peak", [-4.0, 0.0, 2.0])
def test_the_upper_tail_is_a_logistic_truncated_at_the_last_knot(
    decoder: Saga, peak: float
) -> None:
    assert isinstance(decoder.head, BinnedHead)
    last, rate = float(decoder.head.knots[-1]), 5.0
    logits = torch.full((1, len(decoder.head.knots) + 2), -50.0)
    logits[0, -1] = 50.0
    parameters = [torch.tensor([value]) for value in (2.0, rate, peak, -100.0)]
    distribution = BinnedDistribution(logits, *parameters)
    u = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    _, positive, z = decoder.head.sample(repeated(distribution, len(u)), u.float())
    logistic = stats.logistic(loc=last + peak, scale=1 / rate)
    expected = logistic.isf((1 - u.numpy()) * logistic.sf(last))
    np.testing.assert_allclose(z.numpy(), expected, atol=2e-4)
    densities = nll(decoder.head, distribution, POSITIVE, z).neg().exp().numpy()
    np.testing.assert_allclose(densities, logistic.pdf(z.numpy()) / logistic.sf(last), rtol=2e-3)
    assert positive.all()


def test_outputs_are_linear_in_macro_covariates(network: Saga) -> None:
    """With a history of about thirty years, a nonlinear network could memorise each year."""
    batch = inputs(3, 6)
    first, second = (inputs(3, 6, seed=seed)["macro"] for seed in (5, 6))
    with torch.no_grad():
        base, *logits = (
            network(**{**batch, "macro": macro}).logits
            for macro in (torch.zeros_like(first), first, second, first + second)
        )
    effects = [change - base for change in logits]
    torch.testing.assert_close(effects[2], effects[0] + effects[1], atol=2e-4, rtol=1e-3)
    assert effects[0].abs().max() > 1e-2
