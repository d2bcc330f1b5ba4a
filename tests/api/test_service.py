"""The running process: start, readiness, documentation, metrics and logs."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import SecretStr
from saga.api.example import curl
from saga.api.server import open_socket, serve
from saga.api.service import example_scale
from saga.api.settings import Settings
from schemathesis.core.result import Ok

from saga.bundle import Bundle, BundleContents, write_bundle
from saga.errors import BundleError, InputError, UsageError
from saga.forecaster import Forecaster
from saga.requests import MAX_HORIZON
from saga.simulation.marginals import N_NODES
from tests.conftest import Running, Start
from tests.keys import make_keys
from tests.waiting import awaited

CASES = int(os.environ.get("SAGA_TEST_CASES", "2"))  # random calls of each endpoint


def test_metrics_count_calls_persons_and_path_years_by_route(service: Running) -> None:
    def count(name: str) -> float:
        text = service.client.get("/metrics").text
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name)
        )

    persons = [
        {"person_id": i, "birth_year": 1980, "history": [{"year": 2022, "earnings": 1e5}]}
        for i in range(3)
    ]
    before = (
        count("saga_persons_total"),
        count("saga_path_years_total"),
        count('saga_http_requests_total{method="GET",route="unmatched"'),
    )
    service.forecast({"persons": persons, "horizons": [2]})
    service.client.get("/somewhere/person/17")
    after = (
        count("saga_persons_total"),
        count("saga_path_years_total"),
        count('saga_http_requests_total{method="GET",route="unmatched"'),
    )
    assert tuple(b - a for a, b in zip(before, after, strict=True)) == (
        3,
        3 * N_NODES * MAX_HORIZON,
        1,
    )
    assert "person/17" not in service.client.get("/metrics").text


def test_each_answer_and_its_log_line_share_an_identifier(service: Running) -> None:
    answer = service.client.get("/livez", headers={"X-Request-ID": "not-a-uuid\tSENTINEL"})
    identifier = answer.headers["x-request-id"]

    def routes() -> list[str]:  # the line is written after the answer is sent
        events = [json.loads(line) for line in service.log.getvalue().splitlines()]
        return [event["route"] for event in events if event.get("request") == identifier]

    assert awaited(routes) == ["/livez"]
    assert "SENTINEL" not in service.log.getvalue()


def test_the_documentation_loads_nothing_from_other_hosts(service: Running) -> None:
    page = service.client.get("/docs")
    links = re.findall(r"""(?:src|href)=["']([^"']+)""", page.text)
    assert links
    assert not [link for link in links if "//" in link]
    for link in links:
        assert service.client.get(link).status_code == 200


def test_variables_and_model_describe_columns_and_bundle(
    service: Running, tiny_bundle: Path
) -> None:
    names = [column["name"] for column in service.client.get("/v1/variables").json()["columns"]]
    assert names[:4] == ["person_id", "year", "birth_year", "earnings"]
    card = service.client.get("/v1/model").json()
    bundle = Bundle.load(tiny_bundle)
    assert (card["bundle"], card["calibration"], card["parameters"]) == (
        bundle.digest,
        bundle.calibration_digest,
        bundle.parameters,
    )
    assert card["trained_on"] == "simulated people"
    assert "simulated people" in card["card"]
    assert 0.9 in card["coverage"]


def test_random_calls_keep_to_the_published_schema(
    start: Start, tiny_bundle: Path, tmp_path: Path
) -> None:
    """With keys and a ledger: no 5xx, nothing undocumented, no malformed request is accepted."""
    headers = make_keys(tmp_path / "keys", "fuzzer")["fuzzer"]
    ledger = SecretStr(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    options = Settings(bundle=tiny_bundle, threads=1, keys=tmp_path / "keys", database=ledger)
    # The rules of a panel go beyond the schema, and a table with a query is a call as one without.
    excluded = [schemathesis.checks.positive_data_acceptance]
    with start(options) as service:
        schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
        results = schema.get_all_operations()
        operations: list[Any] = [result.ok() for result in results if isinstance(result, Ok)]
        assert {"/v1/forecasts", "/v1/outcomes", "/readyz"} <= {one.path for one in operations}
        for operation in operations:

            @settings(
                max_examples=CASES,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def check(case: schemathesis.Case[Any]) -> None:
                case.call_and_validate(
                    headers=headers,
                    excluded_checks=excluded,
                    timeout=120,  # the first report takes seconds, more on a busy machine
                )

            check()


def test_the_command_refuses_a_broken_bundle_before_it_listens(tmp_path: Path) -> None:
    with pytest.raises(BundleError):
        serve(Settings.of(bundle=tmp_path, port=0))


def test_the_command_refuses_facts_that_are_absent_before_it_listens(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="facts cannot be used"):
        serve(Settings.of(bundle=tiny_bundle, facts=tmp_path / "absent", port=0))


@pytest.mark.parametrize("host", ["portal..example.org", "x" * 64])
def test_a_host_that_no_name_has_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="Cannot listen"):
        open_socket(host, 0)


@pytest.mark.parametrize("name", ["max_work", "queue", "job_memory_bytes", "holder_bytes"])
def test_a_number_that_the_system_cannot_take_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as told:
        Settings.of(**{name: 10**400})
    assert [problem.column for problem in told.value.problems] == [name]


def test_a_taken_port_is_an_error_before_anything_is_loaded(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(UsageError, match="--port"),
    ):
        serve(Settings.of(bundle=tmp_path, port=server.getsockname()[1]))


def test_the_printed_curl_fits_a_bundle_in_another_currency(
    start: Start, tiny_bundle: Path, tmp_path: Path
) -> None:
    """For hourly wages in dollars the example has that size, and is not converted."""
    bundle = Bundle.load(tiny_bundle)
    dollars = bundle.transforms | {
        "currency": "USD",
        "price_year": 2010,
        "floor": None,
        "centre": 2.7,
    }
    contents = BundleContents(
        config=bundle.config,
        transforms=dollars,
        macro={},
        metrics={"training": {}},
        split=bundle.split,
        weights=bundle.weights,
        card="",
    )
    write_bundle(tmp_path / "dollars", contents, seed=0, command="")
    with start(Settings(bundle=tmp_path / "dollars", threads=1)) as service:
        scale = example_scale(Forecaster.load(tmp_path / "dollars"))
        body = json.loads(re.findall(r"'({.*})'", curl(service.url, keyed=False, scale=scale))[0])
        assert all(5 < row["earnings"] < 50 for row in body["persons"][0]["history"])
        provenance = service.forecast(body).json()["provenance"]
        assert (provenance["currency"], provenance["price_year"]) == ("USD", 2010)
        assert service.forecast({**body, "prices": 2010}).status_code == 200
        for prices in ("nominal", 2022):
            answer = service.forecast({**body, "prices": prices})
            assert (answer.status_code, answer.json()["problems"][0]["column"]) == (422, "prices")
