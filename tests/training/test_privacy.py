"""`saga train --privacy`: what DP-SGD needs of a step, and what the bundle says of the promise."""

from __future__ import annotations

from dataclasses import asdict, replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus.accountants import RDPAccountant
from saga.training import privacy
from saga.training.data import Batch, RandomBatches, make_batch
from saga.training.ensembles import train_folds, train_members
from saga.training.fit import prepare, settings_for
from saga.training.harness import RunOptions, TimeLimit
from saga.training.masking import Masking
from saga.training.module import ForecastModule
from saga.training.privacy import PrivacyPlan, PrivateModule, private_settings
from saga.training.states.state_fit import fit_state_network
from saga.training.train_config import TrainConfig, choose_config
from scipy.stats import norm

from saga.bundle import Bundle
from saga.cli.bundle_commands import inspect
from saga.data.panel import Panel
from saga.errors import UsageError
from saga.model import ModelConfig
from tests.toy_training import QUIET, TOY, make_panel

EPSILON = 4.0
CONFIG = private_settings(replace(TOY, model=replace(TOY.model, light=4)), EPSILON, 170)
PLAN = PrivacyPlan(EPSILON, 1e-4, rate=0.1, steps=12, noise=2.0, clip=0.5)
NOTHING_HIDDEN = Masking(**dict.fromkeys(asdict(Masking()), 0.0))
EXACT = replace(PLAN, noise=0.0, clip=1e9)


@pytest.fixture(scope="module")
def panel() -> Panel:
    return make_panel(["sex"])


@pytest.fixture(scope="module")
def module(panel: Panel) -> PrivateModule:
    torch.manual_seed(0)
    return PrivateModule(prepare(panel, CONFIG, seed=0).network, CONFIG, PLAN)


@pytest.fixture(scope="module")
def batch(panel: Panel) -> Batch:
    """The first 90 training persons; of the first one nothing is hidden."""
    data = prepare(panel, CONFIG, seed=0).data
    rng, n = np.random.default_rng(0), 89
    whole = make_batch(data.train, np.arange(1), data.calendar, NOTHING_HIDDEN, rng)
    others = make_batch(data.train, np.arange(1, 1 + n), data.calendar, data.masking, rng)
    joined = {name: torch.cat([whole[name], values]) for name, values in others.items()}
    return {**joined, "counted": torch.ones(1 + n)}


