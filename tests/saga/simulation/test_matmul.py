"""Products of simulated paths: an affine map by each library."""

from __future__ import annotations

import pytest
import torch

from saga.simulation import matmul
from saga.simulation.matmul import Affine

ROUNDING = 2.0**-24  # half a unit in the last place of float32


@pytest.fixture(params=[True, False], ids=["oneDNN", "default"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param and not matmul.has_wide_vectors():
        pytest.skip("float32 products are PyTorch's own on this processor")
    monkeypatch.setattr(matmul, "has_wide_vectors", lambda: request.param)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("bias", [True, False])
def test_an_affine_map_differs_from_float64_only_by_rounding(bias: bool) -> None:
    """Factors and result are rounded once, the sum of n terms at most n times in float32."""
    generator, n = torch.Generator().manual_seed(1), 96
    # As in the rollout, neither weight, bias nor x is contiguous.
    parameters = torch.randn(50, n + 1, generator=generator)
    weight, shift = parameters[:, :-1], parameters[:, -1] if bias else None
    x = torch.randn(3, 40, 2 * n, generator=generator)[..., ::2]
    with torch.inference_mode():
        out = Affine(weight, shift)(x)
        exact = x.double() @ weight.double().T + (0.0 if shift is None else shift.double())
        magnitude = x.double().abs() @ weight.double().abs().T + (
            0.0 if shift is None else shift.double().abs()
        )
    assert out.dtype == torch.float32
    assert out.shape == (3, 40, 50)
    allowed = (3 + n) * ROUNDING * magnitude
    assert ((out.double() - exact).abs() <= allowed).all()
