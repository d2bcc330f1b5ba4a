"""The network: causality, gaps, padding, whatever mixes the years; every head is a probability distribution and draws from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from saga.errors import UsageError
from saga.features.sequences import N_OTHER, POSITIVE, UNKNOWN, ZERO
from saga.features.transforms import OTHER, Transforms
from saga.model import ModelConfig, Saga, backbones
from saga.model.config import BackboneName, HeadName
from saga.model.heads.binned import Binned, Bins
from saga.model.heads.head import MIN_TAIL
from saga.model.network import build_head
from saga.model.variants.feedforward import RECORDS
from saga.model.variants.mixture_head import Mixture
from saga.model.variants.quantile_head import LEVELS, Quantiles
from saga.schema import CATEGORICAL

CONFIG = ModelConfig(width=32, layers=2, heads=2, bins=24, head_width=32)


def transforms(
    *, zeros: bool = True, death: bool = True, without: tuple[str, ...] = ()
) -> Transforms:
    codes = dict.fromkeys(CATEGORICAL, ("a", "b"))
    flat = dict.fromkeys(OTHER, 0.0)
    ones = dict.fromkeys(OTHER, 1.0)
    made = Transforms(
        np.linspace(10, 14, 25), 12.0, 0.6, flat, ones, codes, "SEK", 2022, 24_150.0, zeros, death
    )
    return replace(made, without=without)


@pytest.fixture(scope="module")
def decoder() -> Saga:
    torch.manual_seed(0)
    return Saga(CONFIG, transforms()).eval()


@pytest.fixture(scope="module", params=get_args(BackboneName))
def net(request: pytest.FixtureRequest) -> Saga:
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
    other = inputs(*batch["state"].shape, seed=99)
    return {k: torch.cat([v[:, :t], other[k][:, t:]], 1) for k, v in batch.items()}


def leak(net: Saga) -> float:
    """Largest change of a prediction at tokens 0..4 when everything from token 5 on changes."""
    batch = inputs(3, 10)
    with torch.no_grad():
        a, b = net(**batch).logits, net(**change_after(batch, 5)).logits
    return float((a[:, :5] - b[:, :5]).abs().max())


def test_a_prediction_does_not_see_later_years(net: Saga) -> None:
    assert leak(net) < 1e-6


def test_a_broken_mask_is_caught(decoder: Saga, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        backbones, "causal_mask", lambda age, span=None: torch.zeros(age.shape[1], age.shape[1])
    )
    assert leak(decoder) > 1e-3


@pytest.mark.parametrize("layers", [1, 2])
def test_attention_looks_back_no_further_than_the_span(layers: int) -> None:
    """What is older reaches a prediction only through the years between, so with one layer not at all."""
    torch.manual_seed(0)
    short, far = (
        Saga(replace(CONFIG, layers=layers), replace(transforms(), span=span)).eval()
        for span in (5, 48)
    )
    far.load_state_dict(short.state_dict())
    batch, steps = inputs(3, 10), torch.arange(20, 30)
    batch["age"] = steps.expand(3, -1)
    older = {k: torch.cat([inputs(3, 10, seed=9)[k][:, :4], v[:, 4:]], 1) for k, v in batch.items()}
    older["age"] = batch["age"]
    with torch.no_grad():
        seen = {
            net: float((net(**batch).logits[:, 9] - net(**older).logits[:, 9]).abs().max())
            for net in (short, far)
        }
        torch.testing.assert_close(
            short(**batch).logits[:, :6], far(**batch).logits[:, :6]
        )  # as long as nothing is older
    assert seen[far] > 1e-3
    assert (seen[short] < 1e-6) == (layers == 1)


def test_padding_and_batch_do_not_change_a_person(net: Saga) -> None:
    batch = inputs(4, 10)
    with torch.no_grad():
        together = net(**batch).logits[2, :6]
        alone = net(**{k: v[2:3, :6] for k, v in batch.items()}).logits[0]
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_positions_are_ages_so_a_gap_matters(net: Saga) -> None:
    batch = inputs(1, 6)
    moved = {**batch, "age": batch["age"] + torch.tensor([0, 0, 0, 2, 2, 2])}
    with torch.no_grad():
        assert (net(**batch).logits[:, 5] - net(**moved).logits[:, 5]).abs().max() > 1e-4


def test_the_window_forgets_what_is_older_than_ten_records() -> None:
    torch.manual_seed(0)
    window, lstm = (
        Saga(replace(CONFIG, backbone=name), transforms()).eval()
        for name in ("feedforward", "lstm")
    )
    batch = inputs(2, RECORDS + 3)
    old = {
        k: torch.cat([inputs(2, RECORDS + 3, seed=7)[k][:, :3], v[:, 3:]], 1)
        for k, v in batch.items()
    }
    with torch.no_grad():
        torch.testing.assert_close(
            window(**batch).logits[:, -1], window(**old).logits[:, -1], rtol=0, atol=0
        )
        assert (window(**batch).logits[:, -2] - window(**old).logits[:, -2]).abs().max() > 1e-4
        assert (lstm(**batch).logits[:, -1] - lstm(**old).logits[:, -1]).abs().max() > 1e-6


def test_only_a_decoder_has_attention_and_a_light_rollout(decoder: Saga) -> None:
    assert len(decoder.stack) == CONFIG.layers
    with pytest.raises(UsageError, match="no attention"):
        _ = Saga(replace(CONFIG, backbone="lstm"), transforms()).stack
    with pytest.raises(UsageError, match="light"):
        ModelConfig(backbone="lstm", light=8)
    with pytest.raises(UsageError, match="'binned', 'mixture' or 'quantiles'"):
        ModelConfig(head="point")


@pytest.mark.parametrize("part", ["calendar", "age", "missingness"])
def test_a_part_that_is_left_out_changes_nothing_and_learns_nothing(part: str) -> None:
    torch.manual_seed(0)
    blind, seeing = (Saga(replace(CONFIG, light=8), transforms(without=w)) for w in ((part,), ()))
    batch = inputs(3, 6)
    changed = dict(batch)
    if part == "calendar":
        changed["macro"] = inputs(3, 6, seed=5)["macro"]
    elif part == "age":
        changed["age"] = batch["age"] + 9  # the same distances between records
    else:
        batch["other"][:, :, 3] = float("nan")
        changed["other"] = torch.nan_to_num(batch["other"])
    for net, same in ((blind, True), (seeing, False)):
        with torch.no_grad():
            close = torch.allclose(net(**batch).logits, net(**changed).logits, rtol=1e-4, atol=1e-5)
        assert close == same
    blind(**batch).logits.square().sum().backward()
    masked = {"calendar": blind.head.macro.weight, "age": blind.tokens.age.weight}.get(part)
    assert masked is None or (masked.grad is None and not masked.any())
    assert (blind.parameters_count < seeing.parameters_count) == (masked is not None)


@pytest.fixture(scope="module", params=get_args(HeadName))
def one(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A head and one law of it, far from where training starts."""
    torch.manual_seed(2)
    made = build_head(replace(CONFIG, head=request.param), transforms())
    for layer in made.outputs():
        torch.nn.init.normal_(layer.weight, std=0.15)
        torch.nn.init.normal_(layer.bias, std=0.5)
    with torch.no_grad():
        law = made(torch.randn(1, CONFIG.width), torch.tensor([1]), torch.randn(1, 4))
    return made, law._replace(death=torch.tensor([-3.0]))


