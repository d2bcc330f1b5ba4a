"""The synthetic register: a structural simulation of Swedish working lives with known truth."""

from saga.register.check import check_register
from saga.register.simulate import generate_register

__all__ = ["check_register", "generate_register"]
