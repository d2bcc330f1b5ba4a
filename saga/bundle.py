"""The bundle: one directory with everything needed to forecast, verified when it is opened.

Weights are safetensors, tables are Parquet, all else is text or JSON, and no pickle is read. The
texts of trees go to native code only after `saga.trees` has checked their indices. The seal shows
damage, not who made the bundle. `saga.files.bundle_folder` writes and verifies the files.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from saga import schema
from saga.bundle_form import COLUMNS, FORMS
from saga.data.panel import Panel, is_simulated
from saga.data.split import salted_like
from saga.errors import BundleError, UsageError
from saga.files.bundle_folder import (
    AUDIT,
    CALIBRATION,
    CARD,
    CIRCUMSTANCES,
    DIAGNOSTICS,
    PARTS,
    TREES,
    VINTAGES,
    WEIGHTS,
    digest_files,
    encode_part,
    parse_object,
    read_folder,
    write_folder,
)
from saga.files.stored_tables import read_stored_table
from saga.files.stored_values import faults_of, read_values
from saga.training_records import TrainingRecords

# These files determine raw forecasts; a bundle need not have trees.
_MODEL = (WEIGHTS, TREES, "config.json", "macro.json", "transforms.json")
# Parts of the contents, each a table of its own or a set of weights, and their files.
_TABLES = {
    "calibration": CALIBRATION,
    "diagnostics": DIAGNOSTICS,
    "trees": TREES,
    "vintages": VINTAGES,
}
_WEIGHTS = {"weights": WEIGHTS, "circumstances": CIRCUMSTANCES}
PROMISE = "privacy"  # in config.json: the promise of `saga train --privacy`
JUDGED = "judged"  # in split.json: the sibling of a bundle that has learnt from every person
# Most bytes that a table may need in memory: the texts of trees are long.
_TABLE_BYTES = {part: 2**29 if part == "trees" else 2**26 for part in _TABLES}
# Properties of a column that the weights depend on; descriptions and ranges can change freely.
_BINDING = ("name", "kind", "dtype", "codes", "pattern")


@dataclass(frozen=True, eq=False, kw_only=True)
class BundleContents:
    """What a bundle stores; each JSON part, table and set of weights is one file."""

    config: dict[str, Any]
    transforms: dict[str, Any]
    macro: dict[str, Any]
    split: dict[str, Any]
    weights: dict[str, torch.Tensor]
    card: str
    metrics: dict[str, Any] = field(default_factory=dict)
    calibration: pl.DataFrame | None = None
    diagnostics: pl.DataFrame | None = None
    vintages: pl.DataFrame | None = None
    circumstances: dict[str, torch.Tensor] | None = None
    trees: pl.DataFrame | None = None
    audit: dict[str, Any] | None = None

    @property
    def lasting_diagnostics(self) -> pl.DataFrame | None:
        """The results that a new calibration keeps: those of another bundle, its judged sibling."""
        return self.diagnostics if JUDGED in self.split else None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Bundle(BundleContents):
    """A verified bundle in memory."""

    path: Path
    schema: dict[str, Any]
    manifest: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Bundle {self.path}: {self.digest[:12]}, trained on {self.trained_on}>"

    @property
    def digest(self) -> str:
        """The sha256 over the names and hashes of all files, 64 hex digits."""
        return str(self.manifest["digest"])

    @property
    def model_digest(self) -> str:
        """The sha256 over the files that decide raw paths; a new calibration does not change it."""
        files = self.manifest["files"]
        return digest_files({name: files[name] for name in _MODEL if name in files})

    @property
    def calibration_digest(self) -> str | None:
        """The sha256 of the calibration table, None if the bundle is not calibrated."""
        digest: str | None = self.manifest["files"].get(CALIBRATION)
        return digest

    @property
    def code_version(self) -> str:
        """Version of the code that wrote the bundle."""
        return str(self.manifest["code_version"])

    @property
    def panel_id(self) -> str:
        """Name of the panel on which the bundle was trained."""
        return str(self.split.get("panel_id", ""))

    @property
    def simulated(self) -> bool:
        """Whether the bundle was trained on simulated people."""
        return is_simulated(self.panel_id)

    @property
    def macro_name(self) -> str | None:
        """Name of the macro series, as a panel has it; None without series."""
        return self.macro.get("source", "sweden") if self.macro.get("series") else None

    @property
    def trained_on(self) -> str:
        """Word for provenance: "simulated people" or "records"."""
        return "simulated people" if self.simulated else "records"

    @property
    def training_records(self) -> TrainingRecords:
        """What the records of the training persons span."""
        return read_values(TrainingRecords, self.config["records"])

    @property
    def calibration_records(self) -> TrainingRecords | None:
        """What the records of the calibration persons span; None without calibration."""
        calibration = self.metrics.get("calibration")
        return None if calibration is None else read_values(TrainingRecords, calibration["records"])

    def salted(self, panel: Panel) -> Panel:
        """The panel with the salt of this bundle's split (`salted_like`)."""
        return salted_like(panel, self.split, self.path)

    def state_weights(self) -> dict[str, torch.Tensor]:
        """Weights of the state network.

        Raises:
            UsageError: If the bundle has no state network.
        """
        if self.circumstances is None:
            raise UsageError(
                "This bundle has no state model. Train one with `saga circumstances BUNDLE "
                "--panel DIR`, or request earnings alone."
            )
        return self.circumstances

    def check_judgeable(self) -> None:
        """Raise UsageError if no person is left on whom the bundle could be judged."""
        if JUDGED in self.split:
            sibling = self.split[JUDGED]
            raise UsageError(
                "This bundle has learnt from every person of its panel, so nobody is left to judge "
                f"it. Judge its sibling {sibling['name']} (digest {sibling['digest'][:12]}), which "
                "has the same recipe."
            )

    @property
    def parameters(self) -> int:
        """Number of parameters in the weights."""
        return sum(tensor.numel() for tensor in self.weights.values())

    @classmethod
    def load(cls, path: str | Path) -> Bundle:
        """Read the bundle at `path`; every byte is checked before any of it is used.

        Raises:
            BundleError: If a file is missing, unknown or changed, or the format is another one.
        """
        path = Path(path)
        manifest, content = read_folder(path)
        parts: dict[str, Any] = {
            part: parse_object(content[f"{part}.json"], path / f"{part}.json") for part in PARTS
        }
        _check_schema(parts["schema"], path, str(manifest["code_version"]))
        if AUDIT in content:
            parts["audit"] = parse_object(content[AUDIT], path / AUDIT)
        for part, kind in FORMS.items():
            if part in parts:
                with faults_of(f"{part}.json"):
                    read_values(kind, parts[part])
        for part, name in _TABLES.items():
            if name in content:
                with faults_of(name):
                    columns = COLUMNS.get(part, {})
                    parts[part] = read_stored_table(content[name], _TABLE_BYTES[part], columns)
        for part, name in _WEIGHTS.items():
            if name in content:
                with faults_of(name):
                    parts[part] = load_safetensors(content[name])
        with faults_of(CARD):
            card = content[CARD].decode("utf-8")
        return cls(path=path, **parts, card=card, manifest=manifest)


