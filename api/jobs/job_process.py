"""The process of one job: `python -m saga.api.jobs.job_process FOLDER`.

It runs the batch engine on the folder of the job. It may be killed at any moment: the next process
continues, and the result has the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saga.api.jobs.child_process import receive_settings
from saga.api.jobs.job_folders import JobFolder, JobOrder, Outcome, Progress
from saga.api.logs import error_location, make_logger
from saga.api.problems import error_document, internal_document
from saga.api.request_models import JobOptions
from saga.api.request_panel import request_mapping
from saga.api.settings import Settings
from saga.api.table_reader import check_file
from saga.api.tracing import Tracing, open_tracing
from saga.calibration.adaptive.issuance import AdaptiveRecipe

from saga.batch.engine import BatchInterruptedError, BatchRecipe, score
from saga.batch.products import Recipe
from saga.batch.run_folder import RUN, merge_parts
from saga.bundle import Bundle
from saga.data.reading import Source
from saga.errors import SagaError
from saga.features.transforms import Transforms
from saga.files.atomic import FolderInUseError, read_json

_NICENESS = 10  # calls that wait for an answer go first
_PREDECESSOR_SECONDS = 60.0  # longest wait for a process that computed the job before


def run_job(folder: JobFolder, settings: Settings) -> None:
    """Compute a job and write its outcome; without one, the job is to be started again."""
    order = folder.read(JobOrder)
    if order is None or folder.read(Outcome) is not None:
        return
    log = make_logger(sys.stderr).bind(job=order.id, holder=order.holder)
    tracing = open_tracing("saga-jobs")
    try:
        with tracing.span("job", {"saga.job": order.id}, order.trace):
            folder.finish("succeeded", totals=_compute(folder, order, settings, tracing))
        log.info("job_computed")
    except BatchInterruptedError:
        log.warning("job_interrupted")
    except SagaError as error:
        folder.finish("failed", problem=_without_path(error_document(error), folder))
        log.info("job_refused", title=error.title)
    except Exception as error:
        folder.finish("failed", problem=internal_document())
        log.error("job_failed", **error_location(error))
    finally:
        tracing.close()


def _compute(
    folder: JobFolder, order: JobOrder, settings: Settings, tracing: Tracing
) -> Mapping[str, Any]:
    options = JobOptions.model_validate(order.options)
    source = _source(folder, order, options, settings)
    recipe = _recipe(folder, options, settings, order.holder)
    earlier = read_json(folder.out / RUN)
    if earlier is not None and earlier["recipe"] != json.loads(json.dumps(recipe.describe())):
        # The service got another bundle or version meanwhile; a result is of one of them.
        shutil.rmtree(folder.out)
    with tracing.span("score", {"saga.product": options.product}) as span:

        def note(done: int, persons: int) -> None:
            folder.write(Progress(done, persons))
            if span is not None:
                span.add_event("progress", {"done": done, "persons": persons})

        report = score(source, folder.out, recipe, workers=settings.job_processes, progress=note)
    if report.rows:
        with tracing.span("merge", {"saga.rows": report.rows}):
            merge_parts(folder.out, folder.result)
    return report.totals


def _source(folder: JobFolder, order: JobOrder, options: JobOptions, settings: Settings) -> Source:
    """The persons, read as `saga.api.request_panel` reads those of a call."""
    path = folder.path / order.persons_file
    check_file(path)
    prices = options.prices if isinstance(options.prices, int) else None
    transforms = Transforms.from_dict(Bundle.load(settings.bundle).transforms)
    mapping = request_mapping(transforms)
    if transforms.currency != "SEK":
        prices = transforms.price_year
    return Source(path, mapping, prices, options.on_error, settings.facts, options.origin)


def _recipe(folder: JobFolder, options: JobOptions, settings: Settings, holder: str) -> BatchRecipe:
    recipe = Recipe(
        settings.bundle,
        options.to_request(),
        options.draws(),
        settings.rollout,
        settings.precision,
        settings.facts,
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
    try:
        with folder.sole_writer(_PREDECESSOR_SECONDS):
            run_job(folder, settings)
    except (FolderInUseError, FileNotFoundError):  # computed by another process, or deleted
        sys.exit(1)


if __name__ == "__main__":
    main()
