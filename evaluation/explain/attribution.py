"""Integrated gradients of a figure of one person's forecast, by feature and past year.

Integrated gradients (Sundararajan, Taly and Yan 2017) divide f(record) - f(baseline) completely
among the entries of the record. An entry is one feature in one year. A token is the sum of the
embeddings of its entries, so that the embedding of an entry can be scaled from the baseline to the
record, even if the entry is a category. The baseline is a record of the same person at the same
ages under the same macro values, with average earnings in every year and no other entry; such
records occur in training. Age and the macro values of the forecast year have no attribution,
because they are the same in both.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from captum.attr import IntegratedGradients
from numpy.typing import NDArray
from torch import Tensor

from saga.data.panel import Panel
from saga.errors import UsageError
from saga.features.calendar import macro_features
from saga.features.sequences import MAX_GAP, POSITIVE, Tokens, encode, pad
from saga.features.transforms import Transforms
from saga.forecast_checks import check_panel
from saga.forecaster import Forecaster
from saga.model import Saga
from saga.model.heads.binned import BinnedDistribution
from saga.model.members import Member

Figure = Literal["mean", "p_zero"]
FIGURES: dict[str, str] = {
    "mean": "mean log of positive earnings",
    "p_zero": "probability of zero earnings",
}
STEPS = 50  # nodes of the Gauss-Legendre rule
_MACRO_DRAWS = 500  # draws whose mean is the expectation of the forecast year's macro values


@dataclass(frozen=True)
class Explanation:
    """The attributions of one forecast.

    Args:
        person_id: The person.
        origin: The last year of the record.
        year: The forecast year.
        figure: Name of the figure, one of FIGURES.
        value: The figure for the record, a log of real money or a probability.
        baseline: The figure for the baseline.
        table: `year`, `feature`, `attribution`, one row per entry of the record (0 if the entry
            equals that of the baseline).
    """

    person_id: str
    origin: int
    year: int
    figure: str
    value: float
    baseline: float
    table: pl.DataFrame

    @property
    def residual(self) -> float:
        """The numerical error: value less baseline less the sum of attributions."""
        return self.value - self.baseline - float(self.table["attribution"].sum())


def attribute_forecast(
    forecaster: Forecaster,
    panel: Panel,
    person: str,
    *,
    gap: int = 1,
    figure: Figure = "mean",
    steps: int = STEPS,
) -> Explanation:
    """Attribute a figure of the raw forecast for the year `gap` years after the last record.

    The macro values of that year are their expectation. Computations are in float64, on copies of
    the networks; of several members the result is the average.

    Args:
        forecaster: The bundle's forecaster.
        panel: A panel that contains the person.
        person: The person's id.
        gap: 1 to 5 years.
        figure: Name of the figure, one of FIGURES.
        steps: Nodes of the quadrature.

    Raises:
        InputError: If the person is not in the panel or cannot be forecast.
        UsageError: If the gap or the figure does not exist.
    """
    if not 1 <= gap <= MAX_GAP:
        raise UsageError(f"The gap is 1 to {MAX_GAP} years. Give a gap in that range.")
    if figure not in FIGURES:
        raise UsageError(f"There is no figure '{figure}'. Choose from {', '.join(FIGURES)}.")
    record_panel = panel.only([person])
    check_panel(record_panel, forecaster.transforms)
    explained = [
        _of_member(forecaster, member, record_panel, gap=gap, figure=figure, steps=steps)
        for member in forecaster.model.members
    ]
    first = explained[0]
    attribution = np.mean([one.table["attribution"].to_numpy() for one in explained], axis=0)
    return replace(
        first,
        value=float(np.mean([one.value for one in explained])),
        baseline=float(np.mean([one.baseline for one in explained])),
        table=first.table.with_columns(attribution=attribution),
    )


def _of_member(
    forecaster: Forecaster,
    member: Member,
    record_panel: Panel,
    *,
    gap: int,
    figure: Figure,
    steps: int,
) -> Explanation:
    """The attributions of one network; arguments as in `attribute_forecast`."""
    transforms = member.transforms
    record = pad(encode(record_panel, transforms, forecaster.calendar), np.array([0]))
    network = deepcopy(member.network).double().eval().requires_grad_(False)
    if getattr(network.config, "head", "binned") != "binned":
        raise UsageError(
            "Only forecasts of a binned head can be explained. Train with `head: binned`."
        )
    knots = torch.from_numpy(transforms.knots)
    if figure == "p_zero" and not (network.head.has_zeros or network.head.has_death):
        raise UsageError("The bundle has no probability of zero earnings. Choose another figure.")
    is_share, last_age, year = figure == "p_zero", record.age[0, -1], record.year[0, -1]
    covariates, wage = expected_macro(forecaster, int(year), gap)
    age, units = torch.from_numpy(record.age), transforms.units
    with torch.no_grad():
        start, parts = scaled_parts(network, record)

    def forecast(scaled: Tensor) -> Tensor:
        token = start + scaled.sum(2)
        hidden, _ = network.hidden(token, age.expand(len(token), -1))
        distribution = network.head(hidden[:, -1], torch.tensor([gap]), covariates)
        return figure_of(distribution, knots, figure) * (1.0 if is_share else units.scale)

    no_parts = torch.zeros_like(parts)
    attributions = IntegratedGradients(forecast).attribute(
        parts, no_parts, n_steps=steps, method="gausslegendre"
    )
    shares = attributions.sum(-1)[0].numpy()
    shift = 0.0 if is_share else wage + float(units.level(last_age + gap, year + gap))
    with torch.no_grad():
        value, baseline = (float(forecast(x)) + shift for x in (parts, no_parts))
    years, names = record.year[0].tolist(), features(transforms)
    table = pl.DataFrame(
        {
            "year": np.repeat(years, len(names)),
            "feature": list(names) * len(years),
            "attribution": shares.ravel(),
        },
        {"year": pl.Int32, "feature": pl.String, "attribution": pl.Float64},
    )
    person = record_panel.persons()[0]
    return Explanation(person, years[-1], years[-1] + gap, figure, value, baseline, table)


def features(transforms: Transforms) -> tuple[str, ...]:
    """The inputs of a year that figures are attributed to: earnings and columns."""
    return ("earnings", *transforms.numbers, *transforms.categories)


def scaled_parts(network: Saga, record: Tokens) -> tuple[Tensor, Tensor]:
    """The baseline's tokens (1, t, d), and the part (1, t, features, d) that each entry adds.

    Features are in the order of `features`. Baseline and parts sum to the tokens of the `record`,
    which is that of one person.
    """
    dtype = network.skip.weight.dtype
    state, z = torch.from_numpy(record.state.astype(np.int64)), torch.from_numpy(record.z).to(dtype)
    other, codes = torch.from_numpy(record.other).to(dtype), torch.from_numpy(record.codes)
    age = torch.from_numpy(record.age)
    average = (torch.full_like(state, POSITIVE), torch.full_like(z, network.tokens.centre))
    unknown, missing = torch.full_like(other, float("nan")), torch.zeros_like(codes)
    start: Tensor = network.tokens(*average, unknown, missing, age)
    parts = [network.tokens(state, z, unknown, missing, age) - start]
    for j in range(other.shape[-1]):
        shown = unknown.clone()
        shown[..., j] = other[..., j]
        parts.append(network.tokens(*average, shown, missing, age) - start)
    for j in range(codes.shape[-1]):
        coded = missing.clone()
        coded[..., j] = codes[..., j]
        parts.append(network.tokens(*average, unknown, coded, age) - start)
    return start, torch.stack(parts, 2)


def figure_of(distribution: BinnedDistribution, knots: Tensor, figure: str) -> Tensor:
    """A figure (n,) of n distributions of the binned head with these `knots`, differentiable.

    It is the mean log of positive earnings less the log wage index, or the probability of zero.
    """
    p = distribution.logits.softmax(-1)
    if figure == "p_zero":
        dead = torch.sigmoid(distribution.death)
        return torch.as_tensor(dead + (1 - dead) * p[..., 0])
    positive = p[..., 1:] / p[..., 1:].sum(-1, keepdim=True)
    middles = ((knots[:-1] + knots[1:]) / 2).expand(*positive.shape[:-1], -1)
    tails = (
        (knots[0] - 1 / distribution.lower)[..., None],
        (knots[-1] + mean_excess(distribution))[..., None],
    )
    return torch.as_tensor((positive * torch.cat([tails[0], middles, tails[1]], -1)).sum(-1))


def mean_excess(distribution: BinnedDistribution) -> Tensor:
    """Mean excess (...,) over the last knot, in logs, given the upper tail."""
    t = distribution.peak * distribution.upper
    return torch.nn.functional.softplus(t) / (distribution.upper * torch.sigmoid(t))


def expected_macro(forecaster: Forecaster, origin: int, gap: int) -> tuple[Tensor, float]:
    """Expected macro covariates (1, 4) of the forecast year, and its log wage index."""
    if forecaster.process is None:
        return torch.zeros(1, 4, dtype=torch.float64), 0.0
    macro = forecaster.process.draw(0, _MACRO_DRAWS, origin, origin + gap)
    wage = forecaster.calendar.wage_index(np.array([origin]))[0] + float(
        np.log1p(macro[..., 1]).sum(1).mean()
    )
    unemployment = forecaster.process.unemployment(origin)
    features: NDArray[Any] = macro_features(macro.mean(0), unemployment)
    return torch.from_numpy(features[-1])[None], wage
