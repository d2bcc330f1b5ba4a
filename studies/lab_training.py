r"""Ideas of docs/method/lab.md that need a training: what do they do to a small network?

    python -m studies.lab_training --panel REGISTER --out build/lab
        [--only CHANGE ...] [--steps 1500] [--seeds 3] [--persons 3000]

Each change is trained with the budget of the plain network, of the shape `tiny`, from as many
seeds. Rows are the test persons of the panel's split, in-time, 1, 10 and 20 years ahead: CRPS and
log score less those of the plain network (above 0: worse), with standard errors (of persons and of
seeds), and processor time of the blocks beside that of the plain network's. The panel `echo` is a
process whose shocks come back after 15 years: the LSTM is compared with attention there. Finished
bundles are kept, so a repeated command continues.

- *no long skip*: without the connection from a token to the head, past the blocks;
- *1, 4, 8 heads*: instead of two, of the same width in all; the page has their diversity;
- *attend to nothing*: a key of zeros, so that a head can switch itself off;
- *two time scales*: one head sees mostly the last two years, one the last twenty;
- *dynamic tanh*: tanh(a x) in place of every layer norm of the blocks.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F
from saga.training.head_subspaces import head_diversity
from saga.training.train_config import TrainConfig, load_config
from torch import Tensor, nn

from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.model import Saga
from saga.model.decoder import Block
from saga.pages.format import markdown_table
from saga.requests import MAX_HORIZON
from studies.lab import HORIZONS, METRICS, Scores, forecasts_of, scores_of
from studies.study_page import command_line, page_head, publish_page, say, study_parser
from studies.trained_bundle import train_or_load

PLAIN, ECHO = "plain", "echo"
HEADS = (1, 4, 8)
SCALES = (2.0, 20.0)  # years
TIMED = 50  # rounds of `block_seconds`
ECHO_LAG, ECHO_SHARE, ECHO_PERSONS = 15, 0.8, 6_000
Recipe = tuple[TrainConfig, Callable[[Saga], object]]


class ChangedAttention(Block, ABC):
    """A block whose attention weights are computed by `weights`."""

    @abstractmethod
    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Attention weights (n, t, heads, t) of scaled logits; `mask` broadcasts to them."""

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Block.forward`."""
        q, k, v = self.project(x, cos, sin)
        scores = torch.einsum("nthd,nsd->nths", q, k) * self.size**-0.5
        attended = torch.einsum("nths,nsd->nthd", self.weights(scores, mask.unsqueeze(-2)), v)
        return self.finish(x, attended.flatten(2)), k, v


class NothingToAttend(ChangedAttention):
    """One key of zeros, whose value is zero: weights add up to less than one."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        """See `ChangedAttention.weights`."""
        return F.pad(scores + mask, (1, 0)).softmax(-1)[..., 1:]


class TwoScales(ChangedAttention):
    """Logits fall with the distance of two records, for each head at its own pace."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        """See `ChangedAttention.weights`."""
        place = torch.arange(scores.shape[-1], dtype=scores.dtype)
        distance = (place[:, None] - place).abs()[:, None]
        return (scores + mask - distance / torch.tensor(SCALES)[:, None]).softmax(-1)


class DynamicTanh(nn.Module):
    """weight * tanh(a x) + bias, elementwise, in place of a layer norm (Zhu et al. 2025)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.full((1,), 0.5))
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """`x` of shape (..., width)."""
        return self.weight * torch.tanh(self.a * x) + self.bias


def without_skip(network: Saga) -> None:
    """The connection past the blocks stays zero."""
    network.skip.weight.requires_grad_(False).zero_()


def with_blocks(network: Saga, *, kind: type[Block]) -> None:
    """The blocks compute their attention as `kind` does."""
    for block in network.decoder.stack:
        block.__class__ = kind


def with_tanh(network: Saga) -> None:
    """Blocks without layer norms."""
    for block in network.decoder.stack:
        for name in ("norm_attention", "norm_mlp"):
            setattr(block, name, DynamicTanh(network.config.width))


def recipes(steps: int) -> dict[str, Recipe]:
    """The configuration and the change of the new network, by name; the plain one first."""
    tiny = replace(load_config("tiny"), max_steps=steps, validate_every=steps // 10)
    return {
        PLAIN: (tiny, no_change),
        "no long skip": (tiny, without_skip),
        **{
            f"{n} head{'s' * (n > 1)}": (
                replace(tiny, model=replace(tiny.model, heads=n)),
                no_change,
            )
            for n in HEADS
        },
        "attend to nothing": (tiny, partial(with_blocks, kind=NothingToAttend)),
        "two time scales": (tiny, partial(with_blocks, kind=TwoScales)),
        "dynamic tanh": (tiny, with_tanh),
    }


def no_change(network: Saga) -> None:
    """Leave the network as it is."""


@contextmanager
def networks_changed(change: Callable[[Saga], object]) -> Iterator[None]:
    """Every network that is made inside is changed at once, before training or its weights."""
    make = Saga.__init__

    def make_and_change(network: Saga, *arguments: Any) -> None:
        make(network, *arguments)
        change(network)

    with patch.object(Saga, "__init__", make_and_change):
        yield


def echo_panel() -> Panel:
    """Log earnings: a level of the person, plus a shock, plus .8 of the shock 15 years before."""
    generator, years = np.random.default_rng(1), np.arange(1990, 2023)
    level = generator.normal(12.6, 0.3, (ECHO_PERSONS, 1))
    shocks = generator.normal(0.0, 0.3, (ECHO_PERSONS, len(years)))
    echo = np.zeros_like(shocks)
    echo[:, ECHO_LAG:] = ECHO_SHARE * shocks[:, :-ECHO_LAG]
    ids = np.repeat([f"{i:05d}" for i in range(ECHO_PERSONS)], len(years))
    columns = {
        "person_id": ids,
        "year": np.tile(years, ECHO_PERSONS),
        "birth_year": np.repeat(generator.integers(1960, 1974, ECHO_PERSONS), len(years)),
        "earnings": np.exp(level + shocks + echo).ravel(),
    }
    return read_panel(pl.DataFrame(columns), prices=2022, panel_id=ECHO)


@dataclass
class Result:
    """Of the seeds of one network: scores (n, 3) of the test persons, and least `block_seconds`."""

    scores: list[Scores]
    seconds: float
    diversity: str


def judged(
    panel: Panel, name: str, recipe: Recipe, *, out: Path, persons: int, seeds: int
) -> Result:
    """Train and score the network of a recipe from each seed."""
    ids = sample_persons(persons_of(panel, "test"), persons, "lab", "persons")
    people, end = panel.only(ids), last_year(panel)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=0, end=end)
    outcomes = realised_earnings(people, origins, list(HORIZONS), end=end)
    past, (config, change) = history(people, origins), recipe
    folder, scores, seconds, indices = name.replace(" ", "-"), [], [], []
    with networks_changed(change):
        for seed in range(seeds):
            bundle = train_or_load(
                panel, out / f"{folder}-{seed}", config, seed=seed, command=command_line(__file__)
            )
            forecaster = Forecaster(bundle)
            scores.append(scores_of(forecasts_of(forecaster, past), outcomes, panel.meta.floor))
            seconds.append(block_seconds(forecaster.model.network))
            if config.model.heads in HEADS[1:]:
                index = head_diversity(forecaster.model.network)["index"]
                indices.append(index.to_numpy().mean())
    diversity = f" (diversity {np.mean(indices):.2f})" if indices else ""
    return Result(scores, min(seconds), diversity)


def block_seconds(network: Saga) -> float:
    """Least processor time of the blocks, forward and backward, of 64 persons with 20 years."""
    tokens, ages = torch.zeros(64, 20, network.config.width), torch.arange(30, 50).repeat(64, 1)
    times = []
    for _ in range(TIMED):
        start = time.process_time()
        torch.autograd.backward(network.hidden(tokens, ages)[0].sum())
        times.append(time.process_time() - start)
    return min(times)


def difference(changed: list[Scores], plain: list[Scores], metric: str, column: int) -> str:
    """Mean difference and standard error, of CRPS in per cent."""
    a, b = (np.stack([s[metric][:, column] for s in runs]) for runs in (changed, plain))
    by_person = (a - b).mean(0)
    known = np.isfinite(by_person)
    variances = [by_person[known].var(ddof=1) / known.sum()]
    if len(a) > 1:
        variances += [x[:, known].mean(1).var(ddof=1) / len(x) for x in (a, b)]
    mean, se = by_person[known].mean(), np.sqrt(sum(variances))
    if metric == "logscore":
        return f"{mean:+.4f} ({se:.4f})"
    level = b[:, known].mean() / 100
    return f"{mean / level:+.2f} % ({se / level:.2f})"


def row(name: str, changed: Result, plain: Result) -> list[str]:
    """The cells of a change."""
    places = [(metric, column) for metric in METRICS for column in range(len(HORIZONS))]
    cells = [difference(changed.scores, plain.scores, *place) for place in places]
    return [name, *cells, f"{changed.seconds / plain.seconds:.2f}"]


def main() -> int:
    """Train, judge and write the page."""
    parser = study_parser(__doc__)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("build/lab"))
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--persons", type=int, default=3_000)
    names = [*list(recipes(10))[1:], ECHO]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    args = parser.parse_args()
    panel, trained = read_panel(args.panel), recipes(args.steps)
    judge = partial(judged, out=args.out, persons=args.persons, seeds=args.seeds)
    plain, rows = judge(panel, PLAIN, trained[PLAIN]), []
    for name in args.only:
        if name == ECHO:
            config, change = trained[PLAIN]
            lstm = replace(config, model=replace(config.model, backbone="lstm", light=0))
            echoes, title = echo_panel(), "LSTM, shocks that come back after 15 years"
            rival, result = (
                judge(echoes, f"{ECHO} {kind.model.backbone}", (kind, change))
                for kind in (config, lstm)
            )
        else:
            result, rival, title = judge(panel, name, trained[name]), plain, name
        rows.append(row(f"{title}{result.diversity}", result, rival))
        say(" ".join(rows[-1]))
    head = page_head("The lab: trained", __file__, panel=panel.meta.panel_id, steps=args.steps)
    columns = [f"{m}, {h}" for m in ("CRPS", "log score") for h in HORIZONS]
    text = f"{head}\n\n{markdown_table(['change', *columns, 'time'], rows)}"
    publish_page(text, args.out / "results.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
