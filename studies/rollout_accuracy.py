"""What the light rollout costs in accuracy, against the exact one on the same persons and uniforms; or bfloat16, against float32.

Usage: python -m studies.rollout_accuracy REGISTER [--bundle bundles/small] [--persons 1000] [--paths 200] [--part test]
    [--bfloat16 exact|light]

Persons of one part of a generated register, one drawn origin each. CRPS of log earnings of both kinds of raw paths, their paired
difference in per cent with its standard error, the same for the present value of 10 years, and nats a year that the cell loses in the log
score of the years that followed (teacher-forced over the whole path; not for --bfloat16, which compares the precisions of one rollout).
Exit 1 where the CRPS is more than 1 % worse.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saga.data.origins import draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.features.sequences import (
    LASTING_CATEGORIES,
    STATIC_CATEGORIES,
    encode,
    last_known,
    pad,
)
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.lifetime import realised_value
from saga.requests import RATE, Draws
from saga.scores import crps_log
from studies.harness import study_parser
from training.masking import make_targets

Array = NDArray[np.float64]
HORIZONS = (1, 2, 5, 10, 20)
K = 10
LIMIT = 1.0  # per cent


def paired(usual: Array, other: Array) -> tuple[float, float, float, int]:
    """Mean of the usual scores, difference in per cent of it, its standard error, and persons."""
    known = ~np.isnan(usual) & ~np.isnan(other)
    base, difference = usual[known].mean(), other[known] - usual[known]
    return (
        float(base),
        100 * float(difference.mean() / base),
        100 * float(difference.std() / base / known.sum() ** 0.5),
        int(known.sum()),
    )


@torch.inference_mode()
def path_loss(
    forecaster: Forecaster, people: Panel, origins: NDArray[np.int64]
) -> tuple[float, float, int]:
    """Nats a year that the cell loses against the decoder over the observed years after the origin, standard error by person, persons."""
    sequences = encode(people, forecaster.transforms, forecaster.calendar)
    net, lost = forecaster.network, []
    for start in range(0, len(sequences), 256):
        rows = np.arange(start, min(start + 256, len(sequences)))
        tokens = pad(sequences, rows)
        asked = make_targets(tokens, sequences.dead_year[rows], forecaster.calendar)
        place = (tokens.valid & (tokens.year <= origins[rows][:, None])).sum(1) - 1
        after = np.arange(tokens.valid.shape[1]) > place[:, None]
        # What a rollout does not simulate is missing after the origin, as in training.
        tokens.other[after] = np.nan
        hidden_codes = after[..., None] & ~STATIC_CATEGORIES
        tokens.codes = np.where(hidden_codes, 0, tokens.codes)
        tokens.codes = np.where(
            after[..., None] & LASTING_CATEGORIES, last_known(tokens.codes), tokens.codes
        )
        state, z, age = (
            torch.from_numpy(x) for x in (tokens.state.astype(np.int64), tokens.z, tokens.age)
        )
        given = net.tokens(
            state, z, torch.from_numpy(tokens.other), torch.from_numpy(tokens.codes), age
        )
        hidden, _ = net.hidden(given, age)
        light = net.fast_hidden(hidden, torch.from_numpy(place), state, z, age)
        scored = torch.from_numpy((asked.gap > 0) & after)
        outcome = (
            torch.from_numpy(asked.state.astype(np.int64)),
            torch.from_numpy(asked.z),
            torch.from_numpy(asked.dead),
        )
        both = []
        for read in (hidden, light):
            p = net.head(read, torch.from_numpy(asked.gap), torch.from_numpy(asked.macro))
            earnings, death = net.head.nll(p, *outcome)
            both.append(((earnings + death) * scored).sum(1))
        years = scored.sum(1)
        lost.append(torch.stack([both[1] - both[0], years.to(both[0].dtype)], 1)[years > 0])
    table = torch.cat(lost).double().numpy()
    mean = table[:, 0].sum() / table[:, 1].sum()
    residual = table[:, 0] - mean * table[:, 1]
    return float(mean), float((residual**2).sum() ** 0.5 / table[:, 1].sum()), len(table)


def main() -> None:
    """Print the table."""
    parser = study_parser(__doc__, n_persons=1_000, n_paths=200)
    parser.add_argument("register", type=Path)
    parser.add_argument("--part", choices=("validation", "test"), default="test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--bfloat16", choices=("exact", "light"), help="compare the precisions of this rollout"
    )
    given = parser.parse_args()
    kinds: dict[str, dict[str, Any]] = {
        "exact": {"rollout": "exact"},
        "light": {"rollout": "light"},
    }
    if given.bfloat16:
        kinds = {
            precision: {"rollout": given.bfloat16, "precision": precision}
            for precision in ("float32", "bfloat16")
        }
    panel = read_panel(given.register)
    ids = persons_of(panel, given.part)
    people = panel.only(sample_persons(ids, given.persons, "rollout-scores", given.seed))
    origins = draw_origins(people, max_horizon=HORIZONS[-1], seed=given.seed, end=last_year(panel))
    known = history(people, origins)
    outcomes = realised_earnings(people, origins, range(1, HORIZONS[-1] + 1), end=last_year(panel))
    scores, values = [], []
    for kind in kinds.values():
        forecaster = Forecaster.load(given.bundle, workers=given.workers, **kind)
        paths = forecaster.simulate(
            known,
            Draws(given.paths, given.seed),
            to_horizon=HORIZONS[-1],
            recalibrate=False,
        )
        columns = np.array(HORIZONS) - 1
        scores.append(crps_log(paths.earnings[:, columns], outcomes[:, columns], panel.meta.floor))
        discounted = (
            paths.earnings[:, :K].astype(np.float64) * (1 + RATE) ** -np.arange(1.0, K + 1)[:, None]
        ).sum(1)
        truth = realised_value(outcomes[:, :K], rate=RATE)
        values.append(crps_log(discounted, truth, panel.meta.floor))
    print(
        f"{given.bundle} on {given.part} persons of {panel.meta.panel_id}, {given.paths} paths, seed {given.seed}\n"
    )
    print("| | {} | {}, difference % | s.e. | persons |\n|".format(*kinds) + "---|" * 5)
    good = True
    for i, h in enumerate(HORIZONS):
        base, difference, se, n = paired(*(own[:, i] for own in scores))
        good &= difference <= LIMIT
        print(f"| CRPS log, h = {h} | {base:.4f} | {difference:+.2f} | {se:.2f} | {n:,} |")
    base, difference, se, n = paired(*values)
    good &= difference <= LIMIT
    print(
        f"| CRPS log of the value of {K} years | {base:.4f} | {difference:+.2f} | {se:.2f} | {n:,} |"
    )
    if given.bfloat16:
        sys.exit(0 if good else 1)
    order = dict(zip(origins.person_id.tolist(), origins.year.tolist(), strict=True))
    followed = people.only(list(order))
    loss, se, n = path_loss(
        forecaster, followed, np.array([order[person] for person in followed.persons()])
    )
    print(
        f"\nLog score of the observed path: the cell loses {loss:.4f} nats a year (s.e. {se:.4f}, {n:,} persons)."
    )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
