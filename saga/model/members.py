"""The members of a bundle: one network, or the K networks of an ensemble.

The members of an ensemble differ by seed alone, or by fold: then member k and its transforms were
fitted without the persons of fold k (`saga.data.split`). The weights of member k are named
`members.k.NAME` in model.safetensors, its transforms are in the list `members` of transforms.json,
and config.json has `members: K`.
A bundle of one network has none of these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from saga.errors import BundleError
from saga.features.transforms import Transforms
from saga.files.bundle_folder import WEIGHTS
from saga.files.stored_values import faults_of
from saga.model.config import ModelConfig
from saga.model.network import Saga

MEMBERS = "members"


class Member(NamedTuple):
    """A network, and the transforms that convert records to its inputs."""

    network: Saga
    transforms: Transforms


def count_members(config: Mapping[str, Any]) -> int:
    """Number of members of a bundle with this config.json."""
    return int(config.get(MEMBERS, 1))


def model_shape(config: Mapping[str, Any]) -> ModelConfig:
    """The shape of each network of a bundle. Raises BundleError if there is no such network."""
    with faults_of("config.json"):
        return ModelConfig(**config["model"])


def shared_transforms(transforms: Mapping[str, Any]) -> Transforms:
    """The transforms of all members together: money, rhythm and codes of the bundle."""
    return Transforms.from_dict({k: v for k, v in transforms.items() if k != MEMBERS})


def build_members(
    config: Mapping[str, Any], transforms: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> tuple[Member, ...]:
    """The members of a bundle, ready to forecast.

    Raises BundleError if config.json, transforms.json and the weights do not fit together.
    """
    n_members, shape = count_members(config), model_shape(config)
    if n_members * shape.fewest_parameters > sum(tensor.numel() for tensor in weights.values()):
        raise BundleError(
            "config.json of the bundle describes a larger network than it has weights of. Restore "
            "the bundle from its source, or train it again."
        )
    each = [transforms] if n_members == 1 else transforms.get(MEMBERS, [])
    if len(each) != n_members:
        raise BundleError(
            f"The bundle has {n_members} members, but transforms of {len(each)}. Train it again."
        )
    members = []
    for k, fitted in enumerate(each):
        prefix = "" if n_members == 1 else f"{MEMBERS}.{k}."
        parsed = Transforms.from_dict(fitted)
        network = Saga(shape, parsed)
        of_member = {
            name.removeprefix(prefix): tensor
            for name, tensor in weights.items()
            if name.startswith(prefix)
        }
        load_weights(network, of_member, WEIGHTS)
        members.append(Member(network, parsed))
    return tuple(members)


def load_weights(network: Module, weights: Mapping[str, Tensor], file: str) -> None:
    """Give a network the weights of a file. Raises BundleError unless all are there and finite."""
    with faults_of(file):
        network.load_state_dict(dict(weights))
        loaded = torch.cat([tensor.flatten() for tensor in network.state_dict().values()])
        if not loaded.isfinite().all():
            raise ValueError("a weight is no finite number")
    network.eval()


def joined_weights(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The weights of an ensemble, from those of its members."""
    return {
        f"{MEMBERS}.{k}.{name}": tensor
        for k, member in enumerate(weights)
        for name, tensor in member.items()
    }