def write_bundle(
    path: str | Path,
    contents: BundleContents,
    *,
    seed: int | None,
    command: str,
    parents: Sequence[str] = (),
) -> Bundle:
    """Write a bundle to `path` and return it as `Bundle.load` reads it.

    The same contents give the same bytes. An existing bundle at `path` is replaced as a whole.

    Args:
        path: Directory of the bundle.
        contents: What to store.
        seed: Seed of the training; None in the manifest unless persons are simulated.
        command: Command line that made the bundle, see `recorded_command`.
        parents: Digests of the bundles that this one was made from.

    Raises:
        BundleError: If a part cannot be stored, or `path` is a directory but not a bundle.
    """
    path = Path(path)
    parts = {**vars(contents), "schema": describe_schema(contents.transforms)}
    content = {f"{part}.json": encode_part(parts[part], part) for part in PARTS}
    content[CARD] = contents.card.encode("utf-8")
    if contents.audit is not None:
        content[AUDIT] = encode_part(contents.audit, "audit")
    for part, name in _WEIGHTS.items():
        if parts[part] is not None:
            content[name] = _weight_bytes(parts[part])
    for part, name in _TABLES.items():
        if parts[part] is not None:
            content[name] = _table_bytes(parts[part], name)
    panel_id = str(contents.split.get("panel_id", ""))
    write_folder(
        path,
        content,
        seed=seed if is_simulated(panel_id) else None,
        command=recorded_command(command, panel_id),
        parents=parents,
    )
    return Bundle.load(path)


def recorded_command(command: str, panel_id: str) -> str:
    """What a bundle records of a command; trained on real persons, no paths, seeds and options."""
    return command if is_simulated(panel_id) else " ".join(command.split()[:2])


