"""Throughput of training: person-years per second, by Lightning and by a plain loop over the same batches, in one run.

Usage: python benchmarks/throughput.py [--config small] [--persons 6000] [--steps 200] [--repeats 3] [--threads 2]

Both make the same batches (masking counted), losses, clipped steps of the same optimiser and schedule, on the machine's own precision
("auto": bfloat16 on a GPU, float32 on a CPU); on a CPU the plain loop in bfloat16 too, which has been slower even where the processor has
units for it. The fastest of --repeats alternating runs counts. Validation and checkpoints are left out of both, logging and the averaging
of weights are Lightning's own.
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
from torch.utils.data import DataLoader

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from training.data import Batch
from training.fit import lightning_trainer, prepare
from training.harness import RunOptions
from training.module import ForecastModule
from training.train_config import TrainConfig, load_config

WARM = 20  # steps before the clock starts


class Clock(Callback):
    """Person-years and seconds of the steps after the warm ones."""

    def __init__(self) -> None:
        self.years, self.begun, self.seconds = 0, 0.0, 0.0

    def on_train_batch_end(
        self,
        trainer: Trainer,
        module: LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Starts behind the last warm step, then counts."""
        if trainer.global_step == WARM:
            self.begun = time.perf_counter()
        elif trainer.global_step > WARM:
            self.years += int(batch["whole"])
            self.seconds = time.perf_counter() - self.begun


def by_lightning(panel: Panel, settings: TrainConfig) -> float:
    """Person-years a second as `saga train` trains, but for validation."""
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
    """Person-years a second of a loop with nothing but the mathematics."""
    data, network, *_ = prepare(panel, settings, 1)
    module = ForecastModule(network, settings)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module.to(device).train()
    made = module.configure_optimizers()
    optimiser, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    years, begun, steps = 0, 0.0, 0
    while steps < settings.max_steps:
        batches: DataLoader[Batch] = data.train_dataloader()
        for batch in batches:
            if steps == settings.max_steps:
                break
            on_device = {name: value.to(device) for name, value in batch.items()}
            with torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext():
                _, _, objective = module.losses(on_device)
            optimiser.zero_grad()
            objective.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), settings.clip)
            optimiser.step()
            schedule.step()
            steps += 1
            if steps == WARM:
                begun = time.perf_counter()
            elif steps > WARM:
                years += int(batch["whole"])
    return years / (time.perf_counter() - begun)


def main() -> None:
    """Prints the table."""
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
    steps = args.steps + WARM
    settings = replace(
        load_config(args.config), max_steps=steps, validate_every=steps, validation_persons=50
    )
    with tempfile.TemporaryDirectory() as folder:
        register = Path(folder) / "register"
        generate_register(register, RegisterSettings(persons=args.persons, seed=1))
        panel = read_panel(register)
    own = "bf16-mixed" if gpu else "32-true"
    rates: dict[tuple[str, str], float] = {}
    for _ in range(args.repeats):
        for loop, rate in (
            ("lightning", by_lightning(panel, settings)),
            ("plain", by_hand(panel, settings, bf16=gpu)),
        ):
            rates[own, loop] = max(rate, rates.get((own, loop), 0.0))
    if not gpu:
        few = replace(settings, max_steps=WARM + max(1, args.steps // 10), validate_every=1)
        rates["bf16-mixed", "plain"] = by_hand(panel, few, bf16=True)
    on = (
        torch.cuda.get_device_name()
        if gpu
        else f"{platform.processor() or platform.machine()}, {args.threads} threads"
    )
    print(
        f"{args.config}, {args.steps} steps of {settings.batch_persons} persons on {on}; torch {torch.__version__}, AMX {_has_amx()}"
    )
    print(f"{'precision':<12}{'loop':<12}{'person-years/s':>16}{'Lightning takes':>18}")
    for (precision, loop), rate in rates.items():
        more = f"{rates[precision, 'plain'] / rate - 1:+.1%}" if loop == "lightning" else ""
        print(f"{precision:<12}{loop:<12}{rate:>16,.0f}{more:>18}")


def _has_amx() -> bool:
    return (
        bool(torch.cpu._is_amx_tile_supported())
        if hasattr(torch.cpu, "_is_amx_tile_supported")
        else False
    )


if __name__ == "__main__":
    main()
