"""Rollouts: the cache changes nothing, a person's numbers depend on nobody else, the future depends on no realised macro."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import get_args

import numpy as np
import polars as pl
import pytest
import torch

from saga.data.panel import Panel, PanelMeta
from saga.errors import UsageError
from saga.features.calendar import Calendar, macro_features
from saga.features.sequences import Sequences, encode, pad
from saga.features.transforms import Transforms
from saga.keyed_random import uniforms
from saga.macro.history import sweden
from saga.macro.process import MacroProcess
from saga.model import ModelConfig, Saga
from saga.model.config import HeadName
from saga.requests import Precision
from saga.schema import CATEGORICAL
from saga.simulation import rollout as rollout_module
from saga.simulation.rollout import Rollout

CALENDAR = Calendar(sweden())
PROCESS = MacroProcess.fit(sweden())
PATHS = 40


@pytest.fixture(scope="module")
def people() -> Panel:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(80):
        for year in range(2022 - i % 20, 2023):
            if rng.random() < 0.85 or year == 2022:
                earnings = 0.0 if rng.random() < 0.1 else float(rng.lognormal(12.4, 0.6))
                # Nobody's education is known in 2022, some people's never.
                education = (
                    None
                    if year == 2022 or i % 5 == 0
                    else ("upper_secondary", "long_tertiary")[(year + i) % 3 > 0]
                )
                rows.append(
                    (f"p{i:02d}", year, 1975, earnings, ("female", "male")[i % 2], 1e4, education)
                )
    columns = ["person_id", "year", "birth_year", "earnings", "sex", "transfers", "education_level"]
    return Panel.of(
        pl.DataFrame(rows, columns, orient="row", infer_schema_length=None), PanelMeta("p")
    )


def loud(network: Saga) -> Saga:
    """With weights so large that attention is far from uniform and laws far from each other, as they are not before training."""
    for weight in network.parameters():
        weight.data.mul_(1.5).add_(torch.randn_like(weight), alpha=0.2)
    return network.eval()


@pytest.fixture(scope="module")
def network(people: Panel) -> Saga:
    torch.manual_seed(1)
    config = ModelConfig(width=32, layers=3, heads=2, bins=32, head_width=32, light=24)
    return loud(Saga(config, Transforms.fit(people, CALENDAR, config.bins)))


# Who carries the paths: the backbone, and whether lightly.
KINDS = [("decoder", False), ("decoder", True), ("lstm", False), ("feedforward", False)]
each_kind = pytest.mark.parametrize(("kind", "light"), KINDS)


@pytest.fixture(scope="module")
def networks(network: Saga, people: Panel) -> dict[str, Saga]:
    """A network of every backbone, under "mixture" and "quantiles" decoders with those heads, and under "short" one that looks back five
    years, which most records and all paths here exceed."""
    transforms = Transforms.fit(people, CALENDAR, 32)
    out = {"decoder": network, "short": Saga(network.config, replace(transforms, span=5)).eval()}
    out["short"].load_state_dict(network.state_dict())
    for name in ("lstm", "feedforward", "mixture", "quantiles"):
        torch.manual_seed(3)
        part = {"head": name} if name in get_args(HeadName) else {"backbone": name}
        out[name] = loud(
            Saga(
                ModelConfig(width=32, layers=2, heads=2, bins=32, head_width=32, **part), transforms
            )
        )  # type: ignore[arg-type]
    return out


@pytest.fixture(scope="module")
def sequences(people: Panel) -> Sequences:
    return encode(people, Transforms.fit(people, CALENDAR, 32), CALENDAR)


def rollout(
    network: Saga,
    paths: int = PATHS,
    seed: int = 5,
    light: bool = False,
    precision: Precision = "float32",
) -> Rollout:
    return Rollout(
        network, CALENDAR, PROCESS, n_paths=paths, seed=seed, light=light, precision=precision
    )


def replay(
    network: Saga,
    sequences: Sequences,
    index: int,
    earnings: np.ndarray,
    *,
    light: bool = False,
    rhythm: int = 1,
    education: int | None = None,
) -> np.ndarray:
    """Paths (years, paths) again, by teacher forcing: whole sequences in one pass, without any cache; independent of saga.simulation.rollout.

    `education`: code in drawn years; None: the one last known."""
    history = pad(sequences, np.array([index]))
    column = CATEGORICAL.index("education_level")
    known = [code for code in history.codes[0, :, column] if code]
    origin, last = int(history.year[0, -1]), history.year.shape[1] - 1
    macro = PROCESS.draw(5, PATHS, origin, origin + 48)
    wage = (
        CALENDAR.wage_index(np.array([origin]))[0] + np.cumsum(np.log1p(macro[..., 1]), axis=1)
    ).T
    features = torch.from_numpy(
        macro_features(macro, PROCESS.unemployment(origin)).astype(np.float32)
    )
    fixed = np.where(
        [name in ("sex", "birth_region") for name in CATEGORICAL], history.codes[0, -1], 0
    )
    fixed[column] = education if education is not None else known[-1] if known else 0
    drawn = np.arange(
        rhythm, len(earnings), rhythm
    )  # years after the origin whose earnings later years are told
    told, t = earnings[drawn - 1].astype(np.float64), len(drawn)
    with np.errstate(divide="ignore"):
        z = np.where(told > 0, np.log(told) - wage[drawn - 1], 0.0)

    def then(known: np.ndarray, later: np.ndarray, dtype: type) -> torch.Tensor:
        rows = [np.broadcast_to(part, (PATHS, *part.shape[1:])) for part in (known, later)]
        return torch.from_numpy(np.concatenate(rows, axis=1).astype(dtype))

    state = then(history.state, np.where(told > 0, 2, 1).T, np.int64)
    z, other = (
        then(history.z, z.T, np.float32),
        then(history.other, np.full((1, t, 14), np.nan), np.float32),
    )
    codes, age = (
        then(history.codes, np.tile(fixed, (1, t, 1)), np.int64),
        then(history.age, history.age[:, -1:] + drawn, np.int64),
    )
    with torch.no_grad():
        hidden, _ = network.hidden(network.tokens(state, z, other, codes, age), age)
        if light:
            hidden = network.fast_hidden(hidden, torch.full((PATHS,), last), state, z, age)
    out = []
    for year in range(len(earnings)):
        step, within = divmod(
            year, rhythm
        )  # years of one step are asked of one state with one uniform
        u = uniforms(
            PATHS, "path", 5, str(sequences.person_id[index]), origin + (step + 1) * rhythm
        ).astype(np.float32)
        with torch.no_grad():
            law = network.head(
                hidden[:, last + step], torch.tensor([within + 1]), features[:, year]
            )
            dead, positive, level = network.head.sample(law, torch.from_numpy(u))
        assert not dead.any()  # nobody dies in this panel, so the hazard is switched off
        out.append(np.where(positive, np.exp(level.numpy() + wage[year]), 0.0))
    return np.array(out)


@pytest.mark.parametrize("rhythm", [1, 2])
@pytest.mark.parametrize(
    ("kind", "light"),
    [*KINDS, ("mixture", False), ("quantiles", False), ("short", False), ("short", True)],
)
def test_paths_equal_teacher_forcing(
    networks: dict[str, Saga], sequences: Sequences, kind: str, light: bool, rhythm: int
) -> None:
    """What the rollout tells the walk and asks of the head. To float32, in which heads give their laws; walks alone: test_walks."""
    network = networks[kind]
    persons, steps = np.array([0, 7, 33, 78]), np.array([3, 16, 15, 16])
    draws = Rollout(network, CALENDAR, PROCESS, n_paths=PATHS, seed=5, light=light, rhythm=rhythm)
    for person, earnings in zip(persons, draws.simulate(sequences, persons, steps), strict=True):
        expected = replay(network, sequences, int(person), earnings, light=light, rhythm=rhythm)
        np.testing.assert_allclose(earnings, expected, rtol=2e-3)


def test_years_out_of_sight_do_not_count_any_more(
    networks: dict[str, Saga], sequences: Sequences
) -> None:
    far, short = (
        rollout(networks[kind]).simulate_person(sequences, 33, 8) for kind in ("decoder", "short")
    )
    assert (far != short).mean() > 0.5


def test_both_rollouts_begin_alike_and_part_after_a_year(
    network: Saga, sequences: Sequences
) -> None:
    exact, light = (
        rollout(network, light=light).simulate_person(sequences, 3, 3) for light in (False, True)
    )
    np.testing.assert_array_equal(exact[0], light[0])
    assert (exact[1] != light[1]).mean() > 0.5


def test_a_model_without_the_cell_has_no_light_rollout(people: Panel) -> None:
    net = Saga(
        ModelConfig(width=8, layers=1, heads=1, bins=8, head_width=8),
        Transforms.fit(people, CALENDAR, 8),
    )
    with pytest.raises(UsageError, match="--rollout exact"):
        rollout(net, light=True)


@pytest.mark.parametrize("kind", ["decoder", "lstm"])
def test_lasting_columns_go_on_as_last_known(
    networks: dict[str, Saga], sequences: Sequences, kind: str
) -> None:
    network = deepcopy(networks[kind])
    network.tokens.category.weight.data *= (
        20  # so that education moves a path by more than rounding does
    )
    column = CATEGORICAL.index("education_level")
    for index in (33, 37, 40):  # the education of the last is never known
        known = [code for code in pad(sequences, np.array([index])).codes[0, :, column] if code]
        earnings = rollout(network).simulate_person(sequences, index, 8)
        expected = replay(network, sequences, index, earnings, education=known[-1] if known else 0)
        np.testing.assert_allclose(earnings, expected, rtol=2e-3)
        if known:
            assert not np.allclose(
                earnings, replay(network, sequences, index, earnings, education=0), rtol=0.1
            )


@each_kind
def test_numbers_do_not_depend_on_order_or_horizon(
    networks: dict[str, Saga], sequences: Sequences, kind: str, light: bool
) -> None:
    network = networks[kind]
    forward = rollout(network, light=light)
    a = [forward.simulate_person(sequences, i, 10) for i in range(10)]
    backward = rollout(network, light=light)
    b = [backward.simulate_person(sequences, i, 10) for i in reversed(range(10))][::-1]
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(
        rollout(network, light=light).simulate_person(sequences, 4, 3), a[4][:3]
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kind", "light"), [*KINDS, ("short", False)])
def test_numbers_are_bitwise_the_same_in_any_group(
    networks: dict[str, Saga], sequences: Sequences, kind: str, light: bool, precision: Precision
) -> None:
    """45 paths: no multiple of a vector's length, so numbers at the end of one person's paths lie inside the group's."""
    draws = rollout(networks[kind], paths=45, light=light, precision=precision)
    assert draws.group_size > 1
    steps = np.array([12, 3, 17, 1, 7, 12])
    persons = np.array([5, 0, 33, 61, 7, 78])
    together = draws.simulate(sequences, persons, steps)
    for person, own, found in zip(persons, steps, together, strict=True):
        np.testing.assert_array_equal(
            found, draws.simulate_person(sequences, int(person), int(own))
        )