def replace_parts(
    bundle: Bundle,
    out: str | Path,
    *,
    command: str,
    calibration: pl.DataFrame | None = None,
    diagnostics: pl.DataFrame | None = None,
    circumstances: dict[str, torch.Tensor] | None = None,
    metrics: dict[str, Any] | None = None,
    card: str | None = None,
) -> Bundle:
    """Write `bundle` to `out` (which may be its own path) with some parts replaced.

    A part that is None stays as it is, but a new calibration removes the old diagnostics, unless
    they are those of a judged sibling, and what was fitted again is no longer audited. The digest
    of `bundle` is added to the parents.

    Args:
        bundle: The bundle to start from.
        out: Directory of the new bundle.
        command: Command line that made the new bundle.
        calibration: New calibration table.
        diagnostics: New diagnostics table.
        circumstances: New weights of the state network.
        metrics: New metrics.
        card: New text of `README.md`.
    """
    if diagnostics is None:
        diagnostics = bundle.diagnostics if calibration is None else bundle.lasting_diagnostics
    contents = replace(
        bundle,
        calibration=bundle.calibration if calibration is None else calibration,
        diagnostics=diagnostics,
        circumstances=bundle.circumstances if circumstances is None else circumstances,
        metrics=bundle.metrics if metrics is None else metrics,
        card=bundle.card if card is None else card,
        audit=bundle.audit if calibration is None and circumstances is None else None,
    )
    return write_bundle(
        out,
        contents,
        seed=bundle.manifest["seed"],
        command=command,
        parents=(*bundle.manifest["parents"], bundle.digest),
    )


def default_bundle() -> Path:
    """The path in `SAGA_BUNDLE`, else that of the shipped bundle `small`."""
    chosen = os.environ.get("SAGA_BUNDLE")
    return Path(chosen) if chosen else shipped_bundle("small")


def shipped_bundle(name: str) -> Path:
    """The path of a shipped bundle: `bundles/NAME` in this directory, else the installed one.

    A wheel contains the bundles as `saga/bundles`; in a checkout they are beside the code.
    """
    shipped = Path("bundles") / name
    code = Path(__file__).resolve().parent
    installed = [folder / shipped for folder in (code, code.parent)]
    return next((path for path in (shipped, *installed) if path.is_dir()), shipped)


def describe_schema(transforms: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The columns of `saga.schema` as JSON, for `schema.json` and `GET /v1/variables`.

    With the own columns of the training panel in `transforms` (transforms.json), if there are any,
    and the codes of those that are categories.
    """
    codes = transforms.get("codes", {})
    extra = [
        {**column, "codes": list(codes.get(column["name"], ()))}
        for column in transforms.get("extra", ())
    ]
    columns = [
        {
            name.removesuffix("_name"): list(value) if isinstance(value, tuple) else value
            for name, value in vars(column).items()
        }
        for column in schema.COLUMNS
    ]
    return {
        "columns": columns,
        "ages": [schema.MIN_AGE, schema.MAX_AGE],
        "max_context": schema.MAX_CONTEXT_YEARS,
        "price_year": schema.PRICE_YEAR,
        **({"extra": extra} if extra else {}),
    }


def _weight_bytes(weights: Mapping[str, torch.Tensor]) -> bytes:
    broken = [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise BundleError(
            f"The weights {', '.join(broken)} contain NaN or infinity: training diverged. Train "
            "again with a lower learning rate."
        )
    # Clones, because safetensors refuses tensors that share memory (tied weights).
    return save_safetensors(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    )


def _table_bytes(table: pl.DataFrame, name: str) -> bytes:
    if "person_id" in table.columns:
        raise BundleError(
            f"{name} must not contain single persons, but has a column person_id. Store summaries "
            "of groups."
        )
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def _check_schema(stored: Mapping[str, Any], path: Path, version: str) -> None:
    """Raise BundleError if columns or codes differ from this code: the weights depend on them."""

    def binding(described: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return [tuple(column[key] for key in _BINDING) for column in described["columns"]]

    in_code = binding(describe_schema())
    try:
        in_bundle = binding(stored)
    except (KeyError, TypeError):
        in_bundle = []
    if in_bundle != in_code:
        columns = [*in_code, *in_bundle]
        differing = (str(c[0]) for c in columns if c not in in_code or c not in in_bundle)
        named = ", ".join(list(dict.fromkeys(differing))[:5]) or "in another order"
        raise BundleError(
            f"{path / 'schema.json'} describes other columns than this version of SAGA has "
            f"({named}). Install version {version} of saga-forecast, or train the bundle again."
        )
