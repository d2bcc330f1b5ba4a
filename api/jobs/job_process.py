"""The process of one job: `python -m saga.api.jobs.job_process FOLDER`.

It runs the batch engine on the folder of the job. It may be killed at any moment: the next process
continues, and the result has the same bytes.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from polars.exceptions import PanicException
from saga.api.codecs import PARQUET, encode_table
from saga.api.jobs.child_process import receive_settings
from saga.api.jobs.job_folders import (
    OUT_OF_DISK,
    OUT_OF_MEMORY,
    JobFolder,
    JobFolders,
    JobOrder,
    Outcome,
    Progress,
)
from saga.api.logs import error_location, make_logger
from saga.api.problems import error_document, internal_document
from saga.api.refusals import refused
from saga.api.request_models import JobOptions
from saga.api.request_panel import request_mapping
from saga.api.settings import Settings
from saga.api.table_process import limit_memory
from saga.api.table_reader import check_file
from saga.calibration.adaptive.issuance import AdaptiveRecipe

from saga.batch.engine import BatchInterruptedError, score
from saga.batch.products import Recipe
from saga.batch.run_folder import RUN, merge_parts
from saga.bundle import Bundle
from saga.data.facts import Facts, open_facts
from saga.data.reading import Source
from saga.errors import SagaError
from saga.features.transforms import Transforms
from saga.files.atomic import FolderInUseError, commit, file_lock, read_json
from saga.forecast_warnings import warning_dicts
from saga.forecaster import Forecaster
from saga.population.disclosure import DisclosureRules
from saga.population.policy_tables import make_tables
from saga.population.population_paths import check_groups, population_of
from saga.population.scored_paths import ScoredPaths
from saga.requests import ForecastRequest, PathsRequest, PensionRequest, PopulationRequest
from saga.schema import MIN_AGE

_BYTES_A_PATH_YEAR, _BYTES_A_ROW = 10, 1_000  # on disk, in the parts and the merged file together
_NICENESS = 10  # calls that wait for an answer go first
_MAX_CELLS = 20_000  # of a year; each takes some milliseconds
_TABLE_SECONDS = 3600.0  # for all years: to hide many small cells takes longer
_PREDECESSOR_SECONDS = 60.0  # longest wait for a process that computed the job before


def run_job(folder: JobFolder, settings: Settings) -> None:
    """Compute a job and write its outcome; without one, the job is to be started again."""
    order = folder.read(JobOrder)
    if order is None or folder.read(Outcome) is not None:
        return
    log = make_logger(sys.__stderr__).bind(job=order.id, holder=order.holder)
    try:
        folder.finish("succeeded", totals=_compute(folder, order, settings))
        log.info("job_computed")
    except BatchInterruptedError:
        log.warning("job_interrupted")
    except SagaError as error:
        folder.finish("failed", problem=_without_path(error_document(_unnamed(error)), folder))
        log.info("job_refused", title=error.title)
    except (Exception, PanicException) as error:
        folder.finish("failed", problem=_failure(error))
        log.error("job_failed", **error_location(error))


def _compute(folder: JobFolder, order: JobOrder, settings: Settings) -> Mapping[str, Any]:
    options = JobOptions.model_validate(order.options)
    facts = open_facts(settings.facts)
    source = _source(folder, order, options, settings, facts)
    request = options.request
    recipe = _recipe(folder, options, settings, facts, order.holder).with_contents()
    earlier = read_json(folder.out / RUN)
    if earlier is not None and earlier["recipe"] != json.loads(json.dumps(recipe.describe())):
        # The service got another bundle or version meanwhile; a result is of one of them.
        _delete_run(folder.out)

    runs = {folder.out: recipe}
    if isinstance(request, PopulationRequest):
        # The panel is read again for the tables: meanwhile it would take the memory of the paths.
        check_groups(source.read(), request, _check_cells)
        if (other := request.reference) is not None:
            draws = Forecaster.load(settings.bundle).reference_draws(options.draws(), other)
            runs[folder.out / "reference"] = replace(recipe, draws=draws)  # under the same state

    def note(run: int, done: int, persons: int) -> None:
        progress = folder.read(Progress)
        if progress is None:
            n_bytes = len(runs) * _expected_bytes(options, persons)
            progress = _take_room(folder, order.holder, persons, n_bytes, settings)
        folder.write(replace(progress, done=(run * persons + done) // len(runs)))

    report, *_ = (
        score(source, out, of_run, workers=settings.job_processes, progress=partial(note, run))
        for run, (out, of_run) in enumerate(runs.items())
    )
    if report.rows and isinstance(request, PopulationRequest):
        _tabulate(folder, list(runs), source, request, facts)
    elif report.rows:
        merge_parts(folder.out, folder.result)
    unused = {"columns_not_used": list(source.ignored)} if source.ignored else {}
    return {**report.totals, **unused}


def _tabulate(
    folder: JobFolder,
    runs: Sequence[Path],
    source: Source,
    request: PopulationRequest,
    facts: Facts,
) -> None:
    """Write the table of groups, and delete the paths of single persons.

    `runs` has the paths, and those of the reference if there is one.
    """
    scored, *of_reference = map(ScoredPaths, runs)
    panel, rules = source.read(), DisclosureRules()
    population = population_of(scored, panel, request, None, facts, *of_reference)
    end = time.monotonic() + _TABLE_SECONDS
    tables = make_tables(
        population, request, rules, transition_years=None, progress=partial(_check_time, end)
    )
    provenance = population.provenance(request, rules)
    warnings = [w for run in (scored, *of_reference) for w in run.totals["warnings"]]
    warnings += warning_dicts(tables.warnings)
    provenance |= {"warnings": [w for i, w in enumerate(warnings) if w not in warnings[:i]]}
    content = encode_table(tables.statistics, PARQUET, provenance)
    commit(folder.result, lambda path: path.write_bytes(content))
    _delete_run(folder.out)


def _check_cells(n_cells: int) -> None:
    """Raise BudgetError for cells that would keep a worker from the jobs of others for hours."""
    if n_cells > _MAX_CELLS:
        raise refused("max-job-cells", {"cells": n_cells, "limit": _MAX_CELLS})


def _check_time(end: float, *_years: int) -> None:
    """Raise BudgetError for tables that are not complete at `end`, while other jobs wait."""
    if time.monotonic() > end:
        raise refused("max-job-seconds", {"limit": _TABLE_SECONDS})


def _delete_run(out: Path) -> None:
    gone = out.with_name("gone")  # a folder that is deleted in part is no run
    shutil.rmtree(gone, ignore_errors=True)
    out.rename(gone)
    shutil.rmtree(gone)


def _source(
    folder: JobFolder, order: JobOrder, options: JobOptions, settings: Settings, facts: Facts
) -> Source:
    """The persons, read as `saga.api.request_panel` reads those of a call."""
    path = folder.path / order.persons_file
    check_file(path, settings.max_job_bytes)
    prices = options.prices if isinstance(options.prices, int) else None
    transforms = Transforms.from_dict(Bundle.load(settings.bundle).transforms)
    mapping = None  # as `saga score` reads the file
    if transforms.currency != "SEK" or transforms.extra:
        mapping = request_mapping(transforms)
    if transforms.currency != "SEK":
        prices = transforms.price_year
    return Source(path, mapping, prices, options.on_error, facts, options.origin)


def _recipe(
    folder: JobFolder, options: JobOptions, settings: Settings, facts: Facts, holder: str
) -> Recipe:
    request = options.request
    recipe = Recipe(
        settings.bundle,
        request.of_paths if isinstance(request, PopulationRequest) else request,
        options.draws(),
        settings.rollout,
        facts,
    )
    if settings.database is None:
        return recipe
    return AdaptiveRecipe.of(
        recipe,
        folder.out,
        url=settings.database.get_secret_value(),
        key=settings.database_key,
        holder=holder,
        record=options.record,
    )


def _expected_bytes(options: JobOptions, persons: int) -> int:
    """About the most bytes that the result of so many persons takes, in parts and merged."""
    match options.request:
        case PathsRequest(to_age=to_age) | PopulationRequest(to_age=to_age):
            n_paths = options.draws().n_paths
            return persons * n_paths * (to_age - MIN_AGE) * _BYTES_A_PATH_YEAR
        case ForecastRequest(horizons=horizons):
            return persons * len(horizons) * _BYTES_A_ROW
        case PensionRequest(ages=ages, reform=reform):  # rows of an age are alike
            return persons * len(ages) * (1 if reform is None else 3) * _BYTES_A_ROW
        case _:
            return persons * _BYTES_A_ROW


def _take_room(
    folder: JobFolder, holder: str, persons: int, n_bytes: int, settings: Settings
) -> Progress:
    """The progress of a job that begins a result of this size.

    The lock lets no two jobs take the same room. Raises BudgetError if the disk or the holder has
    no room beside what running jobs may still write.
    """
    assert settings.jobs is not None
    folders = JobFolders(settings.jobs)
    with file_lock(folders.disk_lock, wait=True):
        free = shutil.disk_usage(settings.jobs).free - folders.bytes_to_write()
        left = settings.holder_bytes - folders.of_holder(holder).n_bytes
        if n_bytes > min(free, left):
            where = "your jobs may still take" if left < free else "the disk has"
            raise refused(
                "result-disk", {"needed": n_bytes, "where": where, "left": max(0, min(free, left))}
            )
        progress = Progress(0, persons, folder.size() + n_bytes)
        folder.write(progress)
    return progress


def _failure(error: BaseException) -> Mapping[str, Any]:
    """The problem of an error that is not SAGA's; libraries say in words what is used up."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return OUT_OF_MEMORY
    if os.strerror(errno.ENOSPC) in str(error) or os.strerror(errno.EDQUOT) in str(error):
        return OUT_OF_DISK
    return internal_document()


def _unnamed(error: SagaError) -> SagaError:
    """The error without persons: the outcome of a job is kept after its table is deleted."""
    error.problems = tuple(replace(problem, person_id=None) for problem in error.problems)
    return error


def _without_path(document: Mapping[str, Any], folder: JobFolder) -> Mapping[str, Any]:
    """The document without the paths of this machine."""
    content: Mapping[str, Any] = json.loads(
        json.dumps(document).replace(json.dumps(str(folder.path))[1:-1] + os.sep, "")
    )
    return content


def main() -> None:
    """Compute the job of the folder that the command line names."""
    folder = JobFolder(Path(sys.argv[1]))
    settings = receive_settings(folder.take_attempt_back)
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    limit_memory(settings.job_memory_bytes)
    try:
        with folder.sole_writer(_PREDECESSOR_SECONDS):
            run_job(folder, settings)
    except (FolderInUseError, FileNotFoundError):  # computed by another process, or deleted
        sys.exit(1)


if __name__ == "__main__":
    main()
