"""Random calls by the published schema, with keys and a ledger: no 5xx, nothing undocumented."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from saga.api.key_file import add_key, new_key
from schemathesis.core.result import Ok

if TYPE_CHECKING:
    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service
CASES = int(os.environ.get("SAGA_TEST_CASES", "5000"))  # of all operations together


def test_random_calls_keep_to_the_published_schema(
    serve: Callable[..., AbstractContextManager[Served]], figures: Figures, tmp_path: Path
) -> None:
    secret, key = new_key("fuzzer")
    add_key(tmp_path / "keys.txt", key)
    ledger = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    n_cases = 0
    # The rules of a panel go beyond the schema, and a table with a query is a call as one without.
    excluded = [schemathesis.checks.positive_data_acceptance]
    with serve(keys=str(tmp_path / "keys.txt"), database=ledger) as served:
        schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
        operations: list[Any] = [
            result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)
        ]
        n_with_body = sum(bool(list(operation.body)) for operation in operations)
        for operation in operations:
            # Few of the other operations have anything to vary.
            n_examples = math.ceil(CASES / n_with_body) if list(operation.body) else 50

            @settings(
                max_examples=n_examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def check(case: schemathesis.Case[Any]) -> None:
                nonlocal n_cases
                n_cases += 1
                case.call_and_validate(
                    headers={"Authorization": f"Bearer {secret}"},
                    excluded_checks=excluded,
                    timeout=120,  # the first report takes seconds, more on a busy machine
                )

            check()
    figures.at_least("schemathesis: cases without a failure, keys and ledger", n_cases, CASES)
