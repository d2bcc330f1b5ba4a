"""What is wrong with something that has to be refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from saga.api.problems import ProblemError

from saga.errors import Problem, SagaError


def problems_of(
    call: Callable[..., object], *arguments: object, **options: object
) -> list[Problem]:
    """All problems of a call that has to be refused."""
    with pytest.raises((SagaError, ProblemError)) as caught:
        call(*arguments, **options)
    assert isinstance(caught.value, SagaError | ProblemError)
    return list(caught.value.problems)


def problem_of(call: Callable[..., object], *arguments: object, **options: object) -> Problem:
    """The only problem of a call that has to be refused."""
    (problem,) = problems_of(call, *arguments, **options)
    return problem
