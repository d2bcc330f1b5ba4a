"""Short fits of the econometric baselines, for tests of what holds after any fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from saga.evaluation.baselines.econometric import abb
from saga.evaluation.baselines.gkos import gkos
from saga.evaluation.baselines.gkos.gkos_smm import Effort, search


@contextmanager
def short_fits() -> Iterator[None]:
    """A search of few points and steps, and few iterations; the estimates are poor."""
    with pytest.MonkeyPatch.context() as patch:
        effort = Effort(sobol=2, polished=1, rounds=2)
        patch.setattr(gkos, "search", partial(search, effort=effort))
        patch.setattr(gkos, "PROFILE_CAREERS", 1_000)
        patch.setattr(abb, "ITERATIONS", 4)
        patch.setattr(abb, "AVERAGED_ITERATIONS", 2)
        yield