def repeated(law: Any, n: int) -> Any:
    return type(law)(*(part.expand(n, *part.shape[1:]) for part in law))


def nll(made: Any, law: Any, state: int, z: Tensor) -> Tensor:
    alive = torch.zeros(len(z), dtype=torch.bool)
    out: Tensor = made.nll(repeated(law, len(z)), torch.full((len(z),), state), z, alive)[
        0
    ].double()
    return out


def test_the_density_integrates_to_one(one: tuple[Any, Any]) -> None:
    z = torch.linspace(-25, 45, 700_001)
    positive, zero = (-nll(*one, POSITIVE, z)).exp(), (-nll(*one, ZERO, z[:1])).exp()
    total = torch.trapezoid(positive, z.double()) + zero
    assert 0.001 < float(zero) < 0.999
    assert float(total) == pytest.approx(
        1, abs=2e-3
    )  # the step at each knot costs the trapezium rule about one grid cell


def test_draws_follow_the_density(one: tuple[Any, Any]) -> None:
    made, law = one
    n = 40_000
    u = torch.rand(n, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        dead, positive, z = made.sample(repeated(law, n), u)
        fine = torch.linspace(-25, 45, 700_001)
        density = (-nll(made, law, POSITIVE, fine)).exp()
    hazard, zero = float(torch.sigmoid(law.death)), float((-nll(made, law, ZERO, fine[:1])).exp())
    expected = np.array([hazard, (1 - hazard) * zero])
    found = np.array([float(dead.double().mean()), float((~dead & ~positive).double().mean())])
    assert (np.abs(found - expected) < 5 * np.sqrt(expected / n)).all()
    cdf = torch.cumulative_trapezoid(density, fine.double()) / (1 - zero)
    uniform = np.interp(z[positive].double().numpy(), fine[1:].numpy(), cdf.numpy())
    assert stats.kstest(uniform, "uniform").pvalue > 1e-4
    wrong = np.interp(z[positive].double().numpy() + 0.1, fine[1:].numpy(), cdf.numpy())
    assert stats.kstest(wrong, "uniform").pvalue < 1e-6


def test_draws_rise_with_the_uniform_number_and_stay_finite_at_its_ends(
    one: tuple[Any, Any],
) -> None:
    made, law = one
    u = torch.cat(
        [torch.zeros(1), torch.linspace(1e-4, 1 - 1e-4, 2_000), torch.tensor([1 - 2**-24, 1.0])]
    )
    with torch.no_grad():
        dead, positive, z = made.sample(repeated(law, len(u)), u)
    order = torch.where(dead, -2e9, torch.where(positive, z, -1e9))
    assert (order.diff() >= -1e-5).all()
    assert torch.isfinite(z[positive]).all()
    assert float(torch.exp(z[positive]).max()) < 1e12


def test_an_upper_tail_has_a_mean(decoder: Saga) -> None:
    batch = inputs(5, 8)
    with torch.no_grad():
        assert float(decoder(**batch).upper.min()) >= MIN_TAIL
    made = build_head(replace(CONFIG, head="quantiles"), transforms())
    wide = made(torch.zeros(1, CONFIG.width), torch.tensor([1]), torch.zeros(1, 4))
    wide = wide._replace(knots=torch.tensor([[1.0, 2, 3, 4, 5, 6, 12]]))
    z = torch.tensor([13.0, 14.0])
    assert float(nll(made, wide, POSITIVE, z).diff().detach()) == pytest.approx(MIN_TAIL, rel=1e-5)


@pytest.mark.parametrize("name", get_args(HeadName))
def test_without_zeros_and_deaths_in_training_neither_is_forecast(name: str) -> None:
    net = Saga(replace(CONFIG, head=name), transforms(zeros=False, death=False)).eval()
    with torch.no_grad():
        p = net(**inputs(2, 5))
    dead, positive, _ = net.head.sample(p, torch.full((2, 5), 1e-7))
    assert not dead.any()
    assert positive.all()


@pytest.mark.parametrize("name", get_args(HeadName))
def test_training_starts_near_the_marginal_distribution_and_scores_the_known_alone(
    name: str,
) -> None:
    torch.manual_seed(0)
    net = Saga(replace(CONFIG, head=name), transforms())
    batch = inputs(20, 6)
    law = net(**batch)
    nobody = torch.zeros(20, 6, dtype=torch.bool)
    unknown = net.head.loss(law, torch.full((20, 6), UNKNOWN), torch.zeros(20, 6), nobody)
    assert not any(part.any() for part in unknown)
    with torch.no_grad():
        _, positive, z = net.head.sample(
            law, torch.rand(20, 6, generator=torch.Generator().manual_seed(1))
        )
    assert 10 < float(z[positive].median()) < 14
    net.head.loss(law, torch.full((20, 6), POSITIVE), batch["z"] + 12.0, nobody)[
        0
    ].mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.head.parameters() if p.grad is not None)