@pytest.fixture(scope="module")
def bundles(panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> list[Bundle]:
    """Two runs with the same seed."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("private")
    return [
        train_members(panel, folder / str(k), config=CONFIG, seed=3, run=QUIET) for k in range(2)
    ]


def persons(batch: Batch, first: int, end: int | None) -> Batch:
    return {name: v if name == "person_years" else v[first:end] for name, v in batch.items()}


def flat(gradients: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients.values()])


def test_without_noise_and_clipping_a_step_has_the_gradient_of_the_usual_objective(
    module: PrivateModule, batch: Batch
) -> None:
    usual = ForecastModule(module.network, CONFIG)
    objective = usual.losses({**batch, "person_years": torch.tensor(CONFIG.batch_persons)})
    weights = {name: w for name, w in usual.named_parameters() if w.requires_grad}
    expected = torch.autograd.grad(objective.objective, list(weights.values()))
    exact = PrivateModule(module.network, CONFIG, EXACT).private_gradients(batch)
    assert exact.keys() == weights.keys()
    for (name, gradient), of_usual in zip(exact.items(), expected, strict=True):
        torch.testing.assert_close(gradient, of_usual, rtol=1e-4, atol=1e-5, msg=name)


def test_a_gradient_depends_on_its_person_alone(module: PrivateModule, batch: Batch) -> None:
    """The sum over a batch is the sum over persons, also across the parts of a batch."""
    together = flat(module.clipped_sum(batch))
    alone = [flat(module.clipped_sum(persons(batch, k, k + 1))) for k in range(5)]
    alone.append(flat(module.clipped_sum(persons(batch, 5, None))))
    torch.testing.assert_close(together, torch.stack(alone).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("extreme", [1e2, 1e6, 1e30, float("inf"), float("nan")])
def test_no_person_moves_the_sum_by_more_than_the_clip_norm(
    module: PrivateModule, batch: Batch, extreme: float
) -> None:
    changed = persons(batch, 0, 1)
    columns = ("z", "next_z", "direct_z", "other")
    changed |= {name: torch.full_like(changed[name], extreme) for name in columns}
    alone = float(flat(module.clipped_sum(changed)).norm())
    assert alone <= PLAN.clip * (1 + 1e-5)
    assert alone == pytest.approx(PLAN.clip if extreme < 1e7 else 0.0, rel=1e-4)
    rest = persons(batch, 1, 20)
    joined = {k: v if k == "person_years" else torch.cat([changed[k], v]) for k, v in rest.items()}
    moved = flat(module.clipped_sum(joined)) - flat(module.clipped_sum(rest))
    assert moved.norm() <= PLAN.clip * (1 + 1e-4)


def test_persons_are_clipped_and_not_the_batch(module: PrivateModule, batch: Batch) -> None:
    loose = PrivateModule(module.network, CONFIG, EXACT)
    norms, whole = (
        [float(flat(of.clipped_sum(persons(batch, k, k + 1))).norm()) for k in range(8)]
        for of in (module, loose)
    )
    assert max(norms) == pytest.approx(PLAN.clip, rel=1e-4)
    expected = np.minimum(np.array(whole), PLAN.clip)
    np.testing.assert_allclose(np.array(norms), expected, rtol=1e-4)


def test_the_noise_has_the_stated_deviation_and_is_never_the_same(
    module: PrivateModule, batch: Batch
) -> None:
    torch.manual_seed(0)
    total = flat(module.clipped_sum(batch))
    noise = []
    for _ in range(2):
        torch.manual_seed(0)
        noise.append(flat(module.private_gradients(batch)) * CONFIG.batch_persons - total)
    deviation, n = PLAN.noise * PLAN.clip, 2 * len(total)
    drawn = torch.cat(noise).double()
    assert abs(float(drawn.square().mean()) / deviation**2 - 1) < 5 * (2 / n) ** 0.5
    assert abs(float(drawn.mean())) < 5 * deviation / n**0.5
    assert abs(float(torch.corrcoef(torch.stack(noise))[0, 1])) < 5 / len(total) ** 0.5


def test_each_person_joins_a_batch_with_the_stated_probability(panel: Panel) -> None:
    """Also with no person in a step, which then is noise alone."""
    data = prepare(panel, replace(CONFIG, batch_persons=1), seed=0).data
    batches = RandomBatches(data.train, data.calendar, data.masking, 1)
    sizes = np.array([float(batches[0]["counted"].sum()) for _ in range(2_000)])
    assert abs(sizes.mean() - 1) < 5 * (1 / 2_000) ** 0.5
    assert (sizes == 0).mean() == pytest.approx(np.exp(-1), abs=0.06)


def test_nobody_is_in_a_step_without_persons(module: PrivateModule, batch: Batch) -> None:
    nobody = {**batch, "counted": torch.zeros_like(batch["counted"])}
    assert float(flat(module.clipped_sum(nobody)).abs().max()) == 0


@pytest.mark.parametrize(("steps", "noise"), [(1, 1.0), (25, 4.0)])
def test_epsilon_is_that_of_the_normal_mechanism_if_every_step_has_everybody(
    steps: int, noise: float
) -> None:
    """The closed form: Balle and Wang 2018, theorem 8, with noise / sqrt(steps)."""
    epsilon = replace(PLAN, rate=1.0, noise=noise).after(steps).epsilon

    def delta(epsilon: float) -> float:
        ratio = steps**0.5 / noise
        first = norm.cdf(ratio / 2 - epsilon / ratio)
        return float(first - np.exp(epsilon) * norm.cdf(-ratio / 2 - epsilon / ratio))

    assert delta(epsilon) <= PLAN.delta < delta(epsilon - 0.03)


def test_epsilon_rises_with_the_steps_and_agrees_with_another_accountant() -> None:
    spent = [PLAN.after(steps).epsilon for steps in (10, 20, 40)]
    assert spent == sorted(set(spent))
    other = RDPAccountant()
    for _ in range(40):
        other.step(noise_multiplier=PLAN.noise, sample_rate=PLAN.rate)
    assert 0.7 * other.get_epsilon(PLAN.delta) < spent[-1] <= other.get_epsilon(PLAN.delta)


@pytest.mark.parametrize("epsilon", [0.5, pytest.param(3.0, marks=pytest.mark.thorough)])
def test_the_plan_spends_the_epsilon_that_was_asked_for(epsilon: float) -> None:
    plan = PrivacyPlan.of(replace(CONFIG, privacy=epsilon), 200)
    assert 0.97 * epsilon < plan.after(CONFIG.max_steps).epsilon <= epsilon
    assert plan.delta < 1 / 200
    assert PrivacyPlan.of(replace(CONFIG, privacy=epsilon), 2_000).noise < plan.noise


@pytest.mark.thorough
def test_with_more_noise_the_default_configuration_takes_smaller_steps() -> None:
    shape = ModelConfig(width=8, layers=1, heads=1, dropout=0.2)
    rates = [
        private_settings(choose_config(n, shape), epsilon, n).learning_rate
        for n, epsilon in ((400, 1.0), (1_400, 1.0), (1_400, 8.0), (30_000, 8.0))
    ]
    assert rates == sorted(set(rates))


def test_two_runs_with_one_seed_differ_and_the_bundle_does_not_say_why(
    bundles: list[Bundle],
) -> None:
    first, second = bundles
    assert any(not torch.equal(w, second.weights[name]) for name, w in first.weights.items())
    assert first.config == second.config
    assert first.transforms == second.transforms
    assert {k: v for k, v in first.manifest.items() if k not in ("files", "digest", "seal")} == {
        k: v for k, v in second.manifest.items() if k not in ("files", "digest", "seal")
    }
    measured = {"seconds", "validation_nll"}
    assert {k: v for k, v in first.metrics["training"].items() if k not in measured} == {
        k: v for k, v in second.metrics["training"].items() if k not in measured
    }
    assert not list(first.path.with_name("0.run").rglob("*.ckpt"))


def test_card_and_inspect_state_the_promise(
    bundles: list[Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundles[0]
    promise = bundle.config["privacy"]
    assert 0.9 * EPSILON < promise["epsilon"] <= EPSILON
    assert promise["delta"] < 1 / bundle.metrics["training"]["persons"]["train"]
    stated = f"epsilon {promise['epsilon']:g}", f"delta {promise['delta']:g}", "weights only"
    assert all(text in bundle.card for text in stated)
    inspect(bundle.path)
    line = next(line for line in capsys.readouterr().out.split("\n") if line.startswith("privacy"))
    assert all(text in line for text in stated)


def test_epsilon_is_that_of_the_steps_taken(panel: Panel, tmp_path: Path) -> None:
    """A run that ends early has spent less."""
    run = replace(QUIET, limit=TimeLimit(end=0.0))
    bundle = train_members(panel, tmp_path / "b", config=CONFIG, run=run)
    promise = bundle.config["privacy"]
    assert promise["steps"] == bundle.metrics["training"]["steps"] < CONFIG.max_steps
    plan = PrivacyPlan.of(CONFIG, bundle.metrics["training"]["persons"]["train"])
    assert promise["epsilon"] == plan.after(promise["steps"]).epsilon < 0.9 * EPSILON


@pytest.mark.parametrize(
    ("run", "named"),
    [
        (replace(QUIET, resume=True), "--resume"),
        (replace(QUIET, devices=2), "--devices"),
        (replace(QUIET, also=[make_panel()]), "--also"),
    ],
)
def test_what_would_break_the_promise_is_refused(
    panel: Panel, tmp_path: Path, run: RunOptions, named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        train_members(panel, tmp_path / "b", config=CONFIG, run=run)


def test_folds_and_weights_that_know_the_persons_are_refused(
    panel: Panel, bundles: list[Bundle], tmp_path: Path
) -> None:
    for config, private in ((CONFIG, QUIET), (TOY, replace(QUIET, privacy=EPSILON))):
        with pytest.raises(UsageError, match="--folds"):
            train_folds(panel, tmp_path / "b", 3, config=config, run=private)
    run = replace(QUIET, source=bundles[0].path)
    with pytest.raises(UsageError, match="same name, toy"):
        train_members(panel, tmp_path / "b", config=replace(CONFIG, scale_free=True), run=run)
    with pytest.raises(UsageError, match="without noise"):
        fit_state_network(bundles[0].path, panel, out=tmp_path / "b")


@pytest.mark.parametrize("config", [TOY, CONFIG, "auto", "tiny"])
def test_a_private_run_has_the_same_settings_wherever_they_are_resolved(
    config: TrainConfig | str,
) -> None:
    """A training resolves those of a member again, which must not add to the noise."""
    private = settings_for(config, 170, privacy=EPSILON)
    assert private == private_settings(settings_for(config, 170), EPSILON, 170)
    assert private == settings_for(private, 170, privacy=EPSILON)
    assert private.privacy == EPSILON


def test_trees_members_and_early_stopping_have_no_promise() -> None:
    for change in ({"trees": True}, {"members": 2}, {"validate_every": 6}):
        with pytest.raises(UsageError, match="privacy"):
            replace(CONFIG, **change)
    for epsilon in (0.0, 50.0, float("nan")):
        with pytest.raises(UsageError, match="'privacy' must be"):
            private_settings(TOY, epsilon, 170)


def test_without_opacus_the_error_names_the_extra(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, ModuleSpec | None] = {}
    monkeypatch.setattr(privacy, "find_spec", found.get)
    with pytest.raises(UsageError, match=r"saga-forecast\[privacy\]"):
        train_members(panel, tmp_path / "b", config=CONFIG, run=QUIET)
