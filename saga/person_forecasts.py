"""What forecasts of persons have in common, as distributions or as simulated paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from saga.errors import UsageError
from saga.summaries import count

Rows = NDArray[np.generic] | slice


@dataclass(frozen=True, eq=False)
class PersonForecasts:
    """Forecasts of n persons. The first axis of every array is the persons.

    Args:
        person_id: Text, shape (n,).
        birth_year: Shape (n,).
        origin_year: Last year that is used of the person, shape (n,).
        groups: Name of a grouping -> labels (n,) at the origin, as in `saga.data.groups`.
        conditioned: Whether the macro series follow a scenario instead of the bundle's process.
        recalibrated: Whether a calibrator's maps have been applied. Raw forecasts serve to fit a
            calibrator; prediction sets, one-sided limits, path bands, present values and tables
            need recalibrated ones.

    Raises:
        ValueError: If the shapes do not agree.
    """

    kind: ClassVar[str]
    needs_recalibrated: ClassVar[str]  # how to get recalibrated ones
    needs_raw: ClassVar[str]  # how to get raw ones

    person_id: NDArray[np.str_]
    birth_year: NDArray[np.int64]
    origin_year: NDArray[np.int64]
    _: KW_ONLY
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    conditioned: bool = False
    recalibrated: bool = False

    def __post_init__(self) -> None:
        arrays = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, array in {**arrays, **self.groups}.items():
            if isinstance(array, np.ndarray) and len(array) != len(self):
                raise ValueError(
                    f"{self.kind} of {len(self)} persons need arrays of {len(self)} rows; {name} "
                    f"has {len(array)}"
                )

    def __len__(self) -> int:
        return len(self.person_id)

    def __repr__(self) -> str:
        """The number of persons and the shapes, and no value of a person."""
        arrays = {item.name: getattr(self, item.name) for item in fields(self)}
        shapes = (f"{n} {a.shape}" for n, a in arrays.items() if np.ndim(a) > 1)
        return f"<{type(self).__name__} of {count(len(self), 'person')}: {', '.join(shapes)}>"

    def take(self, rows: Rows) -> Self:
        """The forecasts of a subset of persons: an index, mask or slice."""
        return replace(self, **{f.name: _taken(getattr(self, f.name), rows) for f in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Consecutive blocks of persons as one; all with the same horizons and groupings.

        Raises:
            ValueError: If raw and recalibrated forecasts are mixed.
        """
        if len({part.recalibrated for part in parts}) > 1:
            raise ValueError(f"raw and recalibrated {cls.kind} cannot be joined")
        names = [item.name for item in fields(cls)]
        return replace(
            parts[0], **{name: _joined([getattr(part, name) for part in parts]) for name in names}
        )

    def require_recalibrated(self) -> None:
        """Raise UsageError for raw forecasts, to which a calibrator's thresholds do not apply."""
        if not self.recalibrated:
            raise UsageError(
                f"These {self.kind} are raw, but recalibrated {self.kind} are needed here. "
                f"{self.needs_recalibrated}"
            )

    def require_raw(self) -> None:
        """Raise UsageError for recalibrated forecasts.

        They must not be mapped again, nor used to fit a calibrator.
        """
        if self.recalibrated:
            raise UsageError(
                f"These {self.kind} are already recalibrated, but raw {self.kind} are needed here. "
                f"{self.needs_raw}"
            )


def _taken(value: Any, rows: Rows) -> Any:
    if isinstance(value, np.ndarray):
        return value[rows]
    if isinstance(value, Mapping):
        return {name: labels[rows] for name, labels in value.items()}
    return tuple(part.take(rows) for part in value) if isinstance(value, tuple) else value


def _joined(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    if isinstance(first, Mapping):
        return {name: np.concatenate([groups[name] for groups in values]) for name in first}
    if isinstance(first, tuple):
        return tuple(type(parts[0]).joined(parts) for parts in zip(*values, strict=True))
    return any(values)
