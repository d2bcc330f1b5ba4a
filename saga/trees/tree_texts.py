"""Trees as texts of unknown origin: checked before LightGBM, which trusts every index, reads them.

LightGBM's C++ code follows the indices of a text without a check: a wrong one reads foreign memory,
and a circle of nodes is walked for ever. So a text must be exactly what `Booster.model_to_string`
writes for a model of one output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saga.errors import BundleError
from saga.files.bundle_folder import TREES

END = "end of trees\n"
LARGEST = 1e6  # weight of a regression of logs, or value of a leaf, so that no sum is infinite
_MAX_LEAVES = 10_000
_HEADER = (
    "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
    r"max_feature_idx=(?P<last>\d{1,6})\nobjective=(?:quantile|binary sigmoid:1)\n"
    r"feature_names=(?P<names>[^\n]*)\nfeature_infos=(?P<infos>[^\n]*)\n"
    r"tree_sizes=(?P<sizes>(?:\d{1,10}(?: \d{1,10})*)?)\n\n"
)
_WHOLE, _NUMBER = r"-?\d{1,10}", r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf)"
# Entries of a tree: the kind of their numbers, and how many there are, by size of the tree.
_ENTRIES = {
    "num_leaves": (_WHOLE, "one"),
    "num_cat": (_WHOLE, "one"),
    "split_feature": (_WHOLE, "node"),
    "split_gain": (_NUMBER, "node"),
    "threshold": (_NUMBER, "node"),
    "decision_type": (_WHOLE, "node"),
    "left_child": (_WHOLE, "node"),
    "right_child": (_WHOLE, "node"),
    "leaf_value": (_NUMBER, "leaf"),
    "leaf_weight": (_NUMBER, "leaf"),
    "leaf_count": (_WHOLE, "leaf"),
    "internal_value": (_NUMBER, "node"),
    "internal_weight": (_NUMBER, "node"),
    "internal_count": (_WHOLE, "node"),
    "cat_boundaries": (_WHOLE, "boundary"),
    "cat_threshold": (_WHOLE, "word"),
    "is_linear": ("0", "one"),
    "shrinkage": (_NUMBER, "one"),
}
_LISTS = {name: re.compile(f"{kind}(?: {kind})*") for name, (kind, _) in _ENTRIES.items()}
_Values = NDArray[np.float64]


def checked_tree_text(text: str, names: Sequence[str]) -> str:
    """The text up to the end of its trees, if it is a model of features with these names.

    What follows, LightGBM's settings, is not needed, and a wrong line of it is fatal, too.
    Raises BundleError for another text.
    """
    trees, end, _ = text.partition(END)
    match = re.match(_HEADER, trees)
    is_plain = trees.isascii() and trees.replace("\n", "").isprintable()
    if match is None or not is_plain:  # LightGBM ends lines at \r, too
        raise _wrong("the header of a model is unknown")
    if match["names"].split(" ") != list(names) or int(match["last"]) != len(names) - 1:
        raise _wrong("a model has other features")
    if len(match["infos"].split(" ")) != len(names):
        raise _wrong("a model has other features")
    start = match.end()
    for number, size in enumerate(map(int, match["sizes"].split())):
        _check_tree(trees[start : start + size], number, len(names))
        start += size
    if not end or trees[start:].strip("\n"):
        raise _wrong("a model does not end after its trees")
    return trees + end


def _check_tree(text: str, number: int, n_features: int) -> None:
    """Raise BundleError unless the indices of a tree stay within it, without a circle."""
    title, *lines = text.rstrip("\n").split("\n")
    entries = [line.partition("=")[::2] for line in lines]
    values: dict[str, _Values] = {}
    for name, content in entries:
        if name not in _ENTRIES or name in values:
            raise _wrong("an entry of a tree is unknown or twice")
        if content and not _LISTS[name].fullmatch(content):
            raise _wrong("an entry of a tree is no list of numbers")
        values[name] = np.array(content.split(), dtype=np.float64)
    sizes = {"one": 1}
    try:
        n_leaves, n_categories = int(values["num_leaves"][0]), int(values["num_cat"][0])
        sizes |= {"node": n_leaves - 1, "leaf": n_leaves, "boundary": n_categories + 1}
        sizes["word"] = int(values["cat_boundaries"][-1]) if n_categories else 0
    except (KeyError, IndexError):
        raise _wrong("a tree lacks its size") from None
    optional = {"cat_boundaries", "cat_threshold"} if n_categories == 0 else set()
    if n_leaves == 1:  # no node: only the value is read
        optional |= _ENTRIES.keys() - {"num_leaves", "num_cat", "leaf_value", "is_linear"}
    if title != f"Tree={number}" or not 1 <= n_leaves <= _MAX_LEAVES or n_categories < 0:
        raise _wrong("a tree has another number or size")
    for name, (_, kind) in _ENTRIES.items():
        if len(values.get(name, ())) != sizes[kind] and not (
            name in optional and not len(values.get(name, ()))
        ):
            raise _wrong("a list of a tree is too long or too short")
    if not (np.abs(values["leaf_value"]) <= LARGEST).all():
        raise _wrong("a value of a tree is too large or no number")
    if n_leaves > 1:
        _check_nodes(values, n_leaves, n_features)


def _check_nodes(values: dict[str, _Values], n_leaves: int, n_features: int) -> None:
    feature, kind, threshold = (
        values[name] for name in ("split_feature", "decision_type", "threshold")
    )
    if not ((feature >= 0) & (feature < n_features)).all() or not ((kind >= 0) & (kind < 16)).all():
        raise _wrong("a node asks for a feature that there is not")
    categorical = threshold[kind % 2 == 1]
    bounds = values.get("cat_boundaries", np.zeros(1))
    n_categories = int(values["num_cat"][0])
    if not ((categorical >= 0) & (categorical < n_categories)).all():
        raise _wrong("a node asks for a category that there is not")
    if n_categories and (bounds[0] != 0 or (np.diff(bounds) < 0).any()):
        raise _wrong("the categories of a tree are out of order")
    # A node is made by dividing a leaf, after its parent, so its number is greater. Each node and
    # each leaf is one child; then there is one way to each, and no circle.
    parents = np.arange(n_leaves - 1)
    children = np.concatenate([values["left_child"], values["right_child"]])
    is_node = children >= 0
    nodes, leaves = np.sort(children[is_node]), np.sort(-1 - children[~is_node])
    if not (children[is_node] > np.tile(parents, 2)[is_node]).all():
        raise _wrong("the nodes of a tree form a circle")
    if not np.array_equal(nodes, parents[1:]) or not np.array_equal(leaves, np.arange(n_leaves)):
        raise _wrong("a node of a tree is missing or twice")


def _wrong(why: str) -> BundleError:
    return BundleError(
        f"{TREES}: the trees of the bundle are not valid, because {why}. Restore the bundle."
    )
