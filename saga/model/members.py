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

from torch import Tensor

from saga.errors import BundleError
from saga.features.transforms import Transforms
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


def shared_transforms(transforms: Mapping[str, Any]) -> Transforms:
    """The transforms of all members together: money, rhythm and codes of the bundle."""
    return Transforms.from_dict({k: v for k, v in transforms.items() if k != MEMBERS})


def build_members(
    config: Mapping[str, Any], transforms: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> tuple[Member, ...]:
    """The members of a bundle, ready to forecast.

    Raises BundleError if config.json and transforms.json disagree on their number.
    """
    n_members, shape = count_members(config), ModelConfig(**config["model"])
    each = [transforms] if n_members == 1 else transforms.get(MEMBERS, [])
    if len(each) != n_members:
        raise BundleError(
            f"The bundle has {n_members} members, but transforms of {len(each)}. Train it again."
        )
    members = []
    for k, fitted in enumerate(each):
        prefix = "" if n_members == 1 else f"{MEMBERS}.{k}."
        parsed = Transforms.from_dict(fitted)
        member = Member(Saga(shape, parsed), parsed)
        member.network.load_state_dict(
            {
                name.removeprefix(prefix): tensor
                for name, tensor in weights.items()
                if name.startswith(prefix)
            }
        )
        member.network.eval()
        members.append(member)
    return tuple(members)


def joined_weights(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The weights of an ensemble, from those of its members."""
    return {
        f"{MEMBERS}.{k}.{name}": tensor
        for k, member in enumerate(weights)
        for name, tensor in member.items()
    }
