"""Draws docs/pictures/fan.svg: a forecast by the shipped bundle as its published sets.

Usage: python docs/pictures/fan_chart.py
"""

from __future__ import annotations

from pathlib import Path

from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.requests import ForecastRequest

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Read, forecast, draw: `saga plot examples/people.csv --person 0001` does the same."""
    panel = read_panel(ROOT / "examples/people.csv").only(["0001"])
    forecaster = Forecaster.load(ROOT / "bundles/small")
    request = ForecastRequest(coverage=(0.5, 0.8, 0.9))
    forecaster.forecast(panel, request).plot().save(ROOT / "docs/pictures/fan.svg")


if __name__ == "__main__":
    main()
