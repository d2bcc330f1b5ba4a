"""The clairvoyant of a generated register, which knows its process and hidden states."""

from saga.register.oracle.clairvoyant import Oracle, is_full

__all__ = ["Oracle", "is_full"]
