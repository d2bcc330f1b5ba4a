"""What the files of a bundle show without any attack: names, rare codes, small cells, the split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from saga.bundle import Bundle, describe_schema
from saga.conformal.calibration_table import OF_YEARS
from saga.data.panel import Panel
from saga.data.split import SALT
from saga.files.bundle_folder import TREES
from saga.model.members import shared_transforms
from saga.small_groups import MIN_PERSONS

_PATH = re.compile(r"(?:^|[\s\"'=`])(?:/[\w.-]+){2,}|\b[A-Za-z]:\\")
_LEAVES = re.compile(r"^leaf_count=(.*)$", re.MULTILINE)
_TOKEN = re.compile(r"\w(?:[\w.-]+\w)")
_LONG = 6  # digits from which a number in a text can be somebody's id
_OWN = 0.9  # share of persons with a value of their own from which a column names persons


@dataclass(frozen=True)
class Finding:
    """What a check result; `passed` is None where the finding only informs."""

    check: str
    result: str
    passed: bool | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def scan_bundle(bundle: Bundle, panel: Panel, members: Panel) -> list[Finding]:
    """All checks of a bundle that was trained on the persons `members` of the panel."""
    texts = list(_texts(bundle))
    named = sorted({file for file, text in texts if _PATH.search(text)})
    salted, seed = SALT in bundle.split, bundle.manifest["seed"]
    training = bundle.metrics["training"]
    learnt = f"from {training['person_years']:,} years of {training['persons']['train']:,} persons"

    def passed(is_safe: bool) -> bool | None:
        """Simulated people have no secret, so nothing is told of them."""
        return is_safe or (None if bundle.simulated else False)

    findings = [
        Finding(
            "who was trained on, from an id",
            "the split has a secret salt"
            if salted
            else "the split is public: an id and the bundle tell it",
            passed(salted),
        ),
        Finding(
            "seed of the training in the manifest",
            "none" if seed is None else "recorded",
            passed(seed is None),
        ),
        Finding("paths of folders in texts", ", ".join(named) or "none", passed(not named)),
        _id_finding(panel, texts),
        Finding("weights", f"{bundle.parameters:,}, learnt {learnt}", None),
        *_code_findings(bundle, members),
        *_column_findings(bundle, members),
        *_cell_findings(bundle),
    ]
    leaves = [
        int(count) for _, text in texts for line in _LEAVES.findall(text) for count in line.split()
    ]
    if leaves:
        result = (
            f"{min(leaves)} origins in the smallest of {len(leaves):,} leaves, of which one person "
            "may have several"
        )
        is_small = min(leaves) < MIN_PERSONS
        findings.append(Finding("leaves of trees", result, False if is_small else None))
    return findings


def _id_finding(panel: Panel, texts: Sequence[tuple[str, str]]) -> Finding:
    ids = {name for name in panel.persons() if not name.isdecimal() or len(name) >= _LONG}
    words = {
        word
        for file, text in texts
        for word in _TOKEN.findall(text)
        # Trees count persons and rows with numbers of any length, and have no column of ids.
        if file != TREES or not word.isdecimal()
    }
    n_named, n_short = len(ids & words), panel.n_persons - len(ids)
    short = f"; {n_short:,} numbers of fewer than {_LONG} digits not sought" * bool(n_short)
    return Finding("ids of persons in texts", f"{n_named} of {len(ids):,}{short}", n_named == 0)


def rare_codes(bundle: Bundle, members: Panel) -> list[tuple[str, str]]:
    """Column and code of each code that one to nine members have."""
    rare = []
    for name in shared_transforms(bundle.transforms).categories:
        if name in members.frame.columns:
            persons = members.frame.drop_nulls(name).group_by(name)
            counts = persons.agg(pl.col("person_id").n_unique().alias("persons"))
            few = counts.filter(pl.col("persons") < MIN_PERSONS)
            rare += [(name, str(code)) for code in few[name].sort().to_list()]
    return rare


def _code_findings(bundle: Bundle, members: Panel) -> Iterator[Finding]:
    known = bundle.transforms["codes"]
    rare = rare_codes(bundle, members)
    stored = sum(code in known.get(name, ()) for name, code in rare)
    result = f"{stored} of {len(rare)} codes that fewer than {MIN_PERSONS} training persons have"
    inherited = " (from the bundle that training started from)" if "source" in bundle.config else ""
    yield Finding("rare codes in the bundle", result + inherited * bool(stored), stored == 0)


def _column_findings(bundle: Bundle, members: Panel) -> Iterator[Finding]:
    extra = [column["name"] for column in describe_schema(bundle.transforms).get("extra", ())]
    naming = []
    for name in extra:
        known = members.frame.select("person_id", name).drop_nulls()
        if known.height:
            persons = known["person_id"].n_unique()
            of_value = known.unique().group_by(name).agg(pl.col("person_id").n_unique().alias("n"))
            single = of_value.filter(pl.col("n") == 1).height
            changes = known.unique().height > 2 * persons  # amounts differ by year, ids do not
            if single >= _OWN * persons and not changes:
                naming.append(name)
    result = ", ".join(naming) or "none"
    yield Finding("own columns that number the persons", result, not naming)


def _cell_findings(bundle: Bundle) -> Iterator[Finding]:
    for name in ("calibration", "diagnostics", "vintages"):
        table: pl.DataFrame | None = getattr(bundle, name)
        if table is None:
            continue
        if name == "calibration":
            table = table.filter(~pl.col("kind").is_in(OF_YEARS))
        counts = [c for c in ("n", "persons", "n_persons") if c in table.columns]
        numbers = [int(n) for c in counts for n in table[c].drop_nulls().to_list() if n > 0]
        if numbers:
            result = f"{min(numbers)} persons in the smallest of {len(numbers):,} cells"
            yield Finding(f"cells of {name}", result, min(numbers) >= MIN_PERSONS)


def _texts(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Name of the file and text, of all texts of the bundle."""
    yield "README.md", bundle.card
    yield "manifest.json", bundle.manifest["command"]
    for name in ("config", "transforms", "macro", "split", "metrics"):
        for text in _strings(getattr(bundle, name)):
            yield f"{name}.json", text
    for name in ("calibration", "diagnostics", "vintages", "trees"):
        table: pl.DataFrame | None = getattr(bundle, name)
        if table is not None:
            for column in table.select(pl.col(pl.String)).iter_columns():
                for text in column.drop_nulls().unique().to_list():
                    yield f"{name}.parquet", text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield str(key)
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
