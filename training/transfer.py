"""Starting weights from another bundle: columns and codes are matched by name.

A column or code that the bundle does not have is treated as missing before the first step, so
that it has no effect at first. Ages and horizons that no training record has get the embedding of
the nearest one that has after the fit: their own stay near the random numbers of the start, and
forecasts would jump where the records end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from saga import schema
from saga.bundle import Bundle
from saga.errors import UsageError
from saga.features.sequences import N_OTHER
from saga.features.transforms import OTHER, Transforms
from saga.model import ModelConfig, Saga
from saga.model.members import build_members, count_members
from saga.requests import MAX_HORIZON
from saga.schema import MIN_AGE
from saga.training_records import TrainingRecords

_UNSEEN = (0.0, 1.0)  # location and spread of a column without values in training


@dataclass(frozen=True, eq=False)
class Source:
    """The bundle that training starts from; `name` and `panel_id` are for the model card."""

    name: str
    digest: str
    panel_id: str
    model: ModelConfig
    transforms: Transforms
    records: TrainingRecords
    weights: dict[str, Tensor]

    @classmethod
    def open(cls, path: str | Path) -> Source:
        """Read a bundle. Raises UsageError if it has several members."""
        bundle = Bundle.load(path)
        if (n_members := count_members(bundle.config)) > 1:
            raise UsageError(
                f"{path} has {n_members} members; training can only start from one network. Name a "
                "bundle that was trained without --folds and without members."
            )
        with torch.random.fork_rng():  # the training that follows keeps its random numbers
            (member,) = build_members(bundle.config, bundle.transforms, bundle.weights)
        return cls(
            name=Path(path).name,
            digest=bundle.digest,
            panel_id=bundle.panel_id,
            model=member.network.config,
            transforms=member.transforms,
            records=bundle.training_records,
            weights=bundle.weights,
        )

    def as_dict(self) -> dict[str, str]:
        """Which bundle it is, for config.json."""
        return {"name": self.name, "digest": self.digest, "panel_id": self.panel_id}

    def paragraph(self) -> str:
        """Paragraph of the model card: the bundle that training started from."""
        return f"""
