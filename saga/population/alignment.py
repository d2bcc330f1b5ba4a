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
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from saga.batch.run_folder import MANIFEST, put_part
from saga.data.groups import UNKNOWN
from saga.errors import InputError, Problem
from saga.files.folders import Folder, open_file, put_json
from saga.files.tables import read_provenance
from saga.population.group_bands import central_range
from saga.population.scored_paths import ScoredPaths, person_levels

Floats = NDArray[np.float64]

_TOLERANCE = 1e-6  # relative error of a target that weights must reach
_STATISTICS = ("total", "mean")


@dataclass(frozen=True)
class Targets:
    """Official totals or means: `year`, the columns `groups`, and `total` or `mean`.

    In the frame a group has the prefix `target_`, because paths may have a column of its name.
    """

    frame: pl.DataFrame
    groups: tuple[str, ...]
    statistic: str

    @property
    def keys(self) -> list[str]:
        """The columns that name a target."""
        return ["year", *map(_label, self.groups)]

    def named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A table of targets with the names of the groups."""
        return frame.rename({_label(name): name for name in self.groups})


def read_targets(path: str | Path) -> Targets:
    """The targets of a CSV file, whose path or URL is given.

    Raises InputError for missing, repeated or impossible values.
    """
    frame = pl.read_csv(open_file(path).read(), infer_schema=False)
    statistics = [name for name in _STATISTICS if name in frame.columns]
    if "year" not in frame.columns or len(statistics) != 1:
        raise InputError(
            f"{path} must have the column year, columns of groups, and either total or mean."
        )
    (statistic,) = statistics
    groups = tuple(name for name in frame.columns if name not in ("year", statistic))
    frame = frame.with_columns(
        pl.col("year").cast(pl.Int32, strict=False),
        pl.col(statistic).cast(pl.Float64, strict=False),
    )
    broken = ~(pl.col(statistic).is_finite() & (pl.col(statistic) > 0)).fill_null(False)
    bad = frame.with_row_index("line", offset=2).filter(broken | pl.col("year").is_null())
    if bad.height:
        problem = Problem(
            "target",
            "a year is not a whole number, or an amount is not a positive number",
            f"Mend line {bad['line'][0]} of the file",
            column=statistic,
            count=bad.height,
        )
        raise InputError(f"{path} has targets that cannot be met", [problem])
    if frame.select("year", *groups).is_duplicated().any():
        raise InputError(f"{path} has two targets of one year and group. Keep one of them.")
    return Targets(frame.rename({name: _label(name) for name in groups}), groups, statistic)


def _label(group: str) -> str:
    return f"target_{group}"


def compare(scored: ScoredPaths, persons: pl.DataFrame, targets: Targets) -> pl.DataFrame:
    """The targets beside the totals and persons of the paths, mean over paths.

    Columns: the targets' keys, `target`, `before` (both totals), `persons`, the 90 % range of the
    total over paths (`lower_90`, `upper_90`) and `percentile`, the share of paths whose total is
    below the target. Raises InputError if paths have no earnings in a target's cell.
    """
    weight = pl.col("weight")
    before, count = (weight * pl.col("earnings")).sum(), weight.sum()
    # Part by part, because a sum whose order changes has other last digits in each run.
    sums = [
        _labelled(scored, persons, targets, part)
        .group_by(*targets.keys, "path", maintain_order=True)
        .agg(total=before, persons=count)
        .collect()
        for part in scored.parts
    ]
    of_path = pl.col("total", "persons").sum()
    paths = pl.concat(sums).group_by(*targets.keys, "path", maintain_order=True).agg(of_path)
    cells = paths.group_by(targets.keys, maintain_order=True).agg(
        before=pl.col("total").sum() / scored.n_paths,
        persons=pl.col("persons").sum() / scored.n_paths,
        totals=pl.col("total"),
    )
    frame = targets.frame.join(cells, on=targets.keys, how="left", maintain_order="left")
    empty = frame.filter(~(pl.col("before") > 0).fill_null(False))
    if empty.height:
        cell = ", ".join(str(empty[name][0]) for name in targets.keys)
        raise InputError(
            f"The paths have no earnings in {empty.height} of {frame.height} targets; the first is "
            f"{cell}. Leave these targets out, or write groups as the panel does."
        )
    total = pl.col("total") if targets.statistic == "total" else pl.col("mean") * pl.col("persons")
    compared = frame.with_columns(target=total)
    totals = [series.to_numpy() for series in compared["totals"]]
    ranges = [central_range(of_cell) for of_cell in totals]
    below = [
        (of_cell < target).mean()
        for of_cell, target in zip(totals, compared["target"], strict=True)
    ]
    return compared.select(
        *targets.keys,
        "persons",
        "before",
        "target",
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
        amounts = (pl.col("weight") * pl.col("earnings")).sum() / scored.n_paths
        after.append(rows.group_by(targets.keys, maintain_order=True).agg(after=amounts))
        provenance = {**read_provenance(scored.folder.location(part)), "aligned": dict(stated)}
        parts.append(put_part(folder, part, rows.select(names), provenance))
    run = {**scored.run, "aligned": dict(stated)}
    put_json(folder, MANIFEST, {"run": run, "totals": scored.totals, "parts": parts})
    reached = (
        pl.concat(after).group_by(targets.keys, maintain_order=True).agg(pl.col("after").sum())
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
        .join(cells.lazy(), on=targets.keys, how="inner", maintain_order="left")
        .group_by("person_id", "cell", maintain_order=True)
        .agg((pl.col("earnings").sum() / scored.n_paths).alias("value"))
        .join(rows, on="person_id", maintain_order="left")
        .collect()
        for part in scored.parts
    )
    base, target = frame["base"].to_numpy(), compared["target"].to_numpy()
    shape = (len(base), len(target))
    # In units of the targets, so that all conditions have the same size.
    value = sums["value"].to_numpy() / target[sums["cell"].to_numpy()] * base.sum()
    matrix = csr_matrix((value, (sums["row"].to_numpy(), sums["cell"].to_numpy())), shape=shape)
    weights = _tilt(base, matrix)
    reached = np.asarray(weights @ matrix) / base.sum() * target
    diagnostics = compared.with_columns(after=pl.Series(reached))
    if not np.allclose(reached, target, rtol=_TOLERANCE):
        worst = int(np.abs(reached / target - 1).argmax())
        cell = ", ".join(str(compared[name][worst]) for name in targets.keys)
        raise InputError(
            f"No weights of these persons meet all targets; the farthest is {cell}. Use fewer "
            "targets, or --method adjust."
        )
    return frame.select("person_id", weight=pl.Series(weights)), diagnostics


def _tilt(base: Floats, matrix: csr_matrix) -> Floats:
    """Base * exp(a + matrix @ b) with the sum of `base`, and mean 1 of each column of `matrix`."""
    share = base / base.sum()

    def tilted(slopes: Floats) -> tuple[float, Floats]:
        exponent = np.asarray(matrix @ slopes)
        largest = exponent.max(initial=0.0)
        weight = share * np.exp(exponent - largest)
        return float(np.log(weight.sum()) + largest), weight / weight.sum()

    def dual(slopes: Floats) -> tuple[float, Floats]:
        level, weight = tilted(slopes)
        return level - slopes.sum(), np.asarray(weight @ matrix) - 1

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
    """The rows of a part, with the weight and groups of each person as text."""
    known = scored.scan([part]).join(
        persons.lazy(), on="person_id", how="left", maintain_order="left"
    )
    return known.with_columns(
        (
            pl.col(name).cast(pl.String).fill_null(UNKNOWN)
            if name in scored.columns
            else person_levels(name, pl.col("year"))
        ).alias(_label(name))
        for name in targets.groups
    )
