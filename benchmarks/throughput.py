"""How many person-years a second does training process, by Lightning and by a plain loop?

    python benchmarks/throughput.py [--config small] [--persons 6000] [--steps 200] [--repeats 3]
        [--threads 2]

Both process the same batches (masking included), with the same losses, clipped gradients, optimiser
and schedule, in the precision "auto": bfloat16 on a GPU, float32 on a CPU. On a CPU the plain loop
is also run in bfloat16, which has been slower even on processors with units for it. The fastest of
--repeats alternating runs counts. Neither validates or writes checkpoints; only Lightning logs and
averages weights.
"""

from __future__ import annotations

import argparse
import logging
import platform
import tempfile
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from saga.training.data import Batch
from saga.training.fit import lightning_trainer, prepare
from saga.training.harness import RunOptions
from saga.training.module import ForecastModule
from saga.training.train_config import TrainConfig, load_config
from torch.utils.data import DataLoader

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register

WARM_UP = 20  # steps before the clock starts


class Clock(Callback):
    """Person-years and seconds of the steps after the warm-up."""

    def __init__(self) -> None:
        self.years, self.start, self.seconds = 0, 0.0, 0.0

    def on_train_batch_end(
        self,
        trainer: Trainer,
        _module: LightningModule,
        _outputs: object,
        batch: Batch,
        _batch_index: int,
    ) -> None:
        """Start after the last step of the warm-up, then count."""
        if trainer.global_step == WARM_UP:
            self.start = time.perf_counter()
        elif trainer.global_step > WARM_UP:
            self.years += int(batch["person_years"])
            self.seconds = time.perf_counter() - self.start


def by_lightning(panel: Panel, settings: TrainConfig) -> float:
    """Person-years per second of `saga train` without its validation."""
    data, network, *_ = prepare(panel, settings, 1)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(dirpath=folder, monitor="validation", save_last=False)
        trainer = lightning_trainer(
            settings,
            Path(folder),
            [best],
            RunOptions(progress=False),
            len(data.train) // settings.batch_persons,
        )
        clock = Clock()
        trainer.callbacks.append(clock)  # type: ignore[attr-defined]
        trainer.limit_val_batches = 0
        trainer.fit(ForecastModule(network, settings), data)
    return clock.years / clock.seconds


def by_hand(panel: Panel, settings: TrainConfig, bf16: bool) -> float:
    """Person-years per second of a plain loop."""
    data, network, *_ = prepare(panel, settings, 1)
    module = ForecastModule(network, settings)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module.to(device).train()
    optimisation = module.configure_optimizers()
    optimiser, schedule = optimisation["optimizer"], optimisation["lr_scheduler"]["scheduler"]
    years, start, steps = 0, 0.0, 0
    while steps < settings.max_steps:
        batches: DataLoader[Batch] = data.train_dataloader()
        for batch in batches:
            if steps == settings.max_steps:
                break
            on_device = {name: value.to(device) for name, value in batch.items()}
            with torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext():
                _, _, objective = module.losses(on_device)
            optimiser.zero_grad()
            objective.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(module.parameters(), settings.clip)
            optimiser.step()
            schedule.step()
            steps += 1
            if steps == WARM_UP:
                start = time.perf_counter()
            elif steps > WARM_UP:
                years += int(batch["person_years"])
    return years / (time.perf_counter() - start)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="small")
    parser.add_argument("--persons", type=int, default=6_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    torch.set_num_threads(args.threads)
    gpu = torch.cuda.is_available()
    steps = args.steps + WARM_UP
    settings = replace(
        load_config(args.config), max_steps=steps, validate_every=steps, validation_persons=50
    )
    with tempfile.TemporaryDirectory() as folder:
        register = Path(folder) / "register"
        generate_register(register, RegisterSettings(persons=args.persons, seed=1))
        panel = read_panel(register)
    default = "bf16-mixed" if gpu else "32-true"
    rates: dict[tuple[str, str], float] = {}
    for _ in range(args.repeats):
        for loop, rate in (
            ("lightning", by_lightning(panel, settings)),
            ("plain", by_hand(panel, settings, bf16=gpu)),
        ):
            rates[default, loop] = max(rate, rates.get((default, loop), 0.0))
    if not gpu:
        short = replace(settings, max_steps=WARM_UP + max(1, args.steps // 10), validate_every=1)
        rates["bf16-mixed", "plain"] = by_hand(panel, short, bf16=True)
    cpu = f"{platform.processor() or platform.machine()}, {args.threads} threads"
    print(
        f"{args.config}, {args.steps} steps of {settings.batch_persons} persons on "
        f"{torch.cuda.get_device_name() if gpu else cpu}; torch {torch.__version__}, "
        f"AMX {_has_amx()}"
    )
    print(f"{'precision':<12}{'loop':<12}{'person-years/s':>16}{'Lightning slower by':>21}")
    for (precision, loop), rate in rates.items():
        slower = f"{rates[precision, 'plain'] / rate - 1:+.1%}" if loop == "lightning" else ""
        print(f"{precision:<12}{loop:<12}{rate:>16,.0f}{slower:>21}")


def _has_amx() -> bool:
    supported = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(supported and supported())


if __name__ == "__main__":
    main()