def test_products_whose_rows_depend_on_their_company_are_noticed(
    network: Saga, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = torch.nn.functional.linear
    monkeypatch.setattr(
        rollout_module.F, "linear", lambda x, w, b: honest(x, w, b) + 1e-7 * x.numel()
    )
    rollout_module._stands_alone.cache_clear()
    assert rollout(network).group_size == 1
    rollout_module._stands_alone.cache_clear()


def test_a_person_alone_equals_the_person_among_others(
    network: Saga, people: Panel, sequences: Sequences
) -> None:
    alone = encode(people.only(["p17"]), Transforms.fit(people, CALENDAR, 32), CALENDAR)
    np.testing.assert_array_equal(
        rollout(network).simulate_person(alone, 0, 10),
        rollout(network).simulate_person(sequences, 17, 10),
    )


def test_other_seeds_give_other_paths(network: Saga, sequences: Sequences) -> None:
    a, b = (rollout(network, seed=s).simulate_person(sequences, 2, 5) for s in (1, 2))
    assert (a != b).mean() > 0.5


def test_no_realised_macro_after_the_origin_is_used(network: Saga, people: Panel) -> None:
    past = people.with_frame(people.frame.filter(pl.col("year") <= 2008))
    transforms = Transforms.fit(people, CALENDAR, 32)
    sequences = encode(past, transforms, CALENDAR)
    until = sweden().until(2008)
    cut = MacroProcess(until, PROCESS.mean, PROCESS.transition, PROCESS.innovation)
    full, blind = (
        Rollout(network, CALENDAR, process, n_paths=10, seed=1).simulate_person(sequences, 0, 5)
        for process in (PROCESS, cut)
    )
    np.testing.assert_array_equal(full, blind)
