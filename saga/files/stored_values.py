"""Values of a bundle of unknown origin, as the types that use them.

The fields of a dataclass say what each value of its JSON is, and `Shape` which sizes an array has.
Whatever else is wrong with a file is found when its part of the forecaster is built, and is an
error of that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, TypeVar

import numpy as np
import polars as pl
from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, core_schema
from safetensors import SafetensorError

from saga.arrays import Floats
from saga.errors import BundleError, UsageError

LEVEL = "level"  # of the columns of a panel
_LARGEST = 100.0  # of logs and shares: larger ones overflow
Number = FiniteFloat
Spread = Annotated[float, Field(ge=1e-9, le=1e9)]  # by which values are divided
Log = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Year = Annotated[int, Field(ge=1000, le=3000)]
Years = Annotated[int, Field(ge=0, le=1000)]
Value = TypeVar("Value")
_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    UsageError,
    SafetensorError,
    pl.exceptions.PolarsError,
)


def length(n: int) -> Any:
    """Of a tuple with `n` values."""
    return Field(min_length=n, max_length=n)


class Shape:
    """An array of logs or shares, in a dataclass: `Annotated[Floats, Shape("year", 3)]`.

    Sizes are numbers, None for any, or names: those of one name are equal in all arrays of a file.
    A panel may have no `LEVEL`; all other sizes are 1 or more.
    """

    def __init__(self, *sizes: int | str | None) -> None:
        self.sizes = sizes

    def __get_pydantic_core_schema__(self, *_: Any) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._array)

    def _array(self, values: Any, info: ValidationInfo) -> Floats:
        try:
            array = np.array(values, dtype=np.float64)
        except (TypeError, OverflowError):
            raise ValueError("must be a list of numbers") from None
        assert info.context is not None  # sizes by name, of the arrays read before
        known: dict[str, int] = info.context
        fits = array.ndim == len(self.sizes)
        for name, n in zip(self.sizes, array.shape, strict=False):
            size = known.setdefault(name, n) if isinstance(name, str) else name or n
            fits &= n == size and (n > 0 or name == LEVEL)
        if not fits:
            raise ValueError(f"must have the sizes {self.sizes}, not {array.shape}")
        if not (np.abs(array) <= _LARGEST).all():
            raise ValueError(f"must be numbers between -{_LARGEST:g} and {_LARGEST:g}")
        return array


def read_values(kind: type[Value], values: Any) -> Value:
    """The dataclass of values as JSON has them. Raises ValueError for others."""
    adapter: TypeAdapter[Value] = _reader(kind)  # type: ignore[arg-type] # a class is hashable
    return adapter.validate_python(values, context={})


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@contextmanager
def faults_of(file: str) -> Iterator[None]:
    """What is wrong with a file of a bundle that is read in this block, as a BundleError."""
    try:
        yield
    except _FAULTS as error:
        is_sentence = isinstance(error, UsageError | ValueError)
        fault = f"{error}" if is_sentence else f"{type(error).__name__}: {error}"
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            fault = f"'{place}': {first['msg']}"
        raise BundleError(
            f"{file} of the bundle is not valid. {fault[:300].rstrip('.')}. Restore the bundle "
            "from its source, or train it again."
        ) from error
