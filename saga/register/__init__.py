"""The synthetic register: a structural simulation of Swedish working lives with known truth."""

from saga.register.moments import summary
from saga.register.simulate import generate_register

__all__ = ["generate_register", "summary"]
