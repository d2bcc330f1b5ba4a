"""The endpoints, one file per resource.

To add one, write a file with a `router` whose route has a `name`, a `summary`, a docstring, a
`response_model` and `responses=problem_responses(...)` with each status that it answers above 399
except 500. `model.py` is the shortest example. Then:

- ROUTERS below lists the router; `create_app` of `saga.api.app` adds `identify`, so a route without
  a further dependency opens to every valid key. A new tag has its text in `_TAGS` there.
- A key needs a scope if the route asks for it: a parameter `caller: OutcomesCaller`, or
  `dependencies=[Depends(require_scope(...))]` (`saga.api.security`); `answer_call` asks itself.
- `CurrentService` gives `service.forecaster`, with bundle and facts, or answers 503 until it is
  loaded. `json_response` writes the answer.
- The model of the answer, in `saga.api.response_models`, is its schema only: the answer is not
  checked against it, so a test validates it.
- To refuse, `raise refused(...)` an entry of the table in `saga.api.refusals`.
- `answer_call` reads persons, computes and answers; another body is read by `validate`. Its model
  is in `saga.api.request_models`, and listed in `_BODIES` of `saga.api.openapi`.
- `docs/service.md` lists the endpoint, and `docs/operation.md` its scope.

Tests: `ask` of `tests.api.conftest` needs no bundle and is quick (401, 403); the fixture `service`
is a running service. `tests/api/test_openapi.py` checks the description of every endpoint, and
`tests/api/test_service.py` calls each at random. A file may not have the name of another module.
"""

from saga.api.routes import (
    calibration,
    explorer,
    forecasts,
    health,
    jobs,
    lifetimes,
    model,
    outcomes,
    populations,
)

OPEN_ROUTERS = (health.open_router, explorer.router)  # without a key
ROUTERS = tuple(
    module.router
    for module in (
        forecasts,
        lifetimes,
        populations,
        jobs,
        outcomes,
        model,
        calibration,
        health,
    )
)