Training started from the weights of the bundle `{self.name}` (digest `{self.digest}`), which was
trained on the panel `{self.panel_id}`. The weights therefore contain what was learnt from both.
"""

    def network(self, model: ModelConfig, transforms: Transforms, zero_share: float) -> Saga:
        """A network for `transforms` (fitted like those of the source) with the source's weights.

        Args:
            model: Shape of the network, equal to that of the source but for its dropout.
            transforms: Transforms of the panel to train on.
            zero_share: Share of zeros among its known earnings, for a source without zeros.
        """
        network = Saga(model, transforms)
        start = network.state_dict()
        for name, weight in self.weights.items():
            if name in start and weight.shape == start[name].shape:
                start[name] = weight.clone()
        constant = self._fill_schema_columns(start, transforms)
        own_constant = torch.zeros_like(constant)
        self._fill_own_numbers(start, transforms, own_constant)
        self._fill_own_categories(start, transforms, own_constant)
        # What the source adds to each token for columns that are always missing.
        start["tokens.age.weight"] = self.weights["tokens.age.weight"] + (constant + own_constant)
        if transforms.has_zeros and not self.transforms.has_zeros:
            _start_zeros(start, zero_share)
        network.load_state_dict(start)
        return network

    def _fill_schema_columns(self, start: dict[str, Tensor], transforms: Transforms) -> Tensor:
        """Set the weights of the schema's columns.

        Returns the vector (d,) that the source adds to each token for columns that it has not seen.
        """
        source = self.transforms
        for j, name in enumerate(schema.CATEGORICAL):
            key = f"tokens.codes.{j}.weight"
            start[key] = _rows(self.weights[key], source.codes[name], transforms.codes[name])
        weight = start["tokens.other.weight"]
        constant = torch.zeros(len(weight))
        for j, name in enumerate(OTHER):
            seen = (transforms.location[name], transforms.spread[name]) != _UNSEEN
            if seen and (source.location[name], source.spread[name]) == _UNSEEN:
                constant += self._flag_weight(weight[:, N_OTHER + j])
                weight[:, [j, N_OTHER + j]] = 0.0
        return constant

    def _fill_own_numbers(
        self, start: dict[str, Tensor], transforms: Transforms, constant: Tensor
    ) -> None:
        """Set the weights of own columns of numbers.

        Adds to `constant` (d,) what the source adds to a token if a column of its own is missing.
        """
        of_source, of_panel = self.transforms.numbers[N_OTHER:], transforms.numbers[N_OTHER:]
        if of_panel:
            start["tokens.own_other.weight"].zero_()
        for j, name in enumerate(of_source):
            weight = self.weights["tokens.own_other.weight"][:, [j, len(of_source) + j]]
            if name in of_panel:
                k = of_panel.index(name)
                start["tokens.own_other.weight"][:, [k, len(of_panel) + k]] = weight
            else:
                constant += self._flag_weight(weight[:, 1])

    def _fill_own_categories(
        self, start: dict[str, Tensor], transforms: Transforms, constant: Tensor
    ) -> None:
        """Set the weights of own columns of categories; adds to `constant` as above."""
        source, first = self.transforms, len(schema.CATEGORICAL)
        of_source, of_panel = source.categories[first:], transforms.categories[first:]
        blocks = _blocks(start, "tokens.own_codes", len(of_panel))
        if of_panel:
            start["tokens.own_category.weight"].zero_()
        for j, (name, block) in enumerate(
            zip(of_source, _blocks(self.weights, "tokens.own_codes", len(of_source)), strict=True)
        ):
            table = self.weights[f"tokens.own_codes.{j}.weight"]
            weight = self.weights["tokens.own_category.weight"][:, block]
            if name not in of_panel:
                constant += weight @ table[0]
                continue
            k = of_panel.index(name)
            rows = _rows(table, source.codes[name], transforms.codes[name])
            width = rows.shape[1]
            wider = start[f"tokens.own_codes.{k}.weight"]
            wider[:, :width], wider[:, width:] = rows, 0.0
            columns = slice(blocks[k].start, blocks[k].start + width)
            start["tokens.own_category.weight"][:, columns] = weight

    def _flag_weight(self, weight: Tensor) -> Tensor:
        """What a missing value adds to a token, given the weight of its flag."""
        return torch.zeros_like(weight) if "missingness" in self.transforms.without else weight


def _rows(table: Tensor, codes: Sequence[str], new_codes: Sequence[str]) -> Tensor:
    """Rows of `table`, which embeds `codes`, for other codes; an unknown one counts as missing."""
    row = {code: i for i, code in enumerate(codes, start=1)}
    return table[[0, *(row.get(code, 0) for code in new_codes)]].clone()


def _blocks(weights: dict[str, Tensor], prefix: str, count: int) -> list[slice]:
    """Columns of the embeddings of each own category in `own_category`."""
    blocks, start = [], 0
    for j in range(count):
        width = weights[f"{prefix}.{j}.weight"].shape[1]
        blocks.append(slice(start, start + width))
        start += width
    return blocks


def _start_zeros(start: dict[str, Tensor], zero_share: float) -> None:
    """Give the panel's share of zeros to a binned head that has never seen one."""
    share = min(max(zero_share, 1e-3), 0.9)
    for prefix in ("head", "direct.head"):
        bias, weight = start.get(f"{prefix}.cells.bias"), start.get(f"{prefix}.cells.weight")
        if bias is not None and weight is not None:
            weight[0] = 0.0
            bias[0] = bias[1:].logsumexp(0) + torch.logit(torch.tensor(share))


def fill_unseen(network: Saga, records: TrainingRecords) -> None:
    """Copy the nearest trained embedding to each age and horizon beyond the `records`.

    A person's last record is never an input, nor the first one a target.
    """
    young, old = records.first_age - MIN_AGE, records.last_age - MIN_AGE
    direct = network.direct
    _fill(direct.head.gap, 1, min(records.longest, MAX_HORIZON))
    _fill(direct.age, young + 1, old)
    for inputs in (network.tokens, network.light):
        if inputs is not None:
            _fill(inputs.age, young, old - 1)


def _fill(embedding: nn.Embedding, first: int, last: int) -> None:
    nearest = torch.arange(embedding.num_embeddings).clamp(first, last)
    with torch.no_grad():
        embedding.weight.copy_(embedding.weight[nearest])
