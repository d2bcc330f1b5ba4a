"""Every call that the service refuses for one reason: status, words and fix, in one table.

`raise refused("max-jobs", {"limit": 100})` makes the error. What is wrong with single cells and
entries of a request is described by `saga.api.problems.shape_problems` and by `saga.data.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from saga.api.problems import ProblemError
from saga.calibration.adaptive.database import LedgerError

from saga.data.csv_text import CELLS_FIX, NAMELESS, OPEN_QUOTES
from saga.errors import BudgetError, InputError, Problem, SagaError, UsageError

BATCH = "a job (POST /v1/jobs) or `saga score` does any number of persons"


@dataclass(frozen=True)
class Http:
    """An error of the HTTP layer: status, last part of the problem's `type`, headers."""

    status: int
    slug: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """The words of a refusal, in which `{limit}` and the like stand for what `refused` is given.

    Args:
        kind: The kind of error.
        title: The kind of error in words.
        message: What is wrong.
        fix: How to mend it.
        column: The column or option that is wrong.
        rule: The rule that is broken, if it is not the name of the entry.
    """

    kind: Http | type[SagaError]
    title: str
    message: str
    fix: str
    column: str | None = None
    rule: str | None = None


_SHAPE, _FULL = "The request has the wrong shape", "The service is busy"
_TOO_MUCH, _TOO_LARGE = "The request body is too large", "The table is too large for one call"
_ONE_JOB, _UNCHECKED = "The table is too large for one job", "The table cannot be checked"
_UNREADABLE, _TYPE = "The request body cannot be read", "A column has another type"
_SOON, _CLOSE = {"Retry-After": "5"}, {"Connection": "close"}
_BUSY = Http(503, "busy", _CLOSE | _SOON)
_SLOW, _LARGE = Http(408, "body-slow", _CLOSE), Http(413, "body-size", _CLOSE)
_TABLE, _DISK = Http(413, "table-size"), Http(507, "no-space", _CLOSE)
_CHALLENGE = 'Bearer realm="saga"'

