"""Products at a precision: an affine map by each library, and paths whose distribution stays."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.requests import Draws, Precision
from saga.simulation import matmul
from saga.simulation.matmul import Affine

# Half a unit in the last place: 24 and 8 bits of significand.
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8 / 2}


@pytest.fixture(params=[True, False], ids=["oneDNN", "default"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param and not matmul.has_wide_vectors():
        pytest.skip("float32 products are PyTorch's own on this processor")
    monkeypatch.setattr(matmul, "has_wide_vectors", lambda: request.param)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("bias", [True, False])
def test_an_affine_map_differs_from_float64_only_by_rounding(
    precision: Precision, bias: bool
) -> None:
    """Factors and result are rounded once, the sum of n terms at most n times in float32."""
    generator, n = torch.Generator().manual_seed(1), 96
    # As in the rollout, neither weight, bias nor x is contiguous.
    parameters = torch.randn(50, n + 1, generator=generator)
    weight, shift = parameters[:, :-1], parameters[:, -1] if bias else None
    x = torch.randn(3, 40, 2 * n, generator=generator)[..., ::2]
    with torch.inference_mode():
        out = Affine(weight, shift, precision)(x)
        exact = x.double() @ weight.double().T + (0.0 if shift is None else shift.double())
        magnitude = x.double().abs() @ weight.double().abs().T + (
            0.0 if shift is None else shift.double().abs()
        )
    assert out.dtype == getattr(torch, precision)
    assert out.shape == (3, 40, 50)
    allowed = (3 * ROUNDING[precision] + n * ROUNDING["float32"]) * magnitude
    assert ((out.double() - exact).abs() <= allowed).all()
    if precision == "bfloat16":  # it did round
        assert (out.double() - exact).abs().max() > 10 * n * ROUNDING["float32"] * float(
            magnitude.max()
        )


@pytest.fixture(scope="module")
def people() -> Panel:
    rng = np.random.default_rng(3)
    rows = [
        {
            "person_id": f"{i:03d}",
            "year": year,
            "birth_year": 1970 + i % 25,
            "sex": ("female", "male")[i % 2],
            "earnings": earnings,
        }
        for i in range(100)
        for year, earnings in zip(
            range(2012, 2023),
            rng.lognormal(12.5, 0.5) * rng.choice([0.0, 1.0, 1.1], 11, p=[0.1, 0.6, 0.3]),
            strict=True,
        )
    ]
    return read_panel(pl.DataFrame(rows), prices=2022)


@pytest.mark.thorough
@pytest.mark.parametrize("rollout", ["exact", "light"])
def test_bfloat16_changes_the_distribution_by_tenths_of_a_per_cent(
    people: Panel, rollout: str
) -> None:
    """Shipped bundle, same uniforms, 100 persons, six years.

    A wrong bias in attention alone changed means by 2 % and failed this test.
    """
    paths = {}
    for precision in ROUNDING:
        forecaster = Forecaster.load("bundles/small", rollout=rollout, precision=precision)  # type: ignore[arg-type]
        assert forecaster.provenance()["precision"] == precision
        paths[precision] = forecaster.simulate(
            people, Draws(200, seed=1), to_horizon=6, recalibrate=False
        ).earnings
    assert (paths["float32"] != paths["bfloat16"]).mean() > 0.5
    logs = [np.log(np.maximum(earnings, 13_000)).mean((0, 2)) for earnings in paths.values()]
    zeros = [(earnings == 0).mean((0, 2)) for earnings in paths.values()]
    assert np.abs(logs[0] - logs[1]).max() < 0.003
    assert np.abs(zeros[0] - zeros[1]).max() < 0.001
