"""Limits of a JSON body that are checked while it arrives.

While the interpreter decodes a body, it answers no other call. A body that cannot be a call is
therefore refused before it is complete.
"""

from __future__ import annotations

from saga.api.problems import wrong_shape

from saga.errors import BudgetError, Problem

# Most commas and opening brackets of a body, which has at most one value more than these. 1,000
# persons with 40 years of 13 columns have nearly this number.
MAX_MARKS = 600_000
# Most bytes in a row without a comma or opening bracket: the texts of a call are names and codes.
MAX_STRETCH = 256 * 1024
_MARKS = (b",", b"[", b"{")


class JsonScan:
    """Counts the commas and opening brackets of a body, and the bytes since the last of them."""

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
            message = f"The JSON has more than {MAX_MARKS:,} commas and opening brackets"
            fix = "Send fewer persons per call, or Parquet; `saga score` does any number in batch"
            raise BudgetError(
                "Too many values for one call", [Problem("json-values", message, fix)]
            )
        last = max(chunk.rfind(mark) for mark in _MARKS)
        self._stretch = len(chunk) - last - 1 if last >= 0 else self._stretch + len(chunk)
        if self._stretch > MAX_STRETCH:
            message = f"The JSON has over {MAX_STRETCH:,} bytes without a comma or opening bracket"
            raise wrong_shape(Problem("json-text", message, "Send names, codes and numbers"))