def test_quantiles_do_not_cross_and_the_pinball_loss_finds_those_of_the_data() -> None:
    """A thousand outcomes of one law: gradient descent on the loss must end at their sample quantiles."""
    torch.manual_seed(0)
    made = build_head(replace(CONFIG, head="quantiles"), transforms())
    assert isinstance(made, Quantiles)
    z = 11.5 + 0.8 * torch.randn(1_000)
    free = torch.nn.Parameter(torch.zeros(1, 7))
    adam = torch.optim.Adam([free], lr=0.02)

    def law() -> Any:
        height = torch.nn.functional.pad(
            (made.step * torch.nn.functional.softplus(free[:, 1:])).cumsum(-1), (1, 0)
        )
        knots = 12.0 + 0.6 * free[:, :1] + height - height[:, 3:4]
        return type(start)(
            start.zero.expand(1000), knots.expand(1000, -1), start.death.expand(1000)
        )

    with torch.no_grad():
        start = made(torch.zeros(1, CONFIG.width), torch.tensor([1]), torch.zeros(1, 4))
    for _ in range(400):
        adam.zero_grad()
        made.loss(law(), torch.full((1_000,), POSITIVE), z, torch.zeros(1_000, dtype=torch.bool))[
            0
        ].mean().backward()
        adam.step()
    found = law().knots[0].detach()
    assert (found.diff() > 0).all()
    # Between neighbours of the sample quantile: a thousandth of the sample is 0.03 logs wide at the outermost level.
    torch.testing.assert_close(found, torch.quantile(z, torch.tensor(LEVELS)), rtol=0, atol=0.04)


