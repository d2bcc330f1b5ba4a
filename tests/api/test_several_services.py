"""Several services side by side: what they share, and what each has for itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from saga.api.key_file import add_key, new_key
from saga.api.settings import Settings

if TYPE_CHECKING:
    from tests.conftest import Running


def test_each_service_counts_the_calls_of_a_key_and_its_metrics_for_itself(
    start: Callable[[Settings], AbstractContextManager[Running]], tiny_bundle: Path, tmp_path: Path
) -> None:
    """With n services a key may make n times its quota, and Prometheus must read each of them."""
    secret, key = new_key("one", scopes=("forecast", "metrics"))
    add_key(tmp_path / "keys", key)
    headers = {"Authorization": f"Bearer {secret}"}
    settings = Settings(bundle=tiny_bundle, keys=tmp_path / "keys", threads=1, quota=1)
    with start(settings) as first, start(settings) as second:
        for service in (first, second):
            service.wait_until_ready()
        for service in (first, second):
            statuses = [
                service.client.post("/v1/forecasts", json={}, headers=headers).status_code
                for _ in range(2)
            ]
            assert statuses == [422, 429]
            text = service.client.get("/metrics", headers=headers).text
            label = 'method="POST",route="/v1/forecasts",status="429"'
            assert f"saga_http_requests_total{{{label}}} 1.0" in text
