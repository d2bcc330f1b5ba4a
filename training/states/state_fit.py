"""`saga circumstances`: learn the law of circumstances along paths of earnings, and write it into a bundle.

The bundle's network stands still: it sums up the record, and its law of earnings, with all that was calibrated and judged, stays as it is.
"""

from __future__ import annotations

import logging
import math
import shutil
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytorch_lightning as lightning
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, Timer, TQDMProgressBar
from torch import Tensor
from torch.utils.data import Dataset

from saga import schema
from saga.bundle import Bundle, check_replaceable, current_version, replace_parts
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.features.sequences import UNKNOWN, ZERO, Sequences, encode, pad
from saga.features.transforms import OTHER
from saga.files.atomic import commit_json, read_json
from saga.forecaster import Forecaster
from saga.model import Saga
from saga.schema import MAX_AGE, MIN_AGE
from saga.states.codes import (
    CATEGORIES,
    COLUMNS,
    INDUSTRY,
    OCCUPATION,
    Spells,
    code_labels,
    code_numbers,
)
from saga.states.life_courses import ZeroRuns
from saga.states.state_network import StateInputs, StateNetwork
from training.data import Batch, ResumableLoader
from training.masking import Masking, hide_inputs

_NEVER = -1e4  # a logit
_RUN = "run.json"
_CARD = "## Circumstances"  # begins their part of the model card
_TOLD_STATE = OTHER.index("unemployment_benefit")  # where it is hidden, so is the state
_SHORTENED = 0.5  # of paths
_GOES_ON_HIDDEN = 0.5  # of the years of a record without a column, those in which the year before is not known either


@dataclass(frozen=True)
class StateFitOptions:
    """How the law is fitted: AdamW (Loshchilov and Hutter 2019), the rate falling to zero as a cosine."""

    width: int = 128
    steps: int = 4_000
    batch_persons: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.01


@dataclass(frozen=True, eq=False)
class Lives:
    """Persons to learn from: their tokens, the numbers of their circumstances (n_row, 7), the year in which they emigrated (n,), 0 for
    never, and the last year of the panel."""

    sequences: Sequences
    codes: NDArray[np.int16]
    left: NDArray[np.int64]
    end: int

    @classmethod
    def of(cls, panel: Panel, forecaster: Forecaster) -> Lives:
        """Of all persons of a panel."""
        sequences = encode(panel, forecaster.transforms, forecaster.calendar)
        gone = (
            pl.when(pl.col("exit_reason") == "emigrated")
            .then("exit_year")
            .otherwise(0)
            .fill_null(0)
        )
        left = (
            panel.frame.select(gone.alias("left"))["left"]
            .to_numpy()
            .astype(np.int64)[sequences.offsets[:-1]]
        )
        return cls(
            sequences,
            code_numbers(panel.frame, forecaster.transforms),
            left,
            int(sequences.year.max()),
        )


