"""Alignment: simulated paths meet official totals of earnings by year and group.

Two methods. *Adjust* multiplies all earnings of a year and group by one factor, so zeros stay zero
and no two persons or paths of a cell change places. *Weights* leaves every path as it is and finds
the weights of persons that are closest to the given ones in relative entropy (entropy balancing,
Hainmueller 2012, Political Analysis 20:25; the exponential case of Deville and Sarndal 1992,
Journal of the American Statistical Association 87:376).

A target is about the mean over macro futures, so their spread around it stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from saga.arrays import Floats
from saga.batch.run_folder import MANIFEST, put_part
from saga.data.casting import read_column
from saga.data.files import name_of, place_of_row, read_small
from saga.data.groups import UNKNOWN
from saga.errors import InputError, Problem, UsageError
from saga.files.data_frames import Rows
from saga.files.folders import Folder, put_json
from saga.files.tables import read_provenance
from saga.population.group_bands import central_range
from saga.population.scored_paths import ScoredPaths, person_levels
from saga.schema import BY_NAME
from saga.states.codes import ABROAD, DEAD

_TOLERANCE = 1e-6  # relative error of a target that weights must reach
_STATISTICS = ("total", "mean")
_TOTAL, _PERSONS = (pl.col("weight") * pl.col("earnings")).sum(), pl.col("weight").sum()


@dataclass(frozen=True)
class Targets:
    """Official totals or means: `year`, the columns `groups`, and `total` or `mean`.

    In the frame a group has the prefix `target_`, because paths may have a column of its name.
    `of_residents` targets are about persons who are alive and in the country.
    """

    frame: pl.DataFrame
    groups: tuple[str, ...]
    statistic: str
    of_residents: bool = False

    @property
    def keys(self) -> list[str]:
        """The columns that name a target."""
        return ["year", *map(_label, self.groups)]

    @property
    def is_mean(self) -> bool:
        """Whether targets are means; if not, they are totals."""
        return self.statistic == "mean"

    def amount(self, n_paths: int) -> pl.Expr:
        """What targets are about, from the sums of `total` and `persons` over so many paths."""
        return pl.col("total") / (pl.col("persons") if self.is_mean else n_paths)

    def named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A table of targets with the names of the groups."""
        return frame.rename({_label(name): name for name in self.groups})


def read_targets(source: Rows, *, of_residents: bool = False) -> Targets:
    """The targets of a file, whose path or URL is given, or of a data frame.

    Raises InputError for missing, repeated or impossible values.
    """
    name = name_of(source, "the table of targets")
    frame = read_small(source, ["year", *_STATISTICS], name)
    statistics = [name for name in _STATISTICS if name in frame.columns]
    if "year" not in frame.columns or len(statistics) != 1:
        raise InputError(
            f"{name} must have the column year, columns of groups, and either total or mean. It "
            f"has {', '.join(frame.columns)}."
        )
    (statistic,) = statistics
    groups = tuple(name for name in frame.columns if name not in ("year", statistic))
    texts = (read_column(frame[name], BY_NAME["person_id"])[0].alias(name) for name in groups)
    frame = frame.with_columns(texts)  # as the levels of persons
    broken = ~(pl.col(statistic).is_finite() & (pl.col(statistic) > 0)).fill_null(False)
    bad = frame.select(broken | pl.col("year").is_null()).to_series().arg_true()
    if len(bad):
        problem = Problem(
            "target",
            "a year is missing, or an amount is not a positive number",
            f"Mend {place_of_row(source, bad[0])}",
            column=statistic,
            count=len(bad),
        )
        raise InputError(f"{name} has targets that cannot be met", [problem])
    if frame.select("year", *groups).is_duplicated().any():
        raise InputError(f"{name} has two targets of one year and group. Keep one of them.")
    labels = {name: _label(name) for name in groups}
    return Targets(frame.rename(labels), groups, statistic, of_residents)


def _label(group: str) -> str:
    return f"target_{group}"


