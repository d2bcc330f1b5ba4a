"""Firms of the self-employed: their start, their end and their yield.

Business income is part of labour earnings. Its median is lower than that of wages and its
inequality much larger: many small incomes and a few very large ones (Hamilton 2000; for Sweden the
business incomes of LISA, [M]).
"""

from __future__ import annotations

import numpy as np

from saga.register.simulation.cohort_year import CohortYear
from saga.register.simulation.labour_market import INDUSTRY_OWN_FIRMS
from saga.register.simulation.life_state import Floats, Labour, LifeState
from saga.register.simulation.parameters import by_sex, step_value
from saga.register.simulation.working_time import Activity


def simulate_firms(life: LifeState, year: CohortYear, activity: Activity) -> Floats:
    """Log yield of firms relative to the pay of a similar employee (n,), 0 without a firm.

    Updates in place who is self-employed (`life.own`) and the persistent log profit of firms
    (`life.profit`), which has no meaning for persons without a firm.
    """
    p, rng = year.parameters.self_employment, year.rng
    (stop_u, start_u), shocks = rng.random((2, len(life))), rng.standard_normal((2, len(life)))
    works = (life.state == Labour.EMPLOYED) & ~activity.casual & (life.employer >= 0)
    # Persons without an industry (-1) get the rate of the last one; `works` leaves them out.
    start_rate = (
        by_sex(p.start, life.female)
        * INDUSTRY_OWN_FIRMS[life.industry]
        * step_value(p.start_by_age, year.age)
    )
    stays = life.own & works & ~activity.hired & (stop_u >= p.stop)
    starts = (
        works & ~stays & (start_u < start_rate * np.where(activity.hired, p.start_of_hired, 1.0))
    )
    life.profit = np.where(
        stays, p.persistence * life.profit + p.shock_sd * shocks[0], p.start_sd * shocks[0]
    )
    life.own = stays | starts
    return np.where(life.own, p.level + life.profit + p.transitory_sd * shocks[1], 0.0)
