"""`python -m saga.evaluation.pretraining`: a bundle trained on many simulated economies.

The bundle is a start for any panel (`saga train --from`). Economies are drawn while the training
runs; each pool of them is used twice, with other masks.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
from saga.evaluation.economies.economy_pools import (
    NO_CALENDAR,
    PANEL_ID,
    VALIDATION,
    Economies,
    take,
)
from saga.evaluation.economies.observation import LAST_YEAR
from saga.training.data import Batch, PanelData
from saga.training.fit import TrainReport, fit_best
from saga.training.harness import RunFolder, RunOptions, seed_run
from saga.training.train_config import TrainConfig, load_config
from torch.utils.data import DataLoader

from saga.bundle import Bundle, BundleContents, write_bundle
from saga.data.split import SPLIT_SHARES
from saga.errors import SagaError
from saga.features.transforms import Transforms
from saga.forecast_warnings import SIMULATED
from saga.model import Saga
from saga.schema import MAX_AGE, MIN_AGE
from saga.training_records import TrainingRecords

POOL_EPOCHS = 2  # epochs for which a pool is used: drawing it takes a tenth of their time


class EconomyData(PanelData):
    """Persons of simulated economies; the pool changes every `POOL_EPOCHS` epochs."""

    def __init__(self, economies: Economies, reference: Transforms, settings: TrainConfig) -> None:
        self.economies, self.reference, self._pool = economies, reference, 0
        validation = economies.pool(VALIDATION, reference)
        chosen = np.random.default_rng([economies.seed, 3]).permutation(len(validation))
        super().__init__(
            economies.pool(0, reference),
            take(validation, np.sort(chosen[: settings.validation_persons])),
            NO_CALENDAR,
            batch_persons=settings.batch_persons,
            seed=economies.seed,
            masking=settings.masking,
        )

    def train_dataloader(self) -> DataLoader[Batch]:
        """The batches of an epoch; a new pool is drawn when it is due."""
        number = (self.trainer.current_epoch if self.trainer else 0) // POOL_EPOCHS
        if number != self._pool:
            self._pool, self.train = number, self.economies.pool(number, self.reference)
        return super().train_dataloader()


def pretrain(
    out: Path,
    economies: Economies,
    *,
    config: str | Path | TrainConfig = "prior",
    run: RunOptions | None = None,
) -> Bundle:
    """Train a network on simulated economies and write it as the bundle `out`.

    Checkpoints and logs are in `<out>.run/`; the checkpoints are removed when the bundle is
    written.

    Args:
        out: The bundle.
        economies: The source of persons; its seed is also that of the initial weights, the batches
            and the masks.
        config: A configuration, its built-in name or its file.
        run: How the run is started.

    Raises:
        UsageError: There is nothing to resume, or the run was started with other settings.
        BundleError: No bundle can be written to `out`.
        KeyboardInterrupt: The run was stopped.
    """
    settings = config if isinstance(config, TrainConfig) else load_config(config)
    run = run or RunOptions()
    folder = RunFolder.beside(
        out,
        {"config": settings.as_dict(), "economies": asdict(economies)},
        resume=run.resume,
    )
    seed_run(economies.seed)
    reference = economies.reference(settings.model.bins)
    data = EconomyData(economies, reference, settings)
    network = Saga(settings.model, reference)
    pool_steps = POOL_EPOCHS * (len(data.train) // settings.batch_persons)
    report = fit_best(network, data, settings, folder, run)
    n_pools = -(-report.steps // pool_steps)
    report = replace(
        report,
        persons={**report.persons, "train": n_pools * len(data.train)},
        person_years=n_pools * len(data.train.year),
    )
    contents = BundleContents(
        config={
            "model": settings.model.as_dict(),
            "training": settings.as_dict(),
            "records": asdict(
                TrainingRecords(
                    LAST_YEAR - reference.span, LAST_YEAR, reference.span, MIN_AGE, MAX_AGE
                )
            ),
        },
        transforms=reference.as_dict(),
        macro={"series": None},
        split={"panel_id": PANEL_ID, "scheme": "given", "shares": list(SPLIT_SHARES.values())},
        weights=dict(network.state_dict()),
        metrics={"training": asdict(report)},
        card=_card(report, settings, n_pools * economies.pool_size, run.command),
    )
    return write_bundle(out, contents, seed=economies.seed, command=run.command)


def _card(report: TrainReport, settings: TrainConfig, n_economies: int, command: str) -> str:
    """The bundle's README.md."""
    return f"""# SAGA bundle `{settings.name}`

{SIMULATED}

Simulated people, not real: a start for training on any panel (`saga train --from`), not for
forecasts. A decoder-only transformer over yearly records, {report.parameters:,} parameters. Trained
on about {report.persons["train"]:,} persons ({report.person_years:,} records) of {n_economies:,}
simulated economies, each with other processes of earnings, other parameters and another panel
design; earnings are relative to the level of their economy. `docs/method/prior.md` says what the
economies contain, and what they lack.
{report.steps:,} steps, {report.seconds:,.0f} s; validation log score {report.validation_nll:.4f}
nats a record, on persons of other economies.

Command: `{command or "python -m saga.evaluation.pretraining"}`

Model:

```json
{json.dumps(settings.model.as_dict(), indent=1)}
```
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m saga.evaluation.pretraining", description=__doc__
    )
    parser.add_argument("--out", type=Path, required=True, help="bundle to write")
    parser.add_argument("--config", default="prior", help="configuration: a name or a YAML file")
    parser.add_argument("--persons", type=int, default=400, help="persons of an economy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    options = parser.parse_args(arguments)
    words = sys.argv[1:] if arguments is None else arguments
    run = RunOptions(
        resume=options.resume,
        command=shlex.join(["python", "-m", "saga.evaluation.pretraining", *words]),
        report=partial(print, file=sys.stderr),
    )
    try:
        economies = Economies(options.seed, options.persons)
        bundle = pretrain(options.out, economies, config=options.config, run=run)
    except SagaError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    report = bundle.metrics["training"]
    sys.stderr.write(
        f"Wrote {options.out}: {bundle.parameters:,} parameters, {report['steps']:,} steps in "
        f"{report['seconds']:,.0f} s, validation log score {report['validation_nll']:.4f}.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
