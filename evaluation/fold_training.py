"""The bundle of one fold: trained and calibrated on the persons outside the fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.training.ensembles import train_members
from saga.training.fit import settings_for
from saga.training.harness import RunOptions
from saga.training.train_config import TrainConfig
from saga.training.transfer import Source
from saga.training.tree_member import TREES_VERSION, allows_trees

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.split import Shares, persons_of
from saga.files.atomic import digest_json
from saga.files.bundle_folder import MANIFEST
from saga.requests import RolloutName
from saga.version import current_version

# Shares of the persons outside a fold; the test persons are those of the fold.
SHARES: Shares = {"train": 0.8, "validation": 0.1, "calibration": 0.1, "test": 0.0}


@dataclass(frozen=True)
class FoldTraining:
    """How the bundle of every fold is trained and calibrated.

    Args:
        config: A training configuration, its built-in name, its file, or "auto".
        rollout: How paths are simulated; None: as in calibration by default.
        command: The command line, for the model card.
        source: Bundle whose weights training starts from.
        report: Receives a line of text after each validation.
    """

    config: str | Path | TrainConfig = "small"
    rollout: RolloutName | None = None
    command: str = ""
    source: Path | None = None
    report: Callable[[str], None] | None = None

    def settings_of_networks(self, panel: Panel) -> TrainConfig:
        """The configuration of baseline networks, whose weights start at random.

        "auto" is resolved for the number of training persons in `panel`; any other configuration
        is used as it is.
        """
        return settings_for(self.config, len(persons_of(panel, "train", SHARES)))

    def settings(self, panel: Panel) -> Mapping[str, Any]:
        """Settings that, with persons, seed and last year, determine the bundles.

        `panel` has all persons, or those outside a fold; "auto" depends on their number.
        """
        source = None if self.source is None else Source.open(self.source)
        config = settings_for(self.config, len(persons_of(panel, "train", SHARES)), source)
        return {
            "config": config.as_dict(),
            "rollout": self.rollout,
            "shares": list(SHARES.values()),
            **({"trees": TREES_VERSION} if allows_trees(panel, config) else {}),
            **({} if source is None else {"source": source.digest}),
        }

    def bundle(
        self, panel: Panel, folder: Path, *, fold: int, seed: int, until: int | None
    ) -> Bundle:
        """The calibrated bundle of `panel`, the persons outside the fold, in `folder`.

        A finished bundle of the same persons and settings is reused, and an interrupted training is
        continued.
        """
        inputs = [self.settings(panel), panel.digest, seed, until, current_version()]
        path = folder / f"without-fold-{fold}-{digest_json(inputs)[:12]}"
        if not (path / MANIFEST).is_file():
            run = path.with_name(path.name + ".run")
            started = any(
                (run / name).exists() for name in ("last.ckpt", "member-0", "member-0.run")
            )
            folder.mkdir(parents=True, exist_ok=True)
            train_members(
                panel,
                path,
                config=self.config,
                seed=seed,
                until=until,
                shares=SHARES,
                run=RunOptions(
                    resume=started,
                    command=self.command,
                    source=self.source,
                    report=self.report,
                ),
            )
        trained = Bundle.load(path)
        if "calibration" in trained.metrics:
            return trained
        options = CalibrationOptions(seed=seed, rollout=self.rollout, until=until)
        return calibrate_bundle(path, panel, options, command=self.command)
