"""Trees of unknown origin: a text that LightGBM would follow out of its memory is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from saga.errors import BundleError
from saga.trees.horizon_trees import _text_without_ranges
from saga.trees.tree_texts import checked_tree_text

lightgbm = pytest.importorskip("lightgbm")
NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module", params=["quantile", "binary"])
def text(request: pytest.FixtureRequest) -> str:
    random = np.random.default_rng(1)
    x = random.normal(size=(500, 3))
    x[:, 2] = random.integers(0, 40, 500)
    total = x[:, 0] + x[:, 2]
    y = total > 18 if request.param == "binary" else total
    data = lightgbm.Dataset(x, y, categorical_feature=[2], feature_name=NAMES)
    settings = {"objective": request.param, "num_leaves": 6, "verbosity": -1}
    return _text_without_ranges(lightgbm.train(settings, data, num_boost_round=3))


def test_what_lightgbm_writes_passes(text: str) -> None:
    assert checked_tree_text(text, NAMES) == text
    x, y = np.random.default_rng(2).normal(size=(200, 3)), np.zeros(200)
    data = lightgbm.Dataset(x, y, feature_name=NAMES)  # no split: a tree is one leaf
    for objective in ("quantile", "binary"):
        settings = {"objective": objective, "verbosity": -1}
        checked_tree_text(lightgbm.train(settings, data, 2).model_to_string(), NAMES)


def with_line(text: str, line: str, values: str) -> str:
    """The text with another first line of this name, and the sizes of trees that it then has.

    So the check of sizes is not all that refuses it.
    """
    changed = re.sub(
        f"^{line}=.*$", lambda _: f"{line}={values}", text, count=1, flags=re.MULTILINE
    )
    if line == "tree_sizes":
        return changed
    trees = changed.split("\n\n", 1)[1].split("end of trees")[0]
    pieces = re.findall(r"Tree=\d+\n.*?\n\n\n", trees, re.DOTALL)
    sizes = " ".join(str(len(piece)) for piece in pieces)
    return re.sub("tree_sizes=.*", f"tree_sizes={sizes}", changed)


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("split_feature", lambda v: ["100000000", *v[1:]]),
        ("split_feature", lambda v: ["-1", *v[1:]]),
        ("split_feature", lambda v: ["3", *v[1:]]),
        ("split_feature", lambda v: v[1:]),
        ("left_child", lambda v: ["0", *v[1:]]),
        ("left_child", lambda v: [v[0], "0", *v[2:]]),
        ("right_child", lambda v: ["77", *v[1:]]),
        ("right_child", lambda v: ["-77", *v[1:]]),
        ("right_child", lambda v: [*v[:-1], v[0]]),
        ("num_leaves", lambda v: ["1000000"]),
        ("num_leaves", lambda v: ["-5"]),
        ("num_leaves", lambda v: ["1_0"]),
        ("num_leaves", lambda v: ["2"]),
        ("leaf_value", lambda v: v[1:]),
        ("leaf_value", lambda v: ["nan", *v[1:]]),
        ("leaf_value", lambda v: ["x", *v[1:]]),
        ("leaf_value", lambda v: ["1.7e308"] * len(v)),
        ("cat_boundaries", lambda v: ["0", *["99999999"] * (len(v) - 1)]),
        ("cat_boundaries", lambda v: ["5", *v[1:]]),
        ("cat_threshold", lambda v: v[1:]),
        ("num_cat", lambda v: ["0"]),
        ("num_cat", lambda v: ["4000000000"]),
        ("decision_type", lambda v: ["1"] * len(v)),
        ("is_linear", lambda v: ["1"]),
        ("max_feature_idx", lambda v: ["100000000"]),
        ("num_class", lambda v: ["7"]),
        ("num_tree_per_iteration", lambda v: ["7"]),
        ("tree_sizes", lambda v: ["9999999", *v[1:]]),
        ("tree_sizes", lambda v: v[1:]),
        ("tree_sizes", lambda v: ["9" * 5_000, *v[1:]]),
        ("feature_names", lambda v: v[1:]),
        ("feature_infos", lambda v: v[1:]),
        ("feature_infos", lambda v: ["[0:1]\rnum_class=7", *v[1:]]),
        ("objective", lambda v: ["lambdarank"]),
        ("shrinkage", lambda v: ["1", "\nleaf_const=1"]),
    ],
)
def test_a_changed_index_size_or_entry_is_refused(text: str, line: str, change: object) -> None:
    match = re.search(f"^{line}=(.*)$", text, re.MULTILINE)
    assert match is not None
    bad = with_line(text, line, " ".join(change(match[1].split(" "))))  # type: ignore[operator]
    assert bad != text
    with pytest.raises(BundleError, match="trees of the bundle"):
        checked_tree_text(bad, NAMES)


def test_nodes_that_form_a_circle_beside_the_tree_are_refused(text: str) -> None:
    """Nodes 1 and 2 lead to each other; each node and each leaf is still one child."""
    assert "num_leaves=6\n" in text.split("Tree=1")[0]
    bad = with_line(text, "left_child", "-1 2 1 -2 -3")
    bad = with_line(bad, "right_child", "3 -4 -5 4 -6")
    with pytest.raises(BundleError, match="form a circle"):
        checked_tree_text(bad, NAMES)


def test_settings_after_the_trees_are_neither_stored_nor_read(text: str) -> None:
    """A line without a colon among them ends the process, and one of them is the seed."""
    assert "seed" not in text
    bad = f"{text}\nparameters:\n[seed\nend of parameters\n"
    assert checked_tree_text(bad, NAMES) == text
    assert lightgbm.Booster(model_str=text).num_trees() == 3
