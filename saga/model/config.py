"""The shape of the network, and the base class of all configurations."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from saga.errors import UsageError

Count = Annotated[int, Field(strict=True, ge=1, le=100_000)]
BackboneName = Literal["decoder", "lstm", "feedforward"]
HeadName = Literal["binned", "mixture", "quantiles"]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CheckedOptions:
    """Base of a configuration; an unknown key or an invalid value is a UsageError."""

    kind: ClassVar[str] = ""  # how errors call the options

    @model_validator(mode="wrap")
    @classmethod
    def _refuse(cls, values: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return build(values)
        except ValidationError as error:
            raise UsageError(" ".join(map(cls._explain, error.errors()))) from None

    @classmethod
    def _explain(cls, error: Any) -> str:
        if not error["loc"]:
            return f"{cls.kind} options must be a mapping from names to values."
        name = error["loc"][0]
        if error["type"] == "unexpected_keyword_argument":
            known = ", ".join(field.name for field in fields(cls))
            return f"Unknown {cls.kind.lower()} option '{name}'. Known: {known}."
        fault = (
            error["msg"].replace("Input should be", "must be").replace("a valid tuple", "a list")
        )
        return f"{cls.kind} option '{name}' {fault}."

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for config.json."""
        return asdict(self)


@dataclass(frozen=True)
class ModelConfig(CheckedOptions):
    """Shape of the network. Parameters are counted by `Saga.parameters_count`."""

    kind = "Model"

    width: Count = 96  # d_model
    layers: Count = 3
    heads: Count = 4  # query heads; they share one key-value head, which makes rollouts cheap
    mlp_ratio: Count = 4
    bins: Count = 120  # bins between the lowest and highest knot of the earnings head
    head_width: Count = 192  # hidden units of the head's residual MLP
    # State of the light rollout's recurrent cell; 0: no such cell, only the exact rollout.
    light: Annotated[int, Field(strict=True, ge=0, le=100_000)] = 0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    # What combines the years: attention, an LSTM, or a map of the last ten records.
    backbone: BackboneName = "decoder"
    # The predictive distribution: bins and tails, a mixture of normals, or seven quantiles.
    head: HeadName = "binned"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.backbone == "decoder" and (
            self.width % self.heads or (self.width // self.heads) % 2
        ):
            raise UsageError(f"width {self.width} must be an even multiple of heads {self.heads}.")
        if self.backbone != "decoder" and self.light:
            raise UsageError(
                f"Only a decoder has a light rollout. Set light: 0 with backbone: {self.backbone}."
            )
        return self

    @property
    def fewest_parameters(self) -> int:
        """Fewer parameters than a network of this shape has, known before one is built."""
        blocks = self.layers * self.width * (1 if self.backbone == "lstm" else self.mlp_ratio)
        return self.width * (self.width + blocks + self.bins + self.head_width) + self.light**2

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads
