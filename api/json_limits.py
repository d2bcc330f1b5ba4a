"""Limits of a JSON body that are checked while it arrives.

Decoding holds the interpreter, so no other call is answered meanwhile. A body that cannot be a call
is therefore refused before it is complete.
"""

from __future__ import annotations

from api.problems import wrong_shape
from saga.errors import BudgetError, Problem

# Commas and opening brackets: a bound on the values that the text unfolds to. 1,000 persons with 40
# years of 13 columns have as many.
MAX_MARKS = 600_000
# Bytes without a comma or bracket: the texts of a call are names and codes.
MAX_STRETCH = 256 * 1024
_MARKS = (b",", b"[", b"{")


class JsonScan:
    """Counts what a body has so far."""

    def __init__(self) -> None:
        self._marks = self._stretch = 0

    def take(self, chunk: bytes) -> None:
        """Count one part of a body.

        Raises:
            BudgetError: The body has more values than a call needs.
            ProblemError: Status 422 if it has a text or number of very many bytes.
        """
        self._marks += sum(chunk.count(mark) for mark in _MARKS)
        if self._marks > MAX_MARKS:
            message = f"The JSON has more than {MAX_MARKS} commas and brackets"
            fix = "Send fewer persons per call, or Parquet; `saga score` does any number in batch"
            raise BudgetError(
                "Too many values for one call", [Problem("json-values", message, fix)]
            )
        last = max(chunk.rfind(mark) for mark in _MARKS)
        self._stretch = len(chunk) - last - 1 if last >= 0 else self._stretch + len(chunk)
        if self._stretch > MAX_STRETCH:
            message = f"The JSON has {MAX_STRETCH} bytes without a comma or bracket"
            raise wrong_shape(Problem("json-text", message, "Send names, codes and numbers"))
