"""`/v1/jobs`: products for any number of persons, computed in the background."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import polars as pl
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from saga.api.answers import ASKED
from saga.api.codecs import (
    ARROW_FILE,
    ARROW_STREAM,
    CSV,
    JSON,
    PARQUET,
    decode_json,
    encode_json,
    parse_persons,
    read_query,
    validate,
)
from saga.api.jobs.job_folders import JOB_ID, Job
from saga.api.key_file import OPERATOR, Caller
from saga.api.negotiation import check_body_type, json_response
from saga.api.openapi import problem_responses, request_body
from saga.api.problems import ProblemError
from saga.api.refusals import refused
from saga.api.request_models import JobBody, JobFileRequest, JobOptions
from saga.api.request_panel import check_prices, with_person_ids
from saga.api.response_models import JobResponse
from saga.api.security import CurrentCaller, check_scope, require_scope
from saga.api.service import CurrentService, Service
from starlette.types import Receive, Scope, Send

from saga.files.atomic import open_beneath
from saga.requests import PopulationRequest

if TYPE_CHECKING:
    from saga.api.jobs.job_service import JobService
    from saga.api.jobs.job_uploads import Upload

router = APIRouter(
    prefix="/v1/jobs", tags=["jobs"], dependencies=[Depends(require_scope("forecast"))]
)

_SUFFIXES = {PARQUET: ".parquet", ARROW_FILE: ".arrow", ARROW_STREAM: ".arrow", CSV: ".csv"}
_LOOK_SECONDS = 0.5  # between two looks at a job whose events a client reads
_MAX_PERSONS = 2**31  # of a job in JSON: no limit but the size of the body
_KEY = Header(
    alias="Idempotency-Key",
    min_length=1,
    max_length=255,
    pattern=r"^[!-~]+$",
    description="A text of your choice. A request that is sent again with the same key, for "
    "example after a broken connection, gives the same job.",
)
_Identifier = Annotated[str, PathParameter(pattern=JOB_ID, description="Job")]


def _jobs_of(service: Service) -> JobService:
    if service.jobs is None:
        raise refused("no-jobs")
    return service.jobs


async def _find_job(job_id: _Identifier, service: CurrentService, caller: CurrentCaller) -> Job:
    return _jobs_of(service).find(job_id, caller.holder)


CurrentJob = Annotated[Job, Depends(_find_job)]


@router.post(
    "",
    name="post_job",
    summary="Compute a product for any number of persons",
    status_code=202,
    response_model=JobResponse,
    responses=problem_responses(401, 403, 404, 408, 413, 415, 422, 429, 503, 507),
    openapi_extra=request_body("JobRequest", or_component="JobFileRequest"),
)
async def post_job(
    request: Request,
    service: CurrentService,
    caller: CurrentCaller,
    idempotency_key: Annotated[str | None, _KEY] = None,
) -> Response:
    """Accept a job: 202, and its address in `Location`.

    The body is a table with the columns of a panel (Parquet, Arrow, CSV), and the options are query
    parameters; or it is JSON with the same persons as in `POST /v1/forecasts`, or with the name of
    a `file` that lies in the folder of the holder at the service. `product` is
    `forecasts`, `lifetimes` or `paths`. The rows are those of `saga score`. Persons without a
    result are counted in `totals`, and do not end the job.
    """
    jobs, forecaster = _jobs_of(service), service.forecaster
    kind, query = check_body_type(request)
    if kind == JSON:
        upload, options = await _receive_json(request, service, caller, jobs)
    else:
        options = validate(JobOptions, read_query(query))
        await _check(options, service, caller)
        service.take_quota(request, caller)
        upload = await jobs.uploads.receive(request, _SUFFIXES[kind], caller.holder)
    with upload.discarded_on_error():
        check_prices(forecaster.transforms, options.prices, forecaster.facts.price_index)
        job, new = await jobs.submit(upload, options, caller.holder, idempotency_key)
    if new:
        service.log.info("job_accepted", job=job.order.id)
    response = json_response(job.describe(service.settings.job_hours))
    response.status_code = 202
    response.headers["Location"] = f"/v1/jobs/{job.order.id}"
    return response


async def _receive_json(
    request: Request, service: Service, caller: Caller, jobs: JobService
) -> tuple[Upload, JobOptions]:
    """Store the persons of a JSON body as Parquet, or the file that it names."""

    def decode(body: bytes) -> tuple[JobOptions, pl.DataFrame | None, bytes]:
        content = decode_json(body)
        if isinstance(content, dict) and "file" in content:
            return validate(JobFileRequest, content), None, b""
        call = parse_persons(content, JobBody, _MAX_PERSONS)
        if call.options.on_error == "fail" and "year" in call.frame.columns:
            with_person_ids(call.frame)  # refuses now what would end the job
        return call.options, call.frame, hashlib.sha256(body).digest()

    async with service.admit(request, caller) as ticket:
        options, persons, digest = await service.parse(request, ticket, decode)
    await _check(options, service, caller)
    if persons is not None:
        return await jobs.uploads.store(persons, digest), options
    assert isinstance(options, JobFileRequest)
    holder = None if caller == OPERATOR else caller.holder
    return await jobs.uploads.copy(request, options.file, holder), options


async def _check(options: JobOptions, service: Service, caller: Caller) -> None:
    """Refuse a job whose options contradict each other or the bundle, or that may not be recorded.

    A pension rule is read in turn, as a large body: other calls do not wait for many long ones.
    """
    typed = options.request
    if not isinstance(typed, PopulationRequest):
        await service.in_turn(caller.holder, partial(service.forecaster.check, typed))
    if options.record:
        check_scope(caller, "record")
        if service.ledger_access is None:
            raise refused("no-ledger")


@router.get(
    "/{job_id}",
    name="get_job",
    summary="Where a job stands",
    response_model=JobResponse,
    responses=problem_responses(401, 403, 404, 422, 503),
)
async def get_job(job: CurrentJob, service: CurrentService) -> Response:
    """The state of a job, its progress, and at the end the totals or what is wrong."""
    return json_response(job.describe(service.settings.job_hours))


@router.delete(
    "/{job_id}",
    name="delete_job",
    summary="Cancel a job, or delete one that has ended",
    status_code=204,
    responses=problem_responses(401, 403, 404, 422, 503),
)
async def delete_job(job: CurrentJob, service: CurrentService) -> Response:
    """Cancel a job that waits or runs; delete one that has ended.

    The persons and whatever was computed are deleted. A cancelled job can be seen until it expires
    or is deleted, too; on a full disk it is deleted at once.
    """
    await _jobs_of(service).cancel_or_remove(job)
    return Response(status_code=204)


@router.get(
    "/{job_id}/events",
    name="job_events",
    summary="Progress of a job as server-sent events",
    response_class=EventSourceResponse,
    responses=problem_responses(401, 403, 404, 422, 503),
)
async def get_events(
    request: Request,
    job_id: _Identifier,
    job: CurrentJob,
    service: CurrentService,
    caller: CurrentCaller,
) -> AsyncIterator[ServerSentEvent]:
    """An event `progress` with the job whenever it changes, and at the end one event `end`."""
    jobs, sent = _jobs_of(service), b""
    while True:
        view = job.describe(service.settings.job_hours)
        content = encode_json(view)
        ended = view["state"] not in ("queued", "running")
        if content != sent:
            sent = content
            yield ServerSentEvent(raw_data=content.decode(), event="end" if ended else "progress")
        # A client connects again, to another process; one that asks for HEAD reads no event.
        if ended or service.is_draining or ASKED in request.scope:
            return
        await asyncio.sleep(_LOOK_SECONDS)
        await service.take_turn(caller.holder)
        try:
            job = jobs.find(job_id, caller.holder)
        except ProblemError:  # it was deleted
            return


@router.get(
    "/{job_id}/result",
    name="job_result",
    summary="The result of a job, one Parquet file",
    response_class=FileResponse,
    responses=problem_responses(400, 401, 403, 404, 409, 416, 422, 503)
    | {200: {"content": {PARQUET: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_result(job: CurrentJob) -> Response:
    """The rows of all persons, sorted by person; the provenance is in the metadata under `saga`."""
    return _file(job, job.folder.result, PARQUET)


@router.get(
    "/{job_id}/result/{file}",
    name="job_result_file",
    summary="A file of the result as `saga score` writes it",
    response_class=FileResponse,
    responses=problem_responses(400, 401, 403, 404, 409, 416, 422, 503),
)
async def get_result_file(
    job: CurrentJob,
    file: Annotated[str, PathParameter(max_length=64, description="A name in `links.files`")],
) -> Response:
    """A part (500 persons), `_rejected.csv` (persons without a result) or `_MANIFEST.json`."""
    path = job.folder.result_files().get(file, job.folder.path / "absent")
    kinds = {".parquet": PARQUET, ".csv": CSV, ".json": JSON}
    return _file(job, path, kinds.get(path.suffix, PARQUET))


class OpenFileResponse(FileResponse):
    """The content of an open file, so that a link put in its place is not followed."""

    def __init__(self, file: BinaryIO, name: str, kind: str) -> None:
        path, status = f"/dev/fd/{file.fileno()}", os.fstat(file.fileno())
        super().__init__(path, media_type=kind, filename=name, stat_result=status)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or for HEAD read nothing of it, and close it."""
        with self._file:
            await super().__call__({**scope, "method": scope.get(ASKED, "GET")}, receive, send)


def _file(job: Job, path: Path, kind: str) -> Response:
    """A file of a job that has succeeded. Raises ProblemError 409 for others, 404 without it."""
    state = job.state
    if state in ("queued", "running"):
        raise refused("job-runs", {"state": state})
    if state != "succeeded":
        raise refused("job-failed", {"state": state, "job": job.order.id})
    try:
        file = open_beneath(job.folder.path, *path.relative_to(job.folder.path).parts)
    except (OSError, ValueError):
        raise refused("result-file") from None
    return OpenFileResponse(file, f"{job.order.id}-{path.name}", kind)
