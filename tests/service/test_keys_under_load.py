"""Keys under load: a key that is revoked is refused within seconds, while others are served."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from saga.api.key_file import add_key, new_key, revoke_key

from tests.service.conftest import make_person
from tests.service.load import Client, run_clients

if TYPE_CHECKING:
    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service


def test_a_revoked_key_is_refused_within_seconds(
    serve: Callable[..., AbstractContextManager[Served]], figures: Figures, tmp_path: Path
) -> None:
    file, secrets = tmp_path / "keys", {}
    for name in ("busy", "revoked"):
        secrets[name], key = new_key(name)
        add_key(file, key)
    body = {"persons": [make_person()], "horizons": [1]}
    with serve(keys=str(file)) as served:
        clients = [Client(20, key=secrets["busy"])] * 8
        load = threading.Thread(target=run_clients, args=(served.port, clients, 15.0))
        load.start()
        headers = {"Authorization": f"Bearer {secrets['revoked']}"}
        with served.client(headers=headers) as client:
            time.sleep(3)
            assert client.post("/v1/forecasts", json=body).status_code == 200
            revoke_key(file, "revoked", datetime.now(UTC))
            start = time.monotonic()
            while client.get("/v1/model").status_code != 401:
                assert time.monotonic() - start < 30
        figures.at_most("a revoked key under load: refused after", time.monotonic() - start, 5, "s")
        load.join()
