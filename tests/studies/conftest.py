"""The toy processes of the evaluation tests, for the studies."""

from tests.evaluation.conftest import grouped, panel_from, part, random_walk, walker

__all__ = ["grouped", "panel_from", "part", "random_walk", "walker"]
