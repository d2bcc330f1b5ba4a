"""saga serve, saga work, saga keys: the HTTP service, its jobs and its bearer keys."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import Model
from saga.errors import UsageError


def serve(
    model: Model,
    host: Annotated[
        str,
        typer.Option(
            envvar="SAGA_HOST", help="Address to listen on; beyond loopback it needs --keys."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="SAGA_PORT", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 8000,
    keys: Annotated[
        Path | None,
        typer.Option(
            envvar="SAGA_KEYS", help="File of hashed bearer keys, made by `saga keys create`."
        ),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            envvar="SAGA_JOBS", help="Folder of jobs (/v1/jobs): their persons and results."
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(envvar="SAGA_WORKERS", min=1, help="Processes that answer calls."),
    ] = 1,
) -> None:
    """Serve forecasts over HTTP until interrupted.

    Examples:
        saga serve --port 9000  # on this machine
        saga serve --host 0.0.0.0 --keys keys.txt  # for others, with bearer keys
    """
    from saga.api.server import serve as run_service
    from saga.api.settings import Settings

    settings = Settings.of(
        bundle=model.directory,
        host=host,
        port=port,
        keys=keys,
        jobs=jobs,
        workers=workers,
        threads=model.threads,
        rollout=model.rollout,
    )
    try:
        run_service(settings)
    except KeyboardInterrupt:  # the way to end a service
        console.note("Stopped.")


def work(
    jobs: Annotated[
        Path,
        typer.Argument(envvar="SAGA_JOBS", metavar="JOBS", help="Folder of jobs of the service."),
    ],
    model: Annotated[Model, "bundle", "rollout"],
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that compute one job.", show_default="1"),
    ] = None,
) -> None:
    """Compute jobs that services have accepted, until interrupted; any number may run."""
    from saga.api.jobs.job_worker import work_until_stopped
    from saga.api.settings import Settings
    from saga.bundle import Bundle

    settings = Settings.of(
        jobs=jobs,
        bundle=model.directory,
        rollout=model.rollout,
        job_processes=processes,
    )
    Bundle.load(settings.bundle)  # an error of the bundle is told now, not by the first job
    work_until_stopped(settings)


_KeyFile = Annotated[
    Path, typer.Option("--file", envvar="SAGA_KEYS", help="Key file of the service.")
]


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")],
    file: Annotated[Path | None, typer.Option(help="Append the key's hash to this file.")] = None,
    holder: Annotated[
        str | None,
        typer.Option(
            help="Who holds the key; keys of one holder share one part of the ledger.",
            show_default="NAME",
        ),
    ] = None,
    scopes: Annotated[
        str,
        typer.Option(
            help="What the key may do: forecast, record (enter intervals in the ledger), outcomes "
            "(send and correct them), metrics."
        ),
    ] = "forecast",
    expires: Annotated[
        str | None,
        typer.Option(help="Last day (2027-12-31), or days from now (90d).", show_default="never"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Make a bearer key: it is shown once, and only its hash is stored."""
    from saga.api.key_file import SCOPES, add_key, new_key

    names = {scope.strip() for scope in scopes.split(",")}
    if names - set(SCOPES):
        raise UsageError(f"--scopes lists one or more of {', '.join(SCOPES)}.")
    secret, key = new_key(
        name,
        holder=holder,
        scopes=[scope for scope in SCOPES if scope in names],
        expires=_parse_expiry(expires),
    )
    if file is not None:
        add_key(file, key)
    hash_text = (
        f"Its hash is in {file}." if file is not None else f"Line for the key file: {key.line}"
    )
    console.result(
        f"Key {name} of {key.holder}, shown only now: {secret}\n{hash_text}",
        {"name": name, "holder": key.holder, "key": secret, "line": key.line},
        as_json=as_json,
    )


def list_(file: _KeyFile, as_json: options.Json = False) -> None:
    """List the keys of a file: name, holder, scopes, expiry and whether each is accepted."""
    from saga.api.key_file import read_keys

    now, keys = datetime.now(UTC), read_keys(file)
    rows = [
        {
            "name": key.name,
            "holder": key.holder,
            "scopes": list(key.scopes),
            "expires": key.expires and key.expires.isoformat(),
            "status": key.status(now),
        }
        for key in keys
    ]
    text = "\n".join(
        f"{key.name}: {key.status(now)}, holder {key.holder}, scopes {', '.join(key.scopes)}, "
        + (f"expires {key.expires:%Y-%m-%d %H:%M} UTC" if key.expires else "does not expire")
        for key in keys
    )
    console.result(text, {"keys": rows}, as_json=as_json)


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")],
    file: _KeyFile,
    as_json: options.Json = False,
) -> None:
    """Revoke a key: a running service refuses it within seconds; its line stays for the record."""
    from saga.api.key_file import revoke_key

    key = revoke_key(file, name, datetime.now(UTC))
    assert key.revoked is not None
    console.result(
        f"Revoked {name}; running services refuse it within 5 seconds.",
        {"name": name, "holder": key.holder, "revoked": key.revoked.isoformat()},
        as_json=as_json,
    )


def _parse_expiry(text: str | None) -> datetime | None:
    """The first moment at which a key with this expiry is refused."""
    if text is None:
        return None
    now = datetime.now(UTC).replace(microsecond=0)
    if match := re.fullmatch(r"(\d{1,5})d", text):
        return now + timedelta(days=int(match[1]))
    try:
        last_day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise UsageError(
            "--expires is a date such as 2027-12-31 or a number of days such as 90d."
        ) from None
    if last_day + timedelta(days=1) <= now:
        raise UsageError("--expires is in the past. Give a later day.")
    return last_day + timedelta(days=1)
