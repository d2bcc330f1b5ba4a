"""The special functions agree with SciPy's, which tests may import."""

from __future__ import annotations

import numpy as np
from scipy import special as theirs

from saga import special as ours


def test_they_agree_with_scipy_up_to_the_ends() -> None:
    p = np.r_[0.0, 10.0 ** -np.arange(300, 0, -1.0), np.linspace(0.1, 1, 10_001)]
    x = np.r_[-np.inf, np.linspace(-800, 800, 10_001), np.inf]
    np.testing.assert_allclose(ours.ndtri(p), theirs.ndtri(p), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(ours.logit(p), theirs.logit(p), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(ours.expit(x), theirs.expit(x), rtol=1e-12, atol=1e-300)
