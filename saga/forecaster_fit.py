"""From a table of earnings to a forecaster in one call: `saga.fit`.

It imports training, calibration and evaluation when it runs, as the commands do, and calls the same
functions: `saga train`, `saga calibrate` and `saga evaluate`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

from saga.bundle import Bundle, replace_parts
from saga.data.mapping import given_names, require_no_names
from saga.data.origins import require_trainable
from saga.data.panel import Panel
from saga.data.reading import Source
from saga.data.split import salted_beside
from saga.errors import FileProblem, InputError, Problem, UsageError
from saga.files.atomic import sole_output
from saga.files.data_frames import Rows
from saga.forecaster import FITTED, LEADERBOARD, Forecaster
from saga.macro.history import histories_of

if TYPE_CHECKING:
    import polars as pl

    from saga.training.harness import TimeLimit

_TRAINING_SHARE = 0.6  # of the time limit; the rest is for calibration and judgement
_HORIZONS = (1, 5, 10)
_RIVALS = ("carry", "groupq", "gbt")  # the quick baselines, and the best of the others
_FOLDS = 5  # of panels with too few persons to keep some for calibration


def fit(
    source: Panel | Rows,
    *,
    id: str | None = None,
    time: str | None = None,
    target: str | None = None,
    birth_year: str | None = None,
    config: str | Path | None = None,
    time_limit: float | None = None,
    out: str | Path | None = None,
) -> Forecaster:
    """Train a model on a panel, calibrate it, judge it, and return its forecaster.

    It does what `saga train`, `saga calibrate` and `saga evaluate` do with their defaults; with few
    persons it trains one network for each of five folds. Test persons, a tenth, take no part but in
    the judgement, which needs the evidence (`pip install 'saga-forecast[evidence]'`): see
    `Forecaster.leaderboard`.

    Args:
        source: A file, a data frame or a dictionary of columns, as for `read_panel`; or a panel,
            for other currencies, prices, codes and columns. The forecaster of a frame reads others
            with the same names, that of a panel takes panels only and has its facts.
        id: Column of the person, as for `read_panel`.
        time: Column of the year.
        target: Column of the earnings, in nominal SEK.
        birth_year: Column of the year of birth.
        config: Configuration of the network: auto, tiny, small, base or a YAML file; by default as
            in `saga train`.
        time_limit: Seconds that it may take. Training stops with what it has after 60 % of them,
            and the judgement is left out if no time remains; `Forecaster.summary` says what was
            left out. A step under way is finished, so it may take longer.
        out: The bundle to write; by default a temporary folder, and the forecaster is in memory.

    Raises:
        InputError: The panel breaks a rule, is too small, or has logarithms of earnings.
        UsageError: An option is not valid, or another process is writing to `out`.

    Example:
        >>> import saga
        >>> forecaster = saga.fit("register", config="tiny", time_limit=30)
        >>> forecaster.bundle.trained_on
        'simulated people'
    """
    named = given_names(id, time, target, birth_year)
    if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
        raise UsageError(f"time_limit is a number of seconds above 0, not {time_limit!r}.")
    panel = _panel(source, named)
    # Refused before the libraries of training are loaded: that takes seconds.
    require_trainable(panel)
    histories_of(panel)
    with tempfile.TemporaryDirectory(prefix="saga-") as folder:
        path = Path(folder, "bundle") if out is None else Path(out)
        columns = None if isinstance(source, Panel) else named
        with sole_output(path):
            return _fit(panel, path, Path(folder), columns, config, time_limit)


def _panel(source: Panel | Rows, named: Mapping[str, str]) -> Panel:
    if isinstance(source, Panel):
        require_no_names(named)
        return source
    try:
        return Source(source, names=named).read()
    except InputError as error:
        raise InputError(error.args[0], [*map(_with_panel, error.problems)]) from None


def _with_panel(problem: Problem) -> Problem:
    """A problem whose fix is a mapping, with how `fit` takes one."""
    if not isinstance(problem, FileProblem) or "mapping" not in problem.file_fix:
        return problem
    by_panel = "saga.fit takes a mapping by a panel: read_panel(rows, mapping=...)."
    return replace(problem, file_fix=f"{problem.file_fix} {by_panel}")


def _fit(
    panel: Panel,
    path: Path,
    scratch: Path,
    columns: Mapping[str, str] | None,
    config: str | Path | None,
    time_limit: float | None,
) -> Forecaster:
    """The forecaster of a panel, whose bundle is written to `path`; `scratch` takes other files.

    `columns` are the names that it remembers of a source, None if that was a panel.
    """
    from saga.calibration.fit.bundle_calibration import calibrate_bundle
    from saga.training.harness import TimeLimit

    begun = time.monotonic()
    limit = TimeLimit(None if time_limit is None else begun + time_limit)
    command = "saga.fit"
    panel = salted_beside(panel, path)
    _train(panel, path, config, limit.part(_TRAINING_SHARE), command)
    bundle = calibrate_bundle(path, panel, command=command)
    board = None
    if limit.is_over:
        limit.leave_out("judgement", "no time was left")
    elif find_spec("saga.evaluation") is None:
        limit.leave_out("judgement", "the evidence is not installed")
    else:
        board = _judge(bundle, panel, scratch / "judgement", limit)
    fitted = {
        "columns": columns,
        "time_limit": time_limit,
        "seconds": round(time.monotonic() - begun, 1),
        "left_out": [f"{part}: {what}" for part, what in limit.left_out.items()],
        LEADERBOARD: None if board is None else board.to_dicts(),
    }
    metrics = {**bundle.metrics, FITTED: fitted}
    fitted_bundle = replace_parts(bundle, path, metrics=metrics, command=command)
    return Forecaster(fitted_bundle, facts=panel.meta.facts)


def _train(
    panel: Panel, path: Path, config: str | Path | None, limit: TimeLimit, command: str
) -> None:
    """Train as `saga train` would, on folds if too few persons would be kept for calibration."""
    from saga.data.split import persons_of
    from saga.training.ensembles import MIN_CALIBRATION_PERSONS, train_folds, train_members
    from saga.training.harness import RunOptions
    from saga.training.train_config import choose_start

    chosen, start = choose_start(
        None if config is None else str(config),
        None,
        simulated=panel.meta.simulated,
        n_persons=panel.n_persons,
    )
    run = RunOptions(command=command, source=start, limit=limit)
    if len(persons_of(panel, "calibration")) < MIN_CALIBRATION_PERSONS:
        train_folds(panel, path, _FOLDS, config=chosen, run=run)
    else:
        train_members(panel, path, config=chosen, run=run)


def _judge(bundle: Bundle, panel: Panel, folder: Path, limit: TimeLimit) -> pl.DataFrame | None:
    """Error and coverage of the bundle and of its rivals; None if there is nobody to judge on."""
    import polars as pl

    from saga.evaluation.bundle_evaluation import EvaluationOptions, evaluate
    from saga.evaluation.contest import ContestOptions

    try:
        metrics = evaluate(
            bundle.path,
            panel,
            folder,
            ContestOptions(horizons=_HORIZONS),
            EvaluationOptions(baselines=_RIVALS),
        )
    except InputError as error:
        fixes = [problem.fix for problem in error.problems]
        limit.leave_out("judgement", " ".join([error.args[0], *fixes]))
        return None
    shown = pl.col("metric").is_in(["crps_log", "coverage_90"])
    means = metrics.filter(shown, pl.col("group") == "all", pl.col("n") > 0)
    table = means.pivot("metric", index=["horizon", "model", "n"], values="value")
    return table.sort("horizon", "crps_log")
