"""The synthetic register: a structural simulation of working lives in Sweden."""

from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from saga.register.validation.register_check import check_register

__all__ = ["RegisterSettings", "check_register", "generate_register"]
