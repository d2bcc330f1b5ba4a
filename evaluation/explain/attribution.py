"""Why one person's forecast is what it is: integrated gradients of a figure of the forecast, by feature and past year.

Integrated gradients (Sundararajan, Taly and Yan 2017) divide f(record) - f(baseline) among the cells of the record, completely. A token
is a sum of embeddings of its cells, so a cell's part can be faded in from the baseline's even where the cell is a category. The baseline is
the same person, at the same ages in the same economy, with average earnings in every year and nothing else known: such records occur in
training. Age and the economy asked about are not attributed: they are the same in both.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from captum.attr import IntegratedGradients
from numpy.typing import NDArray
from torch import Tensor

from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.features.calendar import macro_features
from saga.features.sequences import MAX_GAP, POSITIVE, Tokens, encode, pad
from saga.features.transforms import OTHER
from saga.forecaster import Forecaster
from saga.model import Saga
from saga.schema import CATEGORICAL

Figure = Literal["mean", "p_zero"]
FIGURES: dict[str, str] = {
    "mean": "mean log of positive earnings",
    "p_zero": "probability of zero earnings",
}
FEATURES = ("earnings", *OTHER, *CATEGORICAL)
STEPS = 50  # nodes of the Gauss-Legendre rule
_ECONOMIES = 500  # draws whose mean is the economy of the year asked about


@dataclass(frozen=True)
class Explanation:
    """`table`: `year`, `feature`, `attribution`, a row a cell of the record (cells equal to the baseline's have 0).

    `value` and `baseline` are the figure for the record and for the baseline, in its unit (logs of real money, or a probability);
    `residual` is value - baseline - the sum of attributions: the error of the quadrature.
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
        """What the attributions leave unexplained, by numerical error alone."""
        return self.value - self.baseline - float(self.table["attribution"].sum())


def explain(
    forecaster: Forecaster,
    panel: Panel,
    person: str,
    *,
    gap: int = 1,
    figure: Figure = "mean",
    steps: int = STEPS,
) -> Explanation:
    """Attributes a figure of the raw model's forecast for the year `gap` (1 to 5) years after the person's last record.

    The economy of that year is its expectation. Computed in float64 on a copy of the network. Raises InputError for a person who is not
    in the panel or cannot be forecast, UsageError for a gap or figure that does not exist.
    """
    if not 1 <= gap <= MAX_GAP:
        raise UsageError(
            f"The model is asked about 1 to {MAX_GAP} years ahead. Give a gap in that range."
        )
    if figure not in FIGURES:
        raise UsageError(f"There is no figure '{figure}'. Choose from {', '.join(FIGURES)}.")
    known = panel.only([person])
    if not len(known):
        problem = Problem(
            "no-record",
            "the person has no row",
            "Give the id of a person of the input.",
            person_id=person,
        )
        raise InputError("A person cannot be explained", [problem])
    forecaster.check(known)
    record = pad(encode(known, forecaster.transforms, forecaster.calendar), np.array([0]))
    network = deepcopy(forecaster.network).double().eval().requires_grad_(False)
    if getattr(network.config, "head", "binned") != "binned":
        raise UsageError(
            "Only forecasts of a binned head can be explained. Train with `head: binned`."
        )
    knots = torch.from_numpy(forecaster.transforms.knots)
    if figure == "p_zero" and not (network.head.has_zeros or network.head.has_death):
        raise UsageError("The bundle knows no zero earnings. Choose another figure.")
    asked, wage = _asked(forecaster, int(record.year[0, -1]), gap)
    age = torch.from_numpy(record.age)
    with torch.no_grad():
        start, parts = faded(network, record)

    def forecast(faded_in: Tensor) -> Tensor:
        token = start + faded_in.sum(2)
        hidden, _ = network.hidden(token, age.expand(len(token), -1))
        return figure_of(network.head(hidden[:, -1], torch.tensor([gap]), asked), knots, figure)

    nothing = torch.zeros_like(parts)
    found = IntegratedGradients(forecast).attribute(
        parts, nothing, n_steps=steps, method="gausslegendre"
    )
    shares = found.sum(-1)[0].numpy()
    shift = 0.0 if figure == "p_zero" else wage
    with torch.no_grad():
        value, baseline = (float(forecast(x)) + shift for x in (parts, nothing))
    years = record.year[0].tolist()
    table = pl.DataFrame(
        {
            "year": np.repeat(years, len(FEATURES)),
            "feature": list(FEATURES) * len(years),
            "attribution": shares.ravel(),
        },
        {"year": pl.Int32, "feature": pl.String, "attribution": pl.Float64},
    )
    return Explanation(person, years[-1], years[-1] + gap, figure, value, baseline, table)


def faded(network: Saga, record: Tokens) -> tuple[Tensor, Tensor]:
    """The baseline's tokens (1, t, d) and what each cell of FEATURES adds to them, (1, t, features, d), for a record of one person.

    The parts and the baseline sum to the record's own tokens, because a token is a sum of embeddings.
    """
    dtype = network.skip.weight.dtype
    state, z = torch.from_numpy(record.state.astype(np.int64)), torch.from_numpy(record.z).to(dtype)
    other, codes = torch.from_numpy(record.other).to(dtype), torch.from_numpy(record.codes)
    age = torch.from_numpy(record.age)
    usual = (torch.full_like(state, POSITIVE), torch.full_like(z, network.tokens.centre))
    unknown, missing = torch.full_like(other, float("nan")), torch.zeros_like(codes)
    start: Tensor = network.tokens(*usual, unknown, missing, age)
    parts = [network.tokens(state, z, unknown, missing, age) - start]
    for j in range(len(OTHER)):
        shown = unknown.clone()
        shown[..., j] = other[..., j]
        parts.append(network.tokens(*usual, shown, missing, age) - start)
    for j in range(len(CATEGORICAL)):
        coded = missing.clone()
        coded[..., j] = codes[..., j]
        parts.append(network.tokens(*usual, unknown, coded, age) - start)
    return start, torch.stack(parts, 2)


def figure_of(law: Any, knots: Tensor, figure: str) -> Tensor:
    """A figure (n,) of laws of the binned head with these `knots`, differentiable: logs less the wage index, or a probability."""
    p = law.logits.softmax(-1)
    if figure == "p_zero":
        dead = torch.sigmoid(law.death)
        return torch.as_tensor(dead + (1 - dead) * p[..., 0])
    positive = p[..., 1:] / p[..., 1:].sum(-1, keepdim=True)
    middles = ((knots[:-1] + knots[1:]) / 2).expand(*positive.shape[:-1], -1)
    tails = (knots[0] - 1 / law.lower)[..., None], (knots[-1] + law.above)[..., None]
    return torch.as_tensor((positive * torch.cat([tails[0], middles, tails[1]], -1)).sum(-1))


def _asked(forecaster: Forecaster, origin: int, gap: int) -> tuple[Tensor, float]:
    """The economy of the year asked about at its expectation: covariates (1, 4), and the log wage index that its logs are relative to."""
    if forecaster.process is None:
        return torch.zeros(1, 4, dtype=torch.float64), 0.0
    drawn = forecaster.process.draw(0, _ECONOMIES, origin, origin + gap)
    wage = forecaster.calendar.wage_index(np.array([origin]))[0] + float(
        np.log1p(drawn[..., 1]).sum(1).mean()
    )
    features: NDArray[Any] = macro_features(drawn.mean(0), forecaster.process.unemployment(origin))[
        -1
    ]
    return torch.from_numpy(features)[None], wage