REFUSALS: dict[str, Refusal] = {
    # Bodies
    "max-persons": Refusal(
        BudgetError,
        "Too many persons for one call",
        "{number} persons in one call, {limit} are allowed",
        f"Send at most {{limit}} persons per call; {BATCH}",
    ),
    "max-work": Refusal(
        BudgetError,
        "Too much simulation for one call",
        "{size}, {limit} are allowed",
        f"{{fix}}; {BATCH}",
    ),
    "max-cells": Refusal(
        BudgetError,
        "Too many groups for one call",
        "{cells} groups and comparisons a year of {persons} persons and {paths} paths are too many",
        "Ask for fewer groups, paths or persons, or send a job",
        rule="max-work",
    ),
    "max-job-cells": Refusal(
        BudgetError,
        "Too many groups for one job",
        "{cells} groups and comparisons a year are too many; at most {limit}",
        "Ask for fewer groups",
        rule="max-work",
    ),
    "max-job-seconds": Refusal(
        BudgetError,
        "Too many small groups for one job",
        "The tables, in which small groups are hidden, take longer than {limit:.0f} seconds",
        "Ask for fewer groups",
        rule="max-work",
    ),
    "no-columns": Refusal(
        InputError,
        "The table has no columns of a panel",
        "No column has the name of a column of a panel",
        "Begin CSV with a line of names; GET /v1/variables lists them",
    ),
    "json-values": Refusal(
        BudgetError,
        "Too many values for one call",
        "The JSON has more than {limit:,} commas and opening brackets",
        f"Send fewer persons per call, or Parquet; {BATCH}",
    ),
    "json-text": Refusal(
        Http(422, "request"),
        _SHAPE,
        "The JSON has over {limit:,} bytes without a comma or opening bracket",
        "Send names, codes and numbers",
    ),
    "body-seconds": Refusal(
        _SLOW,
        "The request body did not arrive in time",
        "The body must arrive within {seconds:g} seconds",
        "Send it faster, or send less",
    ),
    "upload-seconds": Refusal(
        _SLOW,
        "The request body did not arrive in time",
        "The table arrives too slowly",
        "Send at least {rate} KiB a second, or compress it",
        rule="body-seconds",
    ),
    "body-memory": Refusal(
        _BUSY,
        _FULL,
        "The bodies of the present calls fill the memory for them",
        f"Try again soon, or send less; {BATCH}",
    ),
    "max-body-bytes": Refusal(
        _LARGE,
        _TOO_MUCH,
        "A body may have {limit} bytes",
        f"Send fewer persons, or Parquet; {BATCH}",
    ),
    "max-job-bytes": Refusal(
        _LARGE,
        _TOO_MUCH,
        "A table may have {limit} bytes",
        "Send Parquet, or divide the persons into several jobs",
    ),
    "content-type": Refusal(
        Http(415, "media-type"),
        "The type of the body is not known",
        "Not a known type",
        "Set Content-Type to {accepted}",
    ),
    "corrections-type": Refusal(
        Http(415, "media-type"),
        "Corrections are JSON",
        "Not JSON",
        "Set Content-Type to application/json",
        rule="content-type",
    ),
    "content-encoding": Refusal(
        Http(415, "encoding"),
        "Compressed bodies are not read",
        "The body is compressed",
        "Send it uncompressed, or as Parquet, which is compressed itself",
    ),
    "accept": Refusal(
        Http(406, "not-acceptable"),
        "The answer has none of these types",
        "No accepted type is served",
        "Set Accept to {accepted}",
    ),
    "query": Refusal(
        Http(422, "request"),
        _SHAPE,
        "A JSON call has no query parameters",
        "Put the options into the body",
    ),
    "query-twice": Refusal(
        Http(422, "request"),
        "A query parameter appears twice",
        "Given twice",
        "Give it once; several numbers with commas: horizons=1,5",
    ),
    "json-twice": Refusal(
        Http(422, "json"),
        "The request repeats an entry",
        "An entry is given twice{where}",
        "Give it once",
    ),
    "json": Refusal(
        Http(422, "json"),
        "The request body is not valid JSON",
        "{what}",
        "Send one JSON object in UTF-8",
    ),
    "entries": Refusal(
        Http(422, "request"),
        _SHAPE,
        "An object has more than {limit} entries",
        "GET /v1/variables lists the columns",
    ),
    # Tables in the body of a call
    "table": Refusal(
        Http(422, "table"),
        _UNREADABLE,
        "The bytes are not a table of this type",
        "Send a file that is {kind}",
    ),
    "table-end": Refusal(
        InputError,
        _UNREADABLE,
        "The Arrow stream does not end as it should, so rows may be missing",
        "Close the writer of the stream, and send all of it and nothing else",
    ),
    "table-nameless": Refusal(
        Http(422, "table"),
        _UNREADABLE,
        f"Line {{number}} {NAMELESS[0]}",
        NAMELESS[1],
        rule="table",
    ),
    "table-quotes": Refusal(
        Http(422, "table"),
        _UNREADABLE,
        f"Line {{number}} {OPEN_QUOTES[0]}",
        OPEN_QUOTES[1],
        rule="table",
    ),
    **{
        f"table-{which}-cells": Refusal(
            Http(422, "table"),
            _UNREADABLE,
            f"Line {{number}} has {which} cells than the header",
            CELLS_FIX,
            rule="table",
        )
        for which in ("more", "fewer")
    },
    "table-rows": Refusal(
        BudgetError,
        _TOO_LARGE,
        "The table has {number} rows",
        f"Send at most {{limit}} rows per call; {BATCH}",
    ),
    "table-columns": Refusal(
        InputError,
        "The table has too many columns",
        "The table has {number} columns, {limit} are allowed",
        "GET /v1/variables lists the columns",
    ),
    "table-bytes": Refusal(
        _TABLE,
        _TOO_LARGE,
        "A table may have {limit} MiB uncompressed",
        "Send fewer persons and only columns of a panel; `saga score` reads large tables",
    ),
    "table-memory": Refusal(
        _TABLE,
        _TOO_LARGE,
        "A table may have {limit} MiB uncompressed",
        "Send fewer persons and only columns of a panel; `saga score` reads large tables",
    ),
    "table-time": Refusal(
        _TABLE,
        _TOO_LARGE,
        "It takes more than {limit} seconds to decode",
        "Send fewer persons, without compression or as another format",
    ),
    "string_too_long": Refusal(
        InputError, "A text is too long", "A text is too long", "Give at most {limit} characters"
    ),
    "column-type": Refusal(
        InputError,
        _TYPE,
        "Cells of this type are not read",
        "Send text, whole or floating-point numbers",
    ),
    "column-twice": Refusal(
        InputError, "A column appears twice", "The column appears twice", "Send it once"
    ),
    # Tables of jobs
    "unreadable-file": Refusal(
        InputError,
        "The table cannot be read",
        "The file is damaged, packed, or not what its type says",
        "Unpack it, or export the data again",
    ),
    "file-bytes": Refusal(
        InputError,
        _ONE_JOB,
        "It has {number:,} bytes uncompressed in columns of a panel",
        "{limit:,} are allowed; divide the persons into several jobs",
        rule="table-bytes",
    ),
    "file-cells": Refusal(
        InputError,
        _ONE_JOB,
        "It has {number:,} cells uncompressed in columns of a panel",
        "{limit:,} are allowed; divide the persons into several jobs",
        rule="table-cells",
    ),
    "file-memory": Refusal(
        InputError,
        _UNCHECKED,
        "The check needs more than {memory} GiB and {seconds} CPU seconds",
        "Divide the table",
        rule="table-memory",
    ),
    "file-time": Refusal(
        InputError,
        _UNCHECKED,
        "The check needs more than {memory} GiB and {seconds} CPU seconds",
        "Divide the table",
        rule="table-time",
    ),
    # Outcomes
    "outcome-columns": Refusal(
        InputError,
        "The table has other columns",
        "Not the columns of outcomes",
        "Send the columns {columns}",
        rule="columns",
    ),
    "outcome-types": Refusal(
        InputError,
        _TYPE,
        "Not the types of outcomes",
        "Send text, whole numbers and numbers",
        rule="column-type",
    ),
    "outcome-dots": Refusal(
        InputError,
        "Amounts can be read in two ways",
        "A dot has three digits behind it: 285.000 may be 285 or 285000",
        "Send amounts without thousands separators, with two decimals or none",
        rule="doubtful-amount",
    ),
    # Persons
    "no-weights": Refusal(
        InputError,
        "There are no weights",
        "No such column",
        "Send it in `extra` of each year, or as the column {name} of a table",
        rule="weights",
    ),
    "two-weights": Refusal(
        InputError,
        "The weights contradict themselves",
        "A person has two weights",
        "Give one weight a person",
        rule="weights",
    ),
    "prices": Refusal(
        UsageError,
        "The amounts cannot be converted",
        "The bundle is in {currency} of {year}",
        "{fix}",
        column="prices",
    ),
    # The state of the service
    "queue": Refusal(
        Http(503, "busy", {"Retry-After": "{seconds}"}),
        _FULL,
        "{why}",
        f"Try again in {{seconds}} seconds; {BATCH}",
    ),
    "stopping": Refusal(
        Http(503, "stopping", _SOON | _CLOSE),
        "The service stops",
        "The service stops",
        "Send the call again; another process serves it",
    ),
    "draining": Refusal(
        Http(503, "draining"),
        "The service is about to stop",
        "The process ends soon",
        "Send calls to another process",
    ),
    "loading": Refusal(
        Http(503, "loading", _SOON),
        "The service is not ready yet",
        "The bundle is being loaded and checked",
        "Try again in a few seconds",
    ),
    "keys": Refusal(
        Http(503, "keys", _SOON),
        "The service cannot read its keys",
        "The key file is missing or damaged",
        "Ask the operator",
    ),
    "no-ledger": Refusal(
        Http(404, "no-ledger"),
        "This service keeps no ledger",
        "No database is configured",
        "Start the service with SAGA_DATABASE, for example sqlite:///ledger.sqlite",
    ),
    "ledger-down": Refusal(
        LedgerError,
        "The ledger cannot be used at present",
        "The ledger is being tried again",
        "Send the call again later; the log of the service says what is wrong",
    ),
    "ledger-busy": Refusal(
        Http(503, "ledger", _SOON),
        "The ledger is busy",
        "Other calls write to it",
        "Try again in 5 seconds",
    ),
    "path": Refusal(
        Http(404, "not-found"),
        "There is no such file",
        "The page has no such file",
        "GET / is the page",
    ),
    # Keys
    "no-key": Refusal(
        Http(401, "unauthorised", {"WWW-Authenticate": _CHALLENGE}),
        "A key is needed",
        "The call has no key",
        "Send the header `Authorization: Bearer KEY`",
        rule="key",
    ),
    "key": Refusal(
        Http(401, "unauthorised", {"WWW-Authenticate": f'{_CHALLENGE}, error="invalid_token"'}),
        "A key is needed",
        "The key {state}",
        "Ask the operator for a key",
    ),
    "scope": Refusal(
        Http(403, "scope"),
        "This key may not do this",
        "The key lacks the scope {needed}",
        "Use a key with the scope {needed}; the operator makes one with `saga keys create`",
    ),
    "host": Refusal(
        Http(403, "foreign"),
        "The call is of a foreign page",
        "The service without keys answers to names of this machine only",
        "Call http://127.0.0.1 or http://localhost, or give the service keys with --keys",
    ),
    "origin": Refusal(
        Http(403, "foreign"),
        "The call is of a foreign page",
        "The service without keys answers to its own pages only",
        "Call http://127.0.0.1 or http://localhost, or give the service keys with --keys",
    ),
    "two-lengths": Refusal(
        Http(400, "http-400", {"Connection": "close"}),
        "This is not a request of HTTP/1.1",
        "The body has two lengths, Content-Length and Transfer-Encoding",
        "Send one of the two headers",
    ),
    "quota": Refusal(
        Http(
            429,
            "quota",
            {"Retry-After": "{seconds}", "RateLimit-Policy": "{policy}", "RateLimit": "{left}"},
        ),
        "The quota of the key is used up",
        "The key may make {limit} calls a minute",
        "Try again in {seconds} seconds, or send more persons in a call",
    ),
    "open-calls": Refusal(
        _BUSY,
        _FULL,
        "{limit} calls of a holder are open",
        "End event streams and downloads that nobody reads",
    ),
    # Jobs
    "no-jobs": Refusal(
        Http(404, "no-jobs"),
        "This service computes no jobs",
        "No folder of jobs is configured",
        "Install saga-forecast[jobs] and start the service with SAGA_JOBS, a folder; or use"
        " `saga score`",
    ),
    "job-files": Refusal(
        Http(404, "no-job-files"),
        "This service reads no files",
        "No folder of files is configured",
        "Start the service with SAGA_JOB_FILES, a folder; or send the table",
    ),
    "file": Refusal(
        Http(422, "file"),
        "The file of the job cannot be read",
        "You have no such file",
        "Name a file with the suffix {suffixes}, relative to your folder, no link",
        column="file",
    ),
    "uploads": Refusal(
        _BUSY,
        _FULL,
        "{limit} tables of a holder or {total} in all are arriving",
        "Try again soon",
    ),
    "disk": Refusal(
        _DISK,
        "The service has no space for this job",
        "There is no space for the table",
        "Delete jobs that have ended, or ask the operator for space",
    ),
    "holder-disk": Refusal(
        _DISK,
        "The service has no space for this job",
        "Your jobs take, or may still take, more than {limit:,} bytes",
        "Delete jobs that have ended, or ask the operator for space",
        rule="disk",
    ),
    "result-disk": Refusal(
        BudgetError,
        "There is no space for the result",
        "The result needs about {needed:,} bytes; beside running jobs {where} {left:,}",
        "Send fewer persons or paths, delete jobs that have ended, or wait until others end",
        rule="disk",
    ),
    "idempotency-key": Refusal(
        Http(422, "idempotency-key"),
        "The key was used before",
        "Another request had this Idempotency-Key",
        "Take a new key for a new request",
    ),
    "max-jobs": Refusal(
        Http(429, "max-jobs", {"Retry-After": "60"}),
        "Too many jobs",
        "{limit} of your jobs wait or run",
        "Wait until some have ended, or cancel some with DELETE",
    ),
    "ended-jobs": Refusal(
        Http(429, "max-jobs", {"Retry-After": "60"}),
        "Too many jobs",
        "{limit:,} of your jobs have ended and are kept",
        "Delete some with DELETE, or wait until they expire",
        rule="max-jobs",
    ),
    "job": Refusal(
        Http(404, "no-job"),
        "There is no such job",
        "You have no job of this name",
        "POST /v1/jobs answers with the address of a job; results expire",
    ),
    "job-ends": Refusal(
        Http(503, "job-ends", _SOON),
        "The job still ends",
        "Its process has not ended yet",
        "Send DELETE again",
    ),
    "job-runs": Refusal(
        Http(409, "no-result", _SOON),
        "There is no result yet",
        "The job is {state}",
        "Follow its events, or try again",
        rule="job-state",
    ),
    "job-failed": Refusal(
        Http(409, "no-result"),
        "The job has no result",
        "The job is {state}",
        "GET /v1/jobs/{job} says why",
        rule="job-state",
    ),
    "result-file": Refusal(
        Http(404, "no-file"),
        "There is no such file",
        "The result has no such file",
        "`links` of the job lists what there is; `totals` counts persons without a result",
    ),
}


def refused(
    name: str, values: Mapping[str, object] = MappingProxyType({}), column: str | None = None
) -> ProblemError | SagaError:
    """The error of the entry `name` of the table, with `values` in its words and headers."""
    entry = REFUSALS[name]
    message, fix = entry.message.format_map(values), entry.fix.format_map(values)
    problem = Problem(entry.rule or name, message, fix, column or entry.column)
    if not isinstance(entry.kind, Http):
        return entry.kind(entry.title, [problem])
    headers = {header: text.format_map(values) for header, text in entry.kind.headers.items()}
    kind = entry.kind
    return ProblemError(kind.status, kind.slug, entry.title, [problem], headers=headers)
