"""DeepAR (Salinas et al. 2020) of GluonTS: an autoregressive LSTM trained on whole records."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
import torch
from saga.evaluation.baselines.origin_states import identities, paths_of

from saga.arrays import Array
from saga.data.origins import Origins, last_year
from saga.data.panel import Panel
from saga.data.split import units_of
from saga.errors import InputError, Problem
from saga.keyed_random import uniform_each, uniforms
from saga.paths import Paths
from saga.schema import BY_NAME, MAX_AGE, MAX_CONTEXT_YEARS
from saga.trees.earnings_ranks import Reference
from saga.trees.recent_years import locate_rows

if TYPE_CHECKING:
    from gluonts.torch.model.deepar.module import DeepARModel

INSTALL = 'pip install "gluonts[torch]"'
LAGS = 3  # past targets that are inputs of each step
BINS = 128  # bins of the output
GAP = 1.0  # logs between zero and the smallest amount on the target's scale
OUTER = (0.002, 0.9998)  # quantiles of amounts between which the bins of amounts lie
HELD_OUT = 0.1  # share of persons for the choice of weights
MIN_EARNINGS = 200  # positive earnings that a fit needs
STATIC = {name: BY_NAME[name].codes for name in ("sex", "birth_region")}
LEVELS = BY_NAME["education_level"].codes
Batch = dict[str, torch.Tensor]


class DeepAR:
    """GluonTS's DeepAR network on log earnings relative to their trend, with binned output.

    Zero has its own bin. Static features are sex and region of birth. Features of a year are age,
    education as known the year before (in paths: at the origin), and whether the year before is
    known. Short records are padded on the left, missing years are masked; their input is the last
    known value. There are no macro series, because they are not known ahead. The year of a death
    and later years count as zeros.

    The network is trained on one window per person, the whole record up to 40 years, by Adam with a
    cosine schedule over a fixed number of passes. The weights with the least loss on a tenth of the
    persons are used. Paths are joint samples of the network; persons are independent.

    Args:
        width: Units of a layer; 128 gives about as many parameters as the shipped model has.
        layers: Number of LSTM layers.
        passes: Passes over the training persons.
        batch: Persons per step.
        rate: Largest learning rate.

    Raises:
        ModuleNotFoundError: Without GluonTS, a development extra.
    """

    name = "deepar"
    version = 1

    def __init__(
        self,
        *,
        width: int = 128,
        layers: int = 2,
        passes: int = 9,
        batch: int = 128,
        rate: float = 2e-3,
    ) -> None:
        try:
            with _quiet():
                import gluonts.torch  # noqa: F401
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"The baseline deepar needs GluonTS: {INSTALL}", name=error.name
            ) from error
        self._width, self._layers = width, layers
        self._passes, self._batch, self._rate = passes, batch, rate

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Train the network on the records of `panel`.

        Raises InputError if they have too few positive earnings.
        """
        reference = Reference(panel)
        years = np.arange(reference.first, reference.last + 1)
        # A straight line, because medians of single years would reveal realised macro.
        self.growth = reference.growth
        self.start = float(np.mean(reference.median - self.growth * years))
        end = last_year(panel)
        careers = panel.frame.group_by("person_id", maintain_order=True).agg(
            pl.col("year").first().alias("first"),
            pl.col("year").last(),
            pl.col("birth_year", "exit_year", "exit_reason").last(),
        )
        age_out = pl.col("birth_year") + MAX_AGE
        until = (
            pl.when(pl.col("exit_reason") == "dead")
            .then(pl.min_horizontal(pl.lit(end), age_out))
            .otherwise("year")
        )
        careers = careers.with_columns(pl.max_horizontal(until, "year").alias("until"))
        longest = int((careers["until"] - careers["first"]).max() or 0) + 1  # type: ignore[arg-type]
        self.context = min(MAX_CONTEXT_YEARS, longest)
        ends = Origins(
            np.array(careers["person_id"].to_list(), dtype=np.str_),
            careers["until"].to_numpy().astype(np.int64),
        )
        positive = panel.frame.filter(pl.col("earnings") > 0)
        if positive.height < MIN_EARNINGS:
            problem = Problem(
                "too-few-records",
                f"{positive.height} positive earnings, {MIN_EARNINGS} are needed",
                "Give more persons or years.",
            )
            raise InputError("There is nothing to learn from", [problem])
        level = self._level(positive["year"].to_numpy())
        self.bins = Bins.of(np.log(positive["earnings"].to_numpy()) - level)
        deaths = careers["exit_year"].to_numpy(allow_copy=True)
        windows = self._windows(panel, ends, self.context + LAGS, deaths=deaths)
        units = units_of(panel, careers["person_id"].to_list())
        uniform = uniform_each(units, self.name, panel.meta.panel_id, seed, "held")
        is_held_out = uniform < HELD_OUT
        self.model = self._network(seed)
        self._train(windows.take(~is_held_out), windows.take(is_held_out), seed)
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person, shape (n, to_horizon, n_paths).

        Raises InputError for a person without a record.
        """
        windows = self._windows(history, origins, self.context + LAGS - 1)
        ahead = windows.ahead(to_horizon)
        targets = np.empty((len(origins), to_horizon, n_paths))
        self.model.prediction_length = to_horizon
        for i, (person, year) in enumerate(identities(origins)):
            # Persons are simulated one at a time, so that paths do not depend on other persons.
            with _quiet(), torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(uniforms(1, self.name, seed, person, year)[0] * 2**52))
                batch = {
                    name: values[i : i + 1]
                    for name, values in {**windows.past, "future_time_feat": ahead}.items()
                }
                targets[i] = self.model(**batch, num_parallel_samples=n_paths)[0].T.double().numpy()
        level = self._level(origins.year[:, None] + np.arange(1, to_horizon + 1))
        earnings = self.bins.amounts(targets, level[..., None]).astype(np.float32)
        return paths_of(origins, windows.born, earnings)

    def _level(self, year: Array) -> Array:
        """The trend of log median earnings, same shape."""
        return np.asarray(self.start + self.growth * year)

    def _network(self, seed: int) -> DeepARModel:
        from gluonts.torch.model.deepar.module import DeepARModel

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return DeepARModel(
                freq="Y",
                context_length=self.context,
                prediction_length=1,
                num_feat_dynamic_real=FEATURES,
                num_feat_static_cat=len(STATIC),
                cardinality=[len(codes) + 1 for codes in STATIC.values()],
                num_layers=self._layers,
                hidden_size=self._width,
                dropout_rate=0.1,
                distr_output=_output(self.bins),
                lags_seq=list(range(1, LAGS + 1)),
                scaling=False,  # the target is a log of a ratio already
            )

    def _train(self, training: Windows, held_out: Windows, seed: int) -> None:
        """Minimise the network's loss; the result is the weights with the least held-out loss."""
        model, steps = self.model, -(-len(training) // self._batch)
        adam = torch.optim.Adam(model.parameters(), lr=self._rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            adam, max_lr=self._rate, total_steps=self._passes * steps
        )
        order = np.random.default_rng(seed)
        least, best = np.inf, {}
        with _quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # for dropout
            for _ in range(self._passes):
                model.train()
                for rows in np.array_split(order.permutation(len(training)), steps):
                    adam.zero_grad()
                    self._loss(training.take(rows)).backward()  # type: ignore[no-untyped-call]
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                    adam.step()
                    schedule.step()
                model.eval()
                with torch.no_grad():
                    stopping = held_out if len(held_out) else training
                    n_parts = -(-len(stopping) // self._batch)
                    parts = np.array_split(np.arange(len(stopping)), n_parts)
                    loss = float(
                        np.mean([self._loss(stopping.take(rows)).item() for rows in parts])
                    )
                if loss < least:
                    least = loss
                    best = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(best)
        self.loss = least

    def _loss(self, windows: Windows) -> torch.Tensor:
        """Mean negative log probability of a known year."""
        seen = windows.past["past_observed_values"]
        past = {
            **windows.past,
            "past_observed_values": seen[:, :-1],
            "future_observed_values": seen[:, -1:],
        }
        for name in ("target", "time_feat"):
            both = windows.past[f"past_{name}"]
            past |= {f"past_{name}": both[:, :-1], f"future_{name}": both[:, -1:]}
        years = self.context
        total: torch.Tensor = self.model.loss(**past).sum() * years
        return total / torch.clamp(seen[:, -years:].sum(), min=1.0)

    def _windows(
        self, history: Panel, ends: Origins, years: int, deaths: Array | None = None
    ) -> Windows:
        """The last `years` calendar years up to each end, oldest first.

        From a death in `deaths` (n,) on, earnings are zero.
        """
        rows, last, position = locate_rows(history, ends, years)
        position = position[:, ::-1]
        exists = position >= 0
        year = ends.year[:, None] - np.arange(years)[::-1]
        born = rows["birth_year"].to_numpy()[last].astype(np.int64)
        row = np.maximum(position, 0)
        earnings = np.where(exists, rows["earnings"].fill_null(np.nan).to_numpy()[row], np.nan)
        if deaths is not None:
            dead = year >= np.asarray(deaths, dtype=np.float64)[:, None]
            earnings = np.where(np.isnan(earnings) & dead, 0.0, earnings)
        target = self.bins.target(earnings, self._level(year))
        is_known = np.isfinite(target)
        level = _codes(rows["education_level"], LEVELS)[row]
        level = _fill_forward(np.where(exists, level, 0.0), exists & (level > 0)).astype(np.int64)
        before, known_before = np.roll(level, 1, axis=1), np.roll(is_known, 1, axis=1)
        before[:, 0], known_before[:, 0] = 0, False
        static = np.stack(
            [_codes(rows[name], codes)[last] for name, codes in STATIC.items()], axis=1
        )
        past = {
            "feat_static_cat": torch.from_numpy(static.astype(np.int64)),
            "feat_static_real": torch.zeros(len(ends), 1),
            "past_time_feat": _time_features(year - born[:, None], before, known_before),
            "past_target": torch.from_numpy(
                _fill_forward(np.where(is_known, target, 0.0), is_known).astype(np.float32)
            ),
            "past_observed_values": torch.from_numpy(is_known.astype(np.float32)),
        }
        return Windows(past, born, ends.year, level[:, -1], is_known[:, -1])


@dataclass(frozen=True)
class Bins:
    """The target's scale: log relative earnings in equal bins from `lowest` to `highest`.

    Zero is in the first bin; amounts begin at `above`, GAP above that bin.
    """

    lowest: float
    highest: float
    above: float

    @classmethod
    def of(cls, relative: Array) -> Bins:
        """Bins that fit log relative amounts (n,)."""
        above, highest = (float(q) for q in np.quantile(relative, OUTER))
        highest = max(highest, above + 0.1)
        width = (highest - above + GAP) / (BINS - 1)
        return cls(above - GAP - width, highest, above)

    @property
    def zero(self) -> float:
        """The middle of the first bin, where zero is."""
        return self.lowest + (self.highest - self.lowest) / BINS / 2

    def target(self, earnings: Array, level: Array) -> Array:
        """Log relative earnings, amounts beyond the outermost bins moved into them.

        NaN for unknown earnings.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            amounts = np.clip(np.log(earnings) - level, self.above + 1e-4, self.highest - 1e-4)
        return np.where(earnings == 0, self.zero, amounts)

    def amounts(self, target: Array, level: Array) -> Array:
        """Earnings from drawn targets; a target in the lower half of the gap is zero."""
        amounts = np.exp(np.maximum(target, self.above) + level)
        return np.where(target < self.above - GAP / 2, 0.0, amounts)


@dataclass(frozen=True, eq=False)
class Windows:
    """Inputs of the network for n persons up to an end.

    Attributes:
        past: Tensors by GluonTS's names.
        born: Years of birth.
        year: Last years of the windows.
        education: Code of education in these years.
        is_known: Whether earnings of these years are known.
    """

    past: Batch
    born: Array
    year: Array
    education: Array
    is_known: Array

    def __len__(self) -> int:
        return len(self.born)

    def take(self, rows: Array) -> Windows:
        """The persons in `rows`: an index or a mask."""
        index = torch.from_numpy(np.asarray(rows))
        past = {name: values[index] for name, values in self.past.items()}
        arrays = (self.born, self.year, self.education, self.is_known)
        return Windows(past, *(values[rows] for values in arrays))

    def ahead(self, horizons: int) -> torch.Tensor:
        """Features of the years after the end, (n, horizons, FEATURES).

        Education stays, and simulated years count as known.
        """
        age = self.year[:, None] + np.arange(1, horizons + 1) - self.born[:, None]
        is_known = np.ones(age.shape, dtype=bool)
        is_known[:, 0] = self.is_known
        return _time_features(age, np.broadcast_to(self.education[:, None], age.shape), is_known)


FEATURES = 4 + len(LEVELS)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress two warnings of GluonTS 0.17, about its JSON library and slices of tensors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using `json`-module")
        warnings.filterwarnings("ignore", message="Using a non-tuple sequence")
        yield


def _output(bins: Bins) -> Any:
    """GluonTS's binned distribution as an output of its networks.

    Its own BinnedUniformsOutput cannot be constructed in GluonTS 0.17.
    """
    from gluonts.torch.distributions import DistributionOutput
    from gluonts.torch.distributions.binned_uniforms import BinnedUniforms

    class Binned(DistributionOutput):  # type: ignore[misc]
        args_dim: ClassVar = {"logits": BINS}
        event_shape = ()

        def domain_map(self, logits: torch.Tensor) -> tuple[torch.Tensor]:
            return (logits,)

        def distribution(
            self,
            distr_args: Any,
            loc: torch.Tensor | None = None,
            scale: torch.Tensor | None = None,
        ) -> Any:
            del loc, scale  # GluonTS passes them; the bins have no use for them
            return BinnedUniforms(bins.lowest, bins.highest, distr_args[0], BINS)

    return Binned()


def _time_features(age: Array, education: Array, is_known: Array) -> torch.Tensor:
    """(n, T, FEATURES): age, its square, and of the year before, if it is known and education.

    Education is one-hot, code 0 if unknown.
    """
    scaled = (age - 40) / 20
    levels = education[..., None] == np.arange(len(LEVELS) + 1)
    return torch.from_numpy(
        np.concatenate([np.stack([scaled, scaled**2, is_known], axis=-1), levels], axis=-1).astype(
            np.float32
        )
    )


def _codes(values: pl.Series, codes: tuple[str, ...]) -> Array:
    """Index of the code plus one, 0 if unknown."""
    numbers = {code: i + 1 for i, code in enumerate(codes)}
    return values.replace_strict(numbers, default=0, return_dtype=pl.Int64).fill_null(0).to_numpy()


def _fill_forward(values: Array, is_known: Array) -> Array:
    """`values` (n, T) if known, otherwise the last known value before, 0 without one."""
    position = np.maximum.accumulate(np.where(is_known, np.arange(values.shape[1]), -1), axis=1)
    return np.where(position >= 0, np.take_along_axis(values, np.maximum(position, 0), axis=1), 0.0)