def compare(scored: ScoredPaths, persons: pl.DataFrame, targets: Targets) -> pl.DataFrame:
    """The targets beside the totals or means, and the persons, of the paths.

    Columns: the targets' keys, `target`, `before` (over all paths), `persons` (mean over paths),
    the 90 % range over paths (`lower_90`, `upper_90`) and `percentile`, the share of paths below
    the target. A path without persons in a cell has the total 0 there, and no mean.

    Raises:
        UsageError: If targets are about residents and the paths do not have who is one.
        InputError: If paths have no earnings in a target's cell.
    """
    if targets.of_residents and "state" not in scored.columns:
        raise UsageError(
            "The paths have no column state, so nobody knows who is in the country. Score again "
            "with --circumstances."
        )
    # Part by part, because a sum whose order changes has other last digits in each run.
    sums = [
        _labelled(scored, persons, targets, part)
        .filter(pl.col("weight") > 0)
        .group_by(*targets.keys, "path", maintain_order=True)
        .agg(total=_TOTAL, persons=_PERSONS)
        .collect()
        for part in scored.parts
    ]
    of_path = pl.col("total", "persons").sum()
    paths = pl.concat(sums).group_by(*targets.keys, "path", maintain_order=True).agg(of_path)
    cells = paths.group_by(targets.keys, maintain_order=True).agg(
        of_path, by_path=targets.amount(1)
    )
    cells = cells.with_columns(
        before=targets.amount(scored.n_paths), persons=pl.col("persons") / scored.n_paths
    )
    frame = targets.frame.join(cells, on=targets.keys, how="left", maintain_order="left")
    empty = frame.filter(~(pl.col("before") > 0).fill_null(False))
    if empty.height:
        cell = ", ".join(str(empty[name][0]) for name in targets.keys)
        raise InputError(
            f"The paths have no earnings in {empty.height} of {frame.height} targets; the first is "
            f"{cell}. Leave these targets out, or write groups as the panel does."
        )
    # Paths without a row in the cell have a total of 0, but no mean.
    amounts = [
        np.pad(of_cell.to_numpy(), (0, 0 if targets.is_mean else scored.n_paths - len(of_cell)))
        for of_cell in frame["by_path"]
    ]
    ranges = [central_range(of_cell) for of_cell in amounts]
    below = [
        (of_cell < target).mean()
        for of_cell, target in zip(amounts, frame[targets.statistic], strict=True)
    ]
    return frame.select(
        *targets.keys,
        "persons",
        "before",
        pl.col(targets.statistic).alias("target"),
        pl.Series("lower_90", [lower for lower, _ in ranges]),
        pl.Series("upper_90", [upper for _, upper in ranges]),
        pl.Series("percentile", below),
    )


def adjust(
    scored: ScoredPaths,
    persons: pl.DataFrame,
    targets: Targets,
    folder: Folder,
    stated: Mapping[str, Any],
) -> pl.DataFrame:
    """Write the paths with adjusted earnings to `folder`, as a complete run; return diagnostics.

    Years and groups without a target stay as they are.

    Args:
        scored: A complete run of paths.
        persons: Groups and weights of its persons.
        targets: What the paths must add up to.
        folder: An empty folder.
        stated: What the provenance of each part says about the alignment.
    """
    compared = compare(scored, persons, targets)
    factors = compared.select(*targets.keys, factor=pl.col("target") / pl.col("before"))
    names = scored.rows.collect_schema().names()
    parts, after = [], []
    for part in scored.parts:
        rows = (
            _labelled(scored, persons, targets, part)
            .join(factors.lazy(), on=targets.keys, how="left", maintain_order="left")
            .with_columns(pl.col("earnings") * pl.col("factor").fill_null(1.0))
            .collect()
        )
        by_cell = rows.group_by(targets.keys, maintain_order=True)
        after.append(by_cell.agg(total=_TOTAL, persons=_PERSONS))
        provenance = {**read_provenance(scored.folder.location(part)), "aligned": dict(stated)}
        parts.append(put_part(folder, part, rows.select(names), provenance))
    run = {**scored.run, "aligned": dict(stated)}
    put_json(folder, MANIFEST, {"run": run, "totals": scored.totals, "parts": parts})
    reached = (
        pl.concat(after)
        .group_by(targets.keys, maintain_order=True)
        .agg(pl.col("total", "persons").sum())
        .select(*targets.keys, after=targets.amount(scored.n_paths))
    )
    joined = compared.join(reached, on=targets.keys, how="left", maintain_order="left")
    return joined.with_columns(factor=pl.col("target") / pl.col("before"))