def make_batch(
    lives: Lives,
    persons: NDArray[np.int64],
    until: int,
    rng: np.random.Generator,
    shortened: float = _SHORTENED,
) -> Batch:
    """All years of some persons that follow a year in the register, each seen from a random origin before it.

    The decoder's inputs, (n, t, ...); and of N years `person`, `origin` (positions), the fields of `Year` but the origin's state, and what
    happened: `leaves`, `dies` (-1: not asked) and `happened` (N, 7) numbers, -1 where not asked. A share `shortened` of the paths ends
    early, at random: the panel's last years are followed by few, and would else be known by it.
    """
    sequences, end = lives.sequences, lives.end
    tokens = pad(sequences, persons)
    seen, _ = hide_inputs(tokens, end, Masking(origin=0.0), rng)
    (n, t), length = tokens.valid.shape, tokens.valid.sum(1)
    row = np.minimum(sequences.offsets[persons][:, None] + np.arange(t), len(sequences.year) - 1)
    codes = lives.codes[row].astype(np.int64) * tokens.valid[..., None]

    standing, held = Spells.unknown(n, tokens.year[:, 0]), []
    for column in range(t):
        standing = standing.after(tokens.year[:, column], codes[:, column])
        held.append((standing.codes, standing.workplace, standing.years(tokens.year[:, column])))
    known, workplace, years = (np.stack(part, 1) for part in zip(*held, strict=True))

    # A question is a year t behind position p: a record of the year after, or an exit in it.
    born = tokens.year[:, 0] - tokens.age[:, 0]
    exits = np.maximum(sequences.dead_year[persons], lives.left[persons])
    follows = np.zeros((n, t), bool)
    follows[:, :-1] = tokens.valid[:, 1:] & (np.diff(tokens.year, axis=1) == 1)
    ending = (
        tokens.valid
        & (np.arange(t) == length[:, None] - 1)
        & (exits[:, None] == tokens.year + 1)
        & (exits[:, None] <= end)
    )
    ending &= exits[:, None] <= born[:, None] + MAX_AGE  # of stayers nobody is asked about 65
    i, p = np.nonzero(follows | ending)
    year, exit_now = tokens.year[i, p] + 1, ending[i, p]
    dies, leaves = (
        exit_now & (sequences.dead_year[persons][i] > 0),
        exit_now & (lives.left[persons][i] > 0),
    )

    state, z, run, left = _paths(tokens, sequences.dead_year[persons], born, end)
    at = year - int(tokens.year[:, 0].min())
    short = rng.random(len(i)) < shortened
    left = np.where(short, (rng.random(len(i)) * (left[i, at] + 1)).astype(np.int64), left[i, at])
    ahead = ZeroRuns.from_counts(np.minimum(run[i, at], left + 1), left)
    after = (
        np.where(left > 0, state[i, at + 1], UNKNOWN),
        np.where(left > 0, z[i, at + 1], 0.0).astype(np.float32),
    )
    hidden = _hidden_columns(tokens, seen)[i] & (rng.random((len(i), 1)) < _GOES_ON_HIDDEN)
    hidden_years = np.column_stack([hidden, hidden[:, INDUSTRY]])
    asked = np.where(codes[i, np.minimum(p + 1, t - 1)] > 0, codes[i, np.minimum(p + 1, t - 1)], -1)
    asked[:, INDUSTRY] = np.maximum(asked[:, INDUSTRY], 0)
    # Where the occupation at the workplace of the year before was not collected, the last known one is older, and more will have changed.
    asked[workplace[i, p] & (codes[i, p, OCCUPATION] == 0), OCCUPATION] = -1
    arrays = {
        "token_state": seen.state.astype(np.int64),
        "token_z": seen.z,
        "token_other": seen.other,
        "token_codes": seen.codes,
        "token_age": seen.age,
        "person": i,
        "origin": (rng.random(len(i)) * (p + 1)).astype(np.int64),
        "before_state": state[i, at - 1].astype(np.int64),
        "before_z": z[i, at - 1],
        "now_state": state[i, at].astype(np.int64),
        "now_z": z[i, at],
        "after_state": after[0].astype(np.int64),
        "after_z": after[1],
        "zeros": ahead.zeros,
        "left": ahead.left,
        "last": ahead.last,
        "age": np.minimum(year - born[i], MAX_AGE) - MIN_AGE,
        "period": np.minimum(0.0, (year - until) / 10).astype(np.float32),
        "codes": np.where(hidden, 0, known[i, p]),
        "workplace": workplace[i, p] & ~hidden[:, INDUSTRY],
        "years": np.where(hidden_years, 0, years[i, p]),
        "leaves": leaves.astype(np.int64),
        "dies": np.where(leaves, -1, dies),
        "happened": np.where(exit_now[:, None], -1, asked),
    }
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _paths(
    tokens: Any, dead_year: NDArray[np.int64], born: NDArray[np.int64], end: int
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Earnings by calendar year as a path would show them, (n, years): states and z; the zeros in a row that begin with each year; the
    years of the path that follow.

    Years count from the first of anybody's records. The dead earn nothing to the end of the panel or age 64, where their paths end; those
    of others end with the record.
    """
    n, first = len(born), int(tokens.year[:, 0].min())
    span = end - first + 2
    state, z = np.full((n, span), UNKNOWN, np.int8), np.zeros((n, span), np.float32)
    who, where = np.nonzero(tokens.valid)
    at = tokens.year[who, where] - first
    state[who, at], z[who, at] = tokens.state[who, where], tokens.z[who, where]
    last = np.where(dead_year > 0, np.minimum(end, born + MAX_AGE), tokens.year.max(1))
    years = first + np.arange(span)
    state[(dead_year[:, None] > 0) & (years >= dead_year[:, None]) & (years <= last[:, None])] = (
        ZERO
    )
    # Behind a path's end nothing breaks a run of zeros: count as if the end were the same for all, then take off what lies behind.
    beyond = years > last[:, None]
    steps = np.where(beyond, 0, last[:, None] - years)
    run = np.zeros((n, span + 1), np.int64)
    for t in reversed(range(span)):
        run[:, t] = np.where(~beyond[:, t] & (state[:, t] == ZERO), run[:, t + 1] + 1, 0)
    return state, z, run[:, :-1], steps


def _hidden_columns(tokens: Any, seen: Any) -> NDArray[np.bool_]:
    """(n, 7): whose record shows a column that was hidden from what is `seen`."""
    hidden = [
        (~np.isnan(tokens.other[..., _TOLD_STATE])).any(1)
        & np.isnan(seen.other[..., _TOLD_STATE]).all(1)
    ]
    for name in CATEGORIES:
        k = schema.CATEGORICAL.index(name)
        hidden.append((tokens.codes[..., k] > 0).any(1) & ~(seen.codes[..., k] > 0).any(1))
    return np.column_stack(hidden)


@dataclass
class _Batches(Dataset[Batch]):
    """Batches of persons drawn at random, each a function of (seed, index) alone."""

    lives: Lives
    until: int
    persons: int
    count: int
    seed: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        rng = np.random.default_rng([self.seed, 3, index])
        total = len(self.lives.sequences)
        return make_batch(
            self.lives, rng.choice(total, min(self.persons, total), replace=False), self.until, rng
        )


class CircumstancesModule(lightning.LightningModule):
    """Maximum likelihood of exits and columns; the network that reads the record is not trained."""

    def __init__(self, law: StateNetwork, network: Saga, options: StateFitOptions) -> None:
        super().__init__()
        self.law, self.options = law, options
        self.__dict__["network"] = (
            network  # no part of the module, hence of no checkpoint and no optimiser
        )

    def losses(self, b: Batch) -> dict[str, Tensor]:
        """Negative log-likelihood a year, of emigration, death and each column."""
        net: Saga = self.__dict__["network"]
        with torch.no_grad():
            token = net.tokens(
                b["token_state"], b["token_z"], b["token_other"], b["token_codes"], b["token_age"]
            )
            hidden, _ = net.hidden(token, b["token_age"])
            told = {
                name: net.tokens.encode_earnings(b[f"{name}_state"], b[f"{name}_z"])
                for name in ("before", "now", "after")
            }
        parts = {
            name: b[name]
            for name in ("zeros", "left", "last", "age", "period", "codes", "workplace", "years")
        }
        year = StateInputs(origin=hidden[b["person"], b["origin"]], **told, **parts)
        leave, die, reads = self.law.exits(year)
        count = max(1, len(leave))
        out = {"leaving": F.cross_entropy(leave, b["leaves"], reduction="sum") / count}
        mortal = torch.where(year.last, b["dies"], -1)
        out["dying"] = F.cross_entropy(die, mortal, ignore_index=-1, reduction="sum") / count

        def happened(j: int, logits: Tensor) -> Tensor:
            truth = b["happened"][:, j]
            out[COLUMNS[j]] = (
                F.cross_entropy(logits, truth, ignore_index=-1, reduction="sum") / count
            )
            return truth.clamp(min=0)

        self.law.columns(reads, year.codes, happened)
        return out

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """One step's loss."""
        losses = self.losses(batch)
        total = torch.stack(list(losses.values())).sum()
        self.log("nll", total, prog_bar=True, batch_size=1)
        return total

    def configure_optimizers(self) -> Any:
        """AdamW, warm-up over 100 steps, then a cosine to zero."""
        optimiser = torch.optim.AdamW(
            self.law.parameters(),
            lr=self.options.learning_rate,
            weight_decay=self.options.weight_decay,
        )
        total = self.options.steps

        def rate(step: int) -> float:
            return (
                min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / total)))
            )

        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def fit_state_network(
    source: Path,
    panel: Panel,
    *,
    out: Path | None = None,
    options: StateFitOptions | None = None,
    seed: int = 0,
    command: str = "",
    progress: bool = True,
) -> Bundle:
    """Fit the law on the panel's training persons and write the bundle at `source`, with it, to `out` (None: in its place).

    Stopped, the same call goes on from the last checkpoint in `<out>.circumstances.run/`. Metrics "circumstances" holds the mean negative
    log-likelihood a year of each column on validation persons. Raises UsageError for a panel of every second year, whose years do not
    follow each other, for one in other money than the bundle or of another name than it was trained on, and for one without training
    or validation persons.
    """
    options, out = options or StateFitOptions(), out or source
    check_replaceable(out)
    forecaster = Forecaster.load(source)
    bundle, network = forecaster.bundle, forecaster.network
    until = int(bundle.config["until"])
    if forecaster.transforms.rhythm != 1:
        raise UsageError(
            "Circumstances are learnt from yearly records; this bundle's panel has others. Leave this step out."
        )
    forecaster.check_money(panel)
    if panel.meta.panel_id != bundle.split["panel_id"]:
        raise UsageError(
            f"The bundle was trained on the panel {bundle.split['panel_id']!r}, this one is {panel.meta.panel_id!r}: its persons are split "
            "otherwise, and those kept for calibration and tests would be learnt from. Give that panel."
        )
    panel = cut(panel, until)
    training, validating = (panel.only(persons_of(panel, part)) for part in ("train", "validation"))
    if not len(training) or not len(validating):
        raise UsageError(
            "The panel has no training or no validation persons. Give the panel that the bundle was trained on."
        )
    run = out.with_name(out.name + ".circumstances.run")
    asked = {
        "options": asdict(options),
        "seed": seed,
        "model": bundle.model_digest,
        "code": current_version(),
        "panel": panel.digest,
    }
    last = run / "last.ckpt"
    if not last.is_file() or read_json(run / _RUN) != asked:
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(parents=True)
        commit_json(run / _RUN, asked)

    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    lightning.seed_everything(seed, verbose=False)
    law = StateNetwork(
        network.config.width, network.tokens.earnings_size, sizes(forecaster), options.width
    )
    module = CircumstancesModule(law, network, options)
    lives = Lives.of(training, forecaster)
    law.told.copy_(torch.from_numpy((lives.codes > 0).any(0)))
    loader = ResumableLoader(
        _Batches(lives, until, options.batch_persons, options.steps, seed), batch_size=None
    )
    clock = Timer()  # kept in checkpoints
    every = ModelCheckpoint(dirpath=run, save_last=True, save_top_k=0, every_n_train_steps=100)
    callbacks: list[Callback] = [
        every,
        clock,
        *([TQDMProgressBar(refresh_rate=20)] if progress else []),
    ]
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=options.steps, gradient_clip_val=1.0, logger=False, callbacks=callbacks,
        enable_progress_bar=progress, enable_model_summary=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        warnings.filterwarnings(
            "ignore", message=".*exists and is not empty.*"
        )  # a run that is gone on with
        try:
            trainer.fit(
                module, loader, ckpt_path=str(last) if last.is_file() else None, weights_only=False
            )
        except SystemExit:  # so Lightning answers Ctrl-C
            raise KeyboardInterrupt from None
    for head, seen in ((law.leave, lives.left), (law.die, lives.sequences.dead_year)):
        if not seen.any():  # a panel without exits does not identify them
            head.bias.data[1] = _NEVER
    judged = validated(module, Lives.of(validating, forecaster), until, options.batch_persons)
    report = {
        "parameters": sum(p.numel() for p in law.parameters()),
        "persons": training.frame["person_id"].n_unique(),
        "steps": trainer.global_step,
        "seconds": round(clock.time_elapsed(), 1),
        "validation_nll": judged,
    }
    made = replace_parts(
        bundle,
        out,
        command=command,
        circumstances={
            name: tensor.detach().cpu().contiguous() for name, tensor in law.state_dict().items()
        },
        metrics={**bundle.metrics, "circumstances": report},
        card=bundle.card.split(_CARD)[0].rstrip() + "\n\n" + _card(report, command),
    )
    shutil.rmtree(run)
    return made


def _card(report: dict[str, Any], command: str) -> str:
    """The model card's part on circumstances."""
    return f"""{_CARD}

State, industry, occupation, county and family along paths of earnings, and who dies or emigrates: {report["parameters"]:,} parameters,
{report["steps"]:,} steps, {report["seconds"]:,.0f} s. Command: `{command or "saga circumstances"}`
"""


def sizes(forecaster: Forecaster) -> tuple[int, ...]:
    """Codes of each column, 0 counted."""
    return tuple(len(codes) + 1 for codes in code_labels(forecaster.transforms).values())


@torch.no_grad()
def validated(
    module: CircumstancesModule, lives: Lives, until: int, persons: int
) -> dict[str, float]:
    """Mean losses a year over all persons, each seen from one random origin a year."""
    module.eval()
    total, years = dict[str, float](), 0
    rng = np.random.default_rng(0)
    for start in range(0, len(lives.sequences), persons):
        batch = make_batch(
            lives, np.arange(start, min(start + persons, len(lives.sequences))), until, rng
        )
        count = len(batch["person"])
        for name, value in module.losses(batch).items():
            total[name] = total.get(name, 0.0) + float(value) * count
        years += count
    return {name: round(value / years, 6) for name, value in total.items()}
