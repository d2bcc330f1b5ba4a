"""`evaluate_folds`: every person judged once, by models that have seen neither it nor relatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import polars as pl
import pytest
from saga.evaluation import baselines as baseline_module
from saga.evaluation.baselines import CarryForward
from saga.evaluation.baselines.networks.trained_networks import TrainedNetwork
from saga.evaluation.contest import ContestOptions
from saga.evaluation.fold_evaluation import FoldOptions, evaluate_folds
from saga.evaluation.fold_training import SHARES, FoldTraining
from saga.evaluation.scoring.comparison import FAMILY as BY_FAMILY
from saga.evaluation.scoring.comparison import PERSON
from saga.evaluation.scoring.evaluation_settings import Sample
from saga.training import ensembles
from saga.training.train_config import TrainConfig

from saga.data.origins import Origins
from saga.data.panel import Panel, PanelMeta
from saga.data.split import persons_of
from saga.errors import InputError, UsageError
from saga.files.tables import read_provenance
from saga.paths import Paths
from saga.schema import FAMILY
from tests.command_line import refusal
from tests.evaluation.conftest import TOY

Make = Callable[..., Panel]
OPTIONS = ContestOptions(horizons=(1, 5), n_paths=20)


@pytest.fixture(scope="module")
def relatives(random_walk: Make) -> Panel:
    """900 persons in 300 families."""
    panel = random_walk(900)
    family = pl.format("f{}", pl.col("person_id").cast(pl.Int32) // 3).alias(FAMILY.name)
    return Panel.of(
        panel.frame.with_columns(family), PanelMeta("kin", floor=24_150.0, extra=(FAMILY,))
    )


@dataclass
class Log:
    fitted: list[set[str]] = field(default_factory=list)
    judged: list[set[str]] = field(default_factory=list)


class Witness(CarryForward):
    """Carry-forward that records whom it is fitted on and whom it forecasts."""

    name = "witness"
    log = Log()

    def fit(self, panel: Panel, *, seed: int) -> Self:
        self.log.fitted.append(set(panel.persons()))
        self.log.judged.append(set())
        return super().fit(panel, seed=seed)

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        self.log.judged[-1] |= set(origins.person_id.tolist())
        return super().simulate(history, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed)


@pytest.fixture
def witness(monkeypatch: pytest.MonkeyPatch) -> Log:
    Witness.log = Log()
    monkeypatch.setitem(baseline_module.BASELINES, "witness", Witness)
    return Witness.log


@pytest.mark.thorough
def test_every_person_is_judged_once_by_a_model_without_the_person_and_its_family(
    relatives: Panel, witness: Log, tmp_path: Path
) -> None:
    table = evaluate_folds(relatives, tmp_path, OPTIONS, FoldOptions(5, None, ("witness",)))
    assert len(witness.fitted) == 5
    family = {person: int(person) // 3 for person in relatives.persons()}
    for fitted, judged in zip(witness.fitted, witness.judged, strict=True):
        assert not {family[p] for p in fitted} & {family[p] for p in judged}
    scores = pl.read_parquet(tmp_path / "scores/*.parquet")
    one = scores.filter(horizon=1)
    assert one["person_id"].is_unique().all()
    assert set(scores["person_id"]) == set().union(*witness.judged)
    n = table.filter(metric="crps_log", group="all", horizon=1)["n"].to_list()
    assert n == [one.height]
    assert one.height > 600  # persons with an origin and an outcome; a split would judge 90


def test_years_held_out_are_judged_too_and_never_fitted(
    relatives: Panel, witness: Log, tmp_path: Path
) -> None:
    options = ContestOptions(horizons=(1, 5), n_paths=20, until=2012)
    table = evaluate_folds(relatives, tmp_path, options, FoldOptions(2, None, ("witness",)))
    assert set(table["setting"]) == {"in-time", "forward"}
    samples = Sample.of_folds(relatives, 2, seed=0, until=2012)
    assert {sample.training.frame["year"].max() for sample in samples} == {2012}


@pytest.mark.thorough
def test_networks_are_fitted_with_the_configuration_of_the_bundle(
    random_walk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal tokens, masks and steps; without this they would have those of the shipped bundle."""
    fitted: list[TrainConfig] = []

    def fit(network: TrainedNetwork, panel: Panel, *, seed: int) -> None:
        fitted.append(network.config)
        raise InterruptedError

    monkeypatch.setattr(TrainedNetwork, "fit", fit)
    with pytest.raises(InterruptedError):
        evaluate_folds(
            random_walk(200), tmp_path, OPTIONS, FoldOptions(2, FoldTraining(TOY), ("ff",))
        )
    assert [(c.max_steps, c.batch_persons) for c in fitted] == [(8, 64)]


def test_a_panel_smaller_than_its_folds_is_refused(random_walk: Make, tmp_path: Path) -> None:
    panel = random_walk(600)
    few = panel.only(panel.persons()[:4])
    with pytest.raises(InputError, match="too small for these folds") as error:
        evaluate_folds(few, tmp_path, OPTIONS, FoldOptions(5, None, ("carry",)))
    assert "4 persons or families" in str(error.value.problems[0])
    with pytest.raises(UsageError, match="--folds must be 2 to 20, not 1"):
        FoldOptions(1)


@pytest.mark.thorough
@pytest.mark.slow
def test_bundles_are_trained_and_calibrated_without_the_persons_of_their_fold(
    relatives: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[set[str]] = []
    train = ensembles.train_members

    def spy(panel: Panel, *args: object, **kwargs: object) -> object:
        trained.append(set(panel.persons()))
        return train(panel, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("saga.evaluation.fold_training.train_members", spy)
    options = FoldOptions(2, FoldTraining(TOY), ("carry",))
    few = ContestOptions(horizons=(1, 5), n_paths=20, n_persons=90)
    table = evaluate_folds(relatives, tmp_path, few, options)
    for persons, sample in zip(trained, Sample.of_folds(relatives, 2, seed=0), strict=True):
        assert persons == set(sample.training.persons())
        assert not persons & set(sample.test.persons())
        assert sum(len(persons_of(sample.training, part, SHARES)) for part in SHARES) == len(
            persons
        )
    comparisons = pl.read_parquet(tmp_path / "comparisons.parquet")
    assert BY_FAMILY in comparisons["test"].to_list()
    assert PERSON not in comparisons["test"].to_list()
    record = read_provenance(tmp_path / "metrics.parquet")
    assert (record["folds"], len(record["bundles"]), record["split"]) == (2, 2, "folds")
    # A second call trains nothing and gives the same table.
    assert evaluate_folds(relatives, tmp_path, few, options).equals(table)
    assert len(trained) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--panel p --out o", "Give the directory of a bundle, or --folds 5"),
        ("b --folds 5 --panel p --out o", "Leave BUNDLE out"),
        ("b --until 2000 --panel p --out o", "--until is only for --folds"),
        ("b --from c --panel p --out o", "--from is only for --folds"),
        ("b --config tiny --panel p --out o", "--config is only for --folds"),
        ("--folds 5 --tables placebos --panel p --out o", "--tables is not for --folds"),
        ("--folds 5 --split cohort --panel p --out o", "--split is not for --folds"),
    ],
)
def test_options_of_the_other_mode_are_refused(line: str, message: str) -> None:
    assert message in refusal("evaluate", line)