def balance(
    scored: ScoredPaths, persons: pl.DataFrame, targets: Targets
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Weights of persons with which the paths meet the targets, and diagnostics.

    The number of persons stays. Raises InputError if no weights meet the targets.
    """
    compared = compare(scored, persons, targets)
    frame = persons.select("person_id", base="weight").sort("person_id")
    cells = compared.with_row_index("cell").select("cell", *targets.keys)
    rows = frame.lazy().with_row_index("row").select("row", "person_id")
    sums = pl.concat(
        _labelled(scored, persons, targets, part)
        .filter(pl.col("weight") > 0)
        .join(cells.lazy(), on=targets.keys, how="inner", maintain_order="left")
        .group_by("person_id", "cell", maintain_order=True)
        .agg(pl.col("earnings").sum(), persons=pl.len())
        .join(rows, on="person_id", maintain_order="left")
        .collect()
        for part in scored.parts
    )
    base, target = frame["base"].to_numpy(), compared["target"].to_numpy()
    person, cell = sums["row"].to_numpy(), sums["cell"].to_numpy()
    earnings, persons_on_paths = sums["earnings"].to_numpy(), sums["persons"].to_numpy()
    # Weights change how many persons a mean is of: the condition is about earnings less the mean.
    target_mean = float(not targets.is_mean)
    value = earnings - targets.is_mean * target[cell] * persons_on_paths
    # In units of the targets, so that all conditions have the same size.
    unit = target * (compared["persons"].to_numpy() if targets.is_mean else 1) * scored.n_paths
    shape = (len(base), len(target))
    matrix = csr_matrix((value / unit[cell] * base.sum(), (person, cell)), shape=shape)
    weights = _tilt(base, matrix, target_mean)
    totals, counts = (
        np.bincount(cell, weights[person] * amounts, len(target))
        for amounts in (earnings, persons_on_paths)
    )
    reached = totals / (counts if targets.is_mean else scored.n_paths)
    diagnostics = compared.with_columns(after=pl.Series(reached))
    if not np.allclose(reached, target, rtol=_TOLERANCE):
        worst = int(np.abs(reached / target - 1).argmax())
        farthest = ", ".join(str(compared[name][worst]) for name in targets.keys)
        raise InputError(
            f"No weights of these persons meet all targets; the farthest is {farthest}. Use fewer "
            "targets, or --method adjust."
        )
    return frame.select("person_id", weight=pl.Series(weights)), diagnostics


def _tilt(base: Floats, matrix: csr_matrix, target_mean: float) -> Floats:
    """Base * exp(a + matrix @ b) with the sum of `base`, and the `target_mean` of each column."""
    share = base / base.sum()

    def tilted(slopes: Floats) -> tuple[float, Floats]:
        exponent = np.asarray(matrix @ slopes)
        largest = exponent.max(initial=0.0)
        weight = share * np.exp(exponent - largest)
        return float(np.log(weight.sum()) + largest), weight / weight.sum()

    def dual(slopes: Floats) -> tuple[float, Floats]:
        level, weight = tilted(slopes)
        return level - target_mean * slopes.sum(), np.asarray(weight @ matrix) - target_mean

    def curvature(slopes: Floats) -> Floats:
        _, weight = tilted(slopes)
        mean = np.asarray(weight @ matrix)
        square = (matrix.T @ matrix.multiply(weight[:, None])).toarray()
        return np.asarray(square - np.outer(mean, mean))

    start = np.zeros(matrix.shape[1])
    options = {"gtol": _TOLERANCE / 100, "maxiter": 200}
    with np.errstate(all="ignore"):  # slopes of targets that cannot be met grow without limit
        try:
            solved = minimize(
                dual, start, jac=True, hess=curvature, method="trust-exact", options=options
            )
        except (ValueError, np.linalg.LinAlgError):
            return base
        return np.asarray(base.sum() * tilted(solved.x)[1])


def effective_persons(weights: Floats) -> float:
    """The number of equally weighted persons with the same sampling error (Kish 1965)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def _labelled(
    scored: ScoredPaths, persons: pl.DataFrame, targets: Targets, part: str
) -> pl.LazyFrame:
    """The rows of a part, with the weight, 0 of whom targets leave out, and groups as text."""
    known = scored.scan([part]).join(
        persons.lazy(), on="person_id", how="left", maintain_order="left"
    )
    if targets.of_residents:
        is_gone = pl.col("state").cast(pl.String).is_in([DEAD, ABROAD])
        known = known.with_columns(weight=pl.when(is_gone).then(0.0).otherwise("weight"))
    return known.with_columns(
        (
            pl.col(name).cast(pl.String).fill_null(UNKNOWN)
            if name in scored.columns
            else person_levels(name, pl.col("year"))
        ).alias(_label(name))
        for name in targets.groups
    )
