"""What accuracy does the light rollout cost, compared with the exact one? Or bfloat16?

    python -m studies.rollout_accuracy REGISTER [--bundle bundles/small] [--persons 1000]
        [--paths 200] [--part test] [--bfloat16 exact|light] [--seed 0] [--workers 2]
        [--report FILE]

Persons of one part of a generated register have one drawn origin each, and both rollouts have the
same random numbers. The table gives the CRPS of the log present value of 2, 5, 10 and 20 years, and
the paired difference in per cent with its standard error. A last line gives the loss of the fast
cell in the log score of the observed years after the origin, in nats a year; each year is scored
given the observed years before it. --bfloat16 compares the precisions of one rollout instead. Exit
1 if some CRPS is more than 1 % worse.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from saga.evaluation.scoring.ensemble_scores import crps_log
from saga.training.masking import continue_inputs, make_targets

from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.features.sequences import encode, pad
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.lifetime import present_value, realised_value
from saga.pages.format import markdown_table
from saga.requests import RATE, Draws, Precision, RolloutName
from studies.study_page import bundle_parser, page_head, publish_page

Array = NDArray[np.float64]
SUMMED_YEARS = (2, 5, 10, 20)
MAX_LOSS = 1.0  # per cent


def paired_difference(reference: Array, other: Array) -> tuple[float, float, float, int]:
    """Mean of the reference, difference in per cent of it, its standard error, persons."""
    both = ~np.isnan(reference) & ~np.isnan(other)
    base, difference = reference[both].mean(), other[both] - reference[both]
    return (
        float(base),
        100 * float(difference.mean() / base),
        100 * float(difference.std() / base / both.sum() ** 0.5),
        int(both.sum()),
    )


@torch.inference_mode()
def log_score_loss(
    forecaster: Forecaster, panel: Panel, origins: NDArray[np.int64]
) -> tuple[float, float, int]:
    """Nats a year that the fast cell loses against the decoder after the origin.

    Returns the loss, its standard error over persons, and the number of persons.
    """
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    network, losses = forecaster.network, []
    for start in range(0, len(sequences), 256):
        rows = np.arange(start, min(start + 256, len(sequences)))
        tokens = pad(sequences, rows)
        targets = make_targets(tokens, sequences.dead_year[rows], forecaster.calendar)
        position = (tokens.valid & (tokens.year <= origins[rows][:, None])).sum(1) - 1
        after = np.arange(tokens.valid.shape[1]) > position[:, None]
        other, codes = continue_inputs(tokens.other, tokens.codes, after, tokens.continued)
        state, z, age = (
            torch.from_numpy(x) for x in (tokens.state.astype(np.int64), tokens.z, tokens.age)
        )
        embedded = network.tokens(state, z, torch.from_numpy(other), torch.from_numpy(codes), age)
        hidden, _ = network.hidden(embedded, age)
        fast_hidden = network.fast_hidden(hidden, torch.from_numpy(position), state, z, age)
        scored = torch.from_numpy((targets.gap > 0) & after)
        gap, macro, next_state, next_z, dead = (
            torch.from_numpy(x)
            for x in (
                targets.gap,
                targets.macro,
                targets.state.astype(np.int64),
                targets.z,
                targets.dead,
            )
        )
        nats = []
        for state_vectors in (hidden, fast_hidden):
            parameters = network.head(state_vectors, gap, macro)
            earnings, death = network.head.nll(parameters, next_state, next_z, dead)
            nats.append(((earnings + death) * scored).sum(1))
        years = scored.sum(1)
        difference = torch.stack([nats[1] - nats[0], years.to(nats[0].dtype)], 1)
        losses.append(difference[years > 0])
    loss, n_years = torch.cat(losses).double().numpy().T
    mean = loss.sum() / n_years.sum()
    residual = loss - mean * n_years
    return float(mean), float((residual**2).sum() ** 0.5 / n_years.sum()), len(loss)


def value_scores(forecaster: Forecaster, past: Panel, outcomes: Array, draws: Draws) -> list[Array]:
    """CRPS (n,) of the log present value of the first years, for each of SUMMED_YEARS."""
    paths = forecaster.simulate(past, draws, to_horizon=SUMMED_YEARS[-1])
    return [
        crps_log(
            present_value(paths, rate=RATE, years=years)[:, None],
            realised_value(outcomes[:, :years], rate=RATE)[:, None],
            past.meta.floor,
        )[:, 0]
        for years in SUMMED_YEARS
    ]


def main() -> None:
    """Print the table, and for two rollouts the loss of the fast cell."""
    parser = bundle_parser(__doc__, n_persons=1_000, n_paths=200)
    parser.add_argument("register", type=Path)
    parser.add_argument("--part", choices=("validation", "test"), default="test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--bfloat16", choices=("exact", "light"), help="compare the precisions of this rollout"
    )
    args = parser.parse_args()
    kinds: dict[str, tuple[RolloutName, Precision]] = {
        "exact": ("exact", "float32"),
        "light": ("light", "float32"),
    }
    if args.bfloat16:
        kinds = {p: (args.bfloat16, p) for p in get_args(Precision)}
    panel = read_panel(args.register)
    ids = persons_of(panel, args.part)
    persons = panel.only(sample_persons(ids, args.persons, "rollout-scores", args.seed))
    end, longest = last_year(panel), SUMMED_YEARS[-1]
    origins = draw_origins(persons, max_horizon=longest, seed=args.seed, end=end)
    past = history(persons, origins)
    outcomes = realised_earnings(persons, origins, range(1, longest + 1), end=end)
    draws = Draws(args.paths, args.seed)
    scores = []
    for rollout, precision in kinds.values():
        forecaster = Forecaster.load(
            args.bundle, workers=args.workers, rollout=rollout, precision=precision
        )
        scores.append(value_scores(forecaster, past, outcomes, draws))
    rows, is_within = [], True
    for years, reference, other in zip(SUMMED_YEARS, *scores, strict=True):
        base, difference, se, n = paired_difference(reference, other)
        is_within &= difference <= MAX_LOSS
        name = f"CRPS log of the value of {years} years"
        rows.append([name, f"{base:.4f}", f"{difference:+.2f}", f"{se:.2f}", f"{n:,}"])
    reference_kind, other_kind = kinds
    header = ["score", reference_kind, f"{other_kind}, difference %", "s.e.", "persons"]
    head = page_head(
        "Accuracy of the rollouts",
        __file__,
        bundle=forecaster.bundle.digest[:12],
        panel=panel.meta.panel_id,
        seed=args.seed,
    )
    parts = [head, markdown_table(header, rows)]
    if not args.bfloat16:
        year_of = dict(zip(origins.person_id.tolist(), origins.year.tolist(), strict=True))
        followed = persons.only(list(year_of))
        origin_years = np.array([year_of[person] for person in followed.persons()])
        loss, se, n = log_score_loss(forecaster, followed, origin_years)
        parts.append(
            f"Log score of the observed path: the fast cell loses {loss:.4f} nats a year "
            f"(s.e. {se:.4f}, {n:,} persons)."
        )
    publish_page("\n\n".join(parts), args.report)
    sys.exit(0 if is_within else 1)


if __name__ == "__main__":
    main()