def test_the_mixture_of_one_normal_is_that_normal() -> None:
    made = build_head(replace(CONFIG, head="mixture"), transforms())
    assert isinstance(made, Mixture)
    with torch.no_grad():
        law = made(torch.zeros(1, CONFIG.width), torch.tensor([1]), torch.zeros(1, 4))
    law = law._replace(zero=torch.tensor([-40.0]), weight=torch.tensor([[0.0, *[-50.0] * 4]]))
    u = torch.linspace(0.001, 0.999, 999)
    _, _, z = made.sample(repeated(law._replace(death=torch.tensor([-100.0])), 999), u)
    expected = stats.norm.ppf(u.numpy(), float(law.mean[0, 0]), float(law.spread[0, 0]))
    np.testing.assert_allclose(z.numpy(), expected, atol=2e-4)


def test_every_bin_gets_its_share_of_draws(decoder: Saga) -> None:
    assert isinstance(decoder.head, Binned)
    g = torch.Generator().manual_seed(1)
    knots = decoder.head.knots
    rates, crest, death = (
        (torch.tensor([2.0]), torch.tensor([3.0])),
        torch.tensor([0.5]),
        torch.tensor([-3.0]),
    )
    law = Bins(torch.randn((1, len(knots) + 2), generator=g), *rates, crest, death)
    _, positive, z = decoder.head.sample(repeated(law, 40_000), torch.rand(40_000, generator=g))
    counts = torch.histogram(
        z[positive], torch.cat([torch.tensor([-1e3]), knots, torch.tensor([1e3])])
    ).hist
    cells = law.logits.softmax(-1)[0, 1:]
    assert (
        stats.chisquare(
            counts.numpy(),
            (cells / cells.sum() * counts.sum()).numpy().astype(float),
            sum_check=False,
        ).pvalue
        > 1e-6
    )
    assert z[positive].max() > knots[-1]


@pytest.mark.parametrize("crest", [-4.0, 0.0, 2.0])
def test_the_upper_tail_is_a_logistic_law_cut_off_at_the_last_knot(
    decoder: Saga, crest: float
) -> None:
    assert isinstance(decoder.head, Binned)
    last, rate = float(decoder.head.knots[-1]), 5.0
    logits = torch.full((1, len(decoder.head.knots) + 2), -50.0)
    logits[0, -1] = 50.0
    law = Bins(
        logits,
        torch.tensor([2.0]),
        torch.tensor([rate]),
        torch.tensor([crest]),
        torch.tensor([-100.0]),
    )
    u = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    _, positive, z = decoder.head.sample(repeated(law, len(u)), u.float())
    known = stats.logistic(loc=last + crest, scale=1 / rate)
    expected = known.isf((1 - u.numpy()) * known.sf(last))
    np.testing.assert_allclose(z.numpy(), expected, atol=2e-4)
    densities = nll(decoder.head, law, POSITIVE, z).neg().exp().numpy()
    np.testing.assert_allclose(densities, known.pdf(z.numpy()) / known.sf(last), rtol=2e-3)
    assert positive.all()
    assert float(law.above) == pytest.approx(
        known.expect(lambda x: x, lb=last) / known.sf(last) - last, rel=1e-3
    )


def test_the_law_is_linear_in_the_economy(net: Saga) -> None:
    """Of a history of some thirty years a network could learn each year by heart, were its answer of a freer kind."""
    batch = inputs(3, 6)
    one, two = (inputs(3, 6, seed=seed)["macro"] for seed in (5, 6))
    with torch.no_grad():
        at = [
            net(**{**batch, "macro": macro}).logits
            for macro in (torch.zeros_like(one), one, two, one + two)
        ]
    torch.testing.assert_close(
        at[3] - at[0], (at[1] - at[0]) + (at[2] - at[0]), atol=2e-4, rtol=1e-3
    )
    assert (at[1] - at[0]).abs().max() > 1e-2


def test_parameters_are_counted(net: Saga) -> None:
    assert net.parameters_count == sum(v.numel() for v in net.state_dict().values())
