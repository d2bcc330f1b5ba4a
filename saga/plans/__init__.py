"""Plans: one file a product, which says all that is special about it on the way to its result.

To add a product, write its request in `saga.requests` and one file with a subclass of `Plan`: its
`blocks`, and what else differs (`lifetime_plan.py` is an example). Register it in PLANS. Command
line, service, jobs, batch and Python then compute it by `Forecaster.plan` and `Forecaster.run`.
"""

from typing import cast

from saga.plans.forecast_plan import ForecastPlan
from saga.plans.lifetime_plan import LifetimePlan
from saga.plans.paths_plan import PathsPlan
from saga.plans.pension_plan import PensionPlan
from saga.plans.plan import Plan
from saga.requests import (
    ForecastRequest,
    LifetimeRequest,
    PathsRequest,
    PensionRequest,
    Request,
)

PLANS = cast(  # whoever looks a plan up gives it the request of this type
    dict[type[Request], type[Plan[Request]]],
    {
        ForecastRequest: ForecastPlan,
        LifetimeRequest: LifetimePlan,
        PathsRequest: PathsPlan,
        PensionRequest: PensionPlan,
    },
)

__all__ = ["PLANS", "Plan"]
