"""Placebos hide what they should, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.bundle_variants import COLUMNS, read_variants
from saga.evaluation.placebos import (
    IDENTITY,
    average_by_kind,
    number_kinds,
    permute_years,
)
from saga.evaluation.scoring.evaluation_settings import Sample

from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.errors import UsageError

Make = Callable[..., Panel]


def test_permuted_records_hold_the_same_values_in_another_order(random_walk: Make) -> None:
    panel = random_walk(40)
    shuffled = permute_years(panel, 0)
    assert shuffled.frame.select(IDENTITY).equals(panel.frame.select(IDENTITY))
    before, new = (
        p.frame.group_by("person_id").agg(pl.col("earnings").sort()).sort("person_id")
        for p in (panel, shuffled)
    )
    assert before.equals(new)
    moved = (panel.frame["earnings"] != shuffled.frame["earnings"]).to_numpy().mean()
    assert moved > 0.9
    assert permute_years(panel, 0).frame.equals(shuffled.frame)
    assert not permute_years(panel, 1).frame.equals(shuffled.frame)
    # A person's order does not depend on the other persons.
    first_five = panel.persons()[:5]
    assert permute_years(panel.only(first_five), 0).frame.equals(shuffled.only(first_five).frame)


def test_distributions_are_averaged_within_kinds_of_one_age(grouped: Make) -> None:
    (setting,) = Sample.of(grouped(3000), seed=0).settings([1])
    kind = number_kinds(setting.past, setting.origins)
    rng = np.random.default_rng(0)
    n = len(kind)
    shocks = rng.normal(size=(n, 1, 50)) + rng.normal(13, 1, (n, 1, 1))
    samples = np.where(rng.random((n, 1, 50)) < rng.random((n, 1, 1)), 0.0, np.exp(shocks))
    marginals = Marginals.from_samples(samples)
    averages = average_by_kind(marginals, kind)
    amounts = np.exp(np.linspace(9, 16, 8))
    for label in np.unique(kind)[:20]:
        members = marginals.take(kind == label)
        first = averages.take(np.flatnonzero(kind == label)[:1])
        expected = members.probability(np.broadcast_to(amounts, (len(members), 1, 8))).mean(axis=0)
        # The average is interpolated between the points of one grid.
        assert first.probability(amounts[None, None])[0] == pytest.approx(expected, abs=0.01)
        assert first.p_zero[0] == pytest.approx(members.p_zero.mean(axis=0))
        assert len(np.unique(averages.p_zero[kind == label])) == 1
    ages = (
        setting.origins.year
        - setting.past.frame.group_by("person_id", maintain_order=True)
        .first()["birth_year"]
        .to_numpy()
    )
    assert all(len(np.unique(ages[kind == k])) == 1 for k in np.unique(kind))


def test_variants_are_relative_to_their_file_and_errors_name_the_row(tmp_path: Path) -> None:
    (tmp_path / "no-family").mkdir()
    row = (
        "- {name: no-family, table: Ablations, label: no family, note: 64x3 for 10 minutes, "
        "bundle: no-family}\n"
    )
    file = tmp_path / "variants.yaml"
    file.write_text(row)
    variants = read_variants(file)
    assert variants.columns == list(COLUMNS)
    assert variants["bundle"].to_list() == [str(tmp_path / "no-family")]
    for text, message in (
        (row.replace("note", "notes"), "0.note"),
        (row + row, "no-family occurs twice"),
        (
            row.replace("name: no-family", "name: told"),
            "told is the name of a row that the contest makes itself",
        ),
        (
            row.replace("no-family", "told"),
            "told is the name of a row that the contest makes itself",
        ),
        (row.replace("bundle: no-family", "bundle: lost"), "there is no bundle lost"),
        ("a: [", "not YAML"),
        ("[]", "at least 1"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=message):
            read_variants(file)
