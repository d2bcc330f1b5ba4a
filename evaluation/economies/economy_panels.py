"""Panels of random economies: one number, one economy, one panel."""

from __future__ import annotations

from saga.evaluation.economies.observation import Observation
from saga.evaluation.economies.random_draws import ParameterDraws, random_stream
from saga.evaluation.economies.register_economy import RegisterEconomy
from saga.evaluation.economies.textbook_economy import TextbookEconomy

from saga.data.panel import SIMULATED_ID, Panel, PanelMeta

POOL_ECONOMIES = 96
REGISTER_FACTOR = 4  # persons of a register, relative to those of another economy


def draw_panel(seed: int, number: int, persons: int) -> Panel:
    """The panel of economy `number`; it depends on (seed, number, persons) alone.

    One of `POOL_ECONOMIES` economies is a register of `REGISTER_FACTOR` times `persons`. There are
    no more, because a register takes far longer per person. Persons without any record are left
    out.
    """
    draws = ParameterDraws(random_stream("economy", seed, number))
    observation = Observation.draw(draws)
    if number % POOL_ECONOMIES == 0:
        register = RegisterEconomy.draw(draws)
        frame = register.simulate(REGISTER_FACTOR * persons, observation.first_year)
    else:
        textbook = TextbookEconomy.draw(draws)
        frame = textbook.simulate(persons, observation.first_year, draws)
    frame = observation.observe(frame, draws.rng)
    meta = PanelMeta(
        panel_id=f"{SIMULATED_ID}economy-{seed}-{number}",
        currency="units",
        floor=None,
        macro=None,
        simulated=True,
    )
    return Panel.of(frame, meta)
