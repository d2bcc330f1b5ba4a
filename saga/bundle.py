"""The bundle: one directory with everything needed to forecast, verified when it is opened.

Weights are safetensors, tables are Parquet, all else is JSON: nothing in a bundle can run code.
`manifest.json` lists the sha256 of every other file, and its own seal. A bundle is never changed in
place: a new version is written to a new directory, which then replaces the old one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from saga import schema
from saga.errors import BundleError, UsageError
from saga.files.atomic import commit, json_bytes, sync_folder
from saga.files.tables import check_writable
from saga.version import current_version

# Format 1 conditioned recorded years on macro values; in format 2 macro values entered the network
# before the layers of the head.
FORMAT = 3
MANIFEST, CARD, WEIGHTS = "manifest.json", "README.md", "model.safetensors"
CALIBRATION, DIAGNOSTICS = "calibration.parquet", "diagnostics.parquet"
CIRCUMSTANCES = "circumstances.safetensors"
PARTS = ("config", "schema", "transforms", "macro", "split", "metrics")  # each is PART.json
MODEL = (WEIGHTS, "config.json", "macro.json", "transforms.json")  # these decide the raw paths
REQUIRED = frozenset({WEIGHTS, CARD, *(f"{part}.json" for part in PARTS)})
OPTIONAL = frozenset({CALIBRATION, DIAGNOSTICS, CIRCUMSTANCES})
MANIFEST_KEYS = frozenset(
    {"format", "code_version", "seed", "command", "parents", "files", "digest", "seal"}
)
# Properties of a column that the weights depend on; descriptions and ranges can change freely.
BINDING = ("name", "kind", "dtype", "codes", "pattern")


@dataclass(frozen=True, kw_only=True)
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
    circumstances: dict[str, torch.Tensor] | None = None


@dataclass(frozen=True, kw_only=True)
class Bundle(BundleContents):
    """A verified bundle in memory."""

    path: Path
    schema: dict[str, Any]
    manifest: dict[str, Any]

    @property
    def digest(self) -> str:
        """The sha256 over the names and hashes of all files, 64 hex digits."""
        return str(self.manifest["digest"])

    @property
    def model_digest(self) -> str:
        """The sha256 over the files that decide raw paths; a new calibration does not change it."""
        return _digest({name: self.manifest["files"][name] for name in MODEL})

    @property
    def calibration_digest(self) -> str | None:
        """The sha256 of the calibration table, None if the bundle is not calibrated."""
        digest: str | None = self.manifest["files"].get(CALIBRATION)
        return digest

    @property
    def code_version(self) -> str:
        """Version of the code that wrote the bundle."""
        return str(self.manifest["code_version"])

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
        manifest = _read_manifest(path)
        content = _read_verified(path, manifest)
        parts = {
            part: _parse_object(content[f"{part}.json"], path / f"{part}.json") for part in PARTS
        }
        _check_schema(parts["schema"], path, str(manifest["code_version"]))
        tables = {
            name: pl.read_parquet(io.BytesIO(content[name]))
            for name in (CALIBRATION, DIAGNOSTICS)
            if name in content
        }
        states = content.get(CIRCUMSTANCES)
        return cls(
            path=path,
            **parts,
            weights=load_safetensors(content[WEIGHTS]),
            calibration=tables.get(CALIBRATION),
            diagnostics=tables.get(DIAGNOSTICS),
            circumstances=None if states is None else load_safetensors(states),
            card=content[CARD].decode("utf-8"),
            manifest=manifest,
        )


def write_bundle(
    path: str | Path,
    contents: BundleContents,
    *,
    seed: int,
    command: str,
    parents: Sequence[str] = (),
) -> Bundle:
    """Write a bundle to `path` and return it as `Bundle.load` reads it.

    The same contents give the same bytes. An existing bundle at `path` is replaced as a whole.

    Args:
        path: Directory of the bundle.
        contents: What to store.
        seed: Seed of the training.
        command: Command line that made the bundle.
        parents: Digests of the bundles that this one was made from.

    Raises:
        BundleError: If a part cannot be stored, or `path` is a directory but not a bundle.
    """
    path = Path(path)
    parts = {
        "config": contents.config,
        "transforms": contents.transforms,
        "macro": contents.macro,
        "split": contents.split,
        "metrics": contents.metrics,
        "schema": describe_schema(),
    }
    content = {f"{part}.json": _json_bytes(value, part) for part, value in parts.items()}
    content[WEIGHTS] = _weight_bytes(contents.weights)
    if contents.circumstances is not None:
        content[CIRCUMSTANCES] = _weight_bytes(contents.circumstances)
    content[CARD] = contents.card.encode("utf-8")
    tables = {CALIBRATION: contents.calibration, DIAGNOSTICS: contents.diagnostics}
    for name, table in tables.items():
        if table is not None:
            content[name] = _table_bytes(table, name)
    files = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(content.items())}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "code_version": current_version(),
        "seed": seed,
        "command": command,
        "parents": list(parents),
        "files": files,
        "digest": _digest(files),
    }
    manifest["seal"] = _seal(manifest)
    content[MANIFEST] = _json_bytes(manifest, "manifest")
    _commit(path, content)
    return Bundle.load(path)


def check_replaceable(path: str | Path) -> None:
    """Check that a bundle can be written to `path`, before long work starts.

    Raises:
        BundleError: If `path` exists and is neither a bundle nor an empty directory.
        UsageError: If the directory is not writable.
    """
    path = Path(path)
    check_writable(path.absolute())
    if (
        path.exists()
        and not (path / MANIFEST).is_file()
        and not (path.is_dir() and not any(path.iterdir()))
    ):
        raise BundleError(
            f"{path} exists and is not a bundle, so it is not replaced. Give another --out, or "
            "remove it."
        )


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

    A part that is None stays as it is, but a new calibration removes the old diagnostics. The
    digest of `bundle` is added to the parents.

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
    if diagnostics is None and calibration is None:
        diagnostics = bundle.diagnostics
    contents = replace(
        bundle,
        calibration=bundle.calibration if calibration is None else calibration,
        diagnostics=diagnostics,
        circumstances=bundle.circumstances if circumstances is None else circumstances,
        metrics=bundle.metrics if metrics is None else metrics,
        card=bundle.card if card is None else card,
    )
    return write_bundle(
        out,
        contents,
        seed=bundle.manifest["seed"],
        command=command,
        parents=(*bundle.manifest["parents"], bundle.digest),
    )


def default_bundle() -> Path:
    """The path in `SAGA_BUNDLE`, else `bundles/small` in this directory or beside the code."""
    if chosen := os.environ.get("SAGA_BUNDLE"):
        return Path(chosen)
    shipped = Path("bundles") / "small"
    beside_code = Path(__file__).resolve().parent.parent / shipped
    return beside_code if beside_code.is_dir() and not shipped.is_dir() else shipped


def describe_schema() -> dict[str, Any]:
    """The columns of `saga.schema` as JSON, for `schema.json` and `GET /v1/variables`."""
    columns = [
        {
            field.name.removesuffix("_name"): _plain(getattr(column, field.name))
            for field in fields(column)
        }
        for column in schema.COLUMNS
    ]
    return {
        "columns": columns,
        "ages": [schema.MIN_AGE, schema.MAX_AGE],
        "max_context": schema.MAX_CONTEXT_YEARS,
        "price_year": schema.PRICE_YEAR,
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _json_bytes(value: Mapping[str, Any], part: str) -> bytes:
    try:
        return json_bytes(value)
    except (TypeError, ValueError) as error:
        raise BundleError(
            f"{part}.json cannot be written: {error}. Give plain numbers, strings, lists and "
            "dicts, all finite."
        ) from error


def _weight_bytes(weights: Mapping[str, torch.Tensor]) -> bytes:
    broken = [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise BundleError(
            f"The weights {', '.join(broken)} hold NaN or infinity: training diverged. Train again "
            "with a lower learning rate."
        )
    # Clones, because safetensors refuses tensors that share memory (tied weights).
    return save_safetensors(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    )


def _table_bytes(table: pl.DataFrame, name: str) -> bytes:
    if "person_id" in table.columns:
        raise BundleError(
            f"{name} must not hold single persons, but has a column person_id. Store cells, not "
            "persons."
        )
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def _digest(files: Mapping[str, str]) -> str:
    return hashlib.sha256(
        "".join(f"{name}\n{files[name]}\n" for name in sorted(files)).encode()
    ).hexdigest()


def _seal(manifest: Mapping[str, Any]) -> str:
    unsealed = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(_json_bytes(unsealed, "manifest")).hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        retired = _sibling(path, "old")
        hint = (
            f"A replacement was interrupted: rename {retired} to {path.name}."
            if retired.is_dir()
            else "Give the directory of a bundle."
        )
        raise BundleError(f"There is no bundle at {path}. {hint}")
    file = path / MANIFEST
    if not file.is_file():
        raise BundleError(
            f"{path} has no {MANIFEST}, so it is not a bundle. Give the directory that "
            "`saga train` wrote."
        )
    data = file.read_bytes()
    manifest = _parse_object(data, file)
    if manifest.get("format") != FORMAT:
        version = manifest.get("code_version")
        hint = "" if version == current_version() else f", or install saga-forecast {version!r}"
        raise BundleError(
            f"{file} is of bundle format {manifest.get('format')!r}, this version of SAGA reads "
            f"format {FORMAT}. Train the bundle again{hint}."
        )
    intact = (
        manifest.keys() == MANIFEST_KEYS
        and manifest["seal"] == _seal(manifest)
        and data == _json_bytes(manifest, "manifest")
    )
    if not intact or manifest["digest"] != _digest(manifest["files"]):
        raise BundleError(
            f"{file} was changed after the bundle was written. Restore the bundle from its source."
        )
    return manifest


def _read_verified(path: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The bytes of every file, each equal to its hash.

    The caller parses these bytes and does not read the files again, so that a file cannot change
    between the check and its use.
    """
    listed, present = set(manifest["files"]), {entry.name for entry in path.iterdir()} - {MANIFEST}
    for name in sorted(present | listed):
        if name not in REQUIRED | OPTIONAL:
            pickles = {".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".bin"}
            is_pickle = Path(name).suffix in pickles
            reason = "may hold code (pickle)" if is_pickle else "is not a part of a bundle"
            raise BundleError(
                f"{path / name} {reason}. Remove it, or restore the bundle from its source."
            )
        if name not in listed:
            raise BundleError(
                f"{path / name} is not listed in {MANIFEST}. Remove it, or restore the bundle from "
                "its source."
            )
    if absent := sorted((REQUIRED | listed) - present):
        raise BundleError(f"{path / absent[0]} is missing. Restore the bundle from its source.")
    content = {}
    for name in sorted(listed):
        file = path / name
        if file.is_symlink() or not file.is_file():
            raise BundleError(f"{file} is not a regular file. Restore the bundle from its source.")
        content[name] = file.read_bytes()
        if hashlib.sha256(content[name]).hexdigest() != manifest["files"][name]:
            raise BundleError(
                f"{file} was changed after the bundle was written (sha256 differs). Restore the "
                "bundle from its source."
            )
    return content


def _parse_object(data: bytes, file: Path) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BundleError(
            f"{file} is not valid JSON. Restore the bundle from its source."
        ) from error
    if not isinstance(value, dict):
        raise BundleError(
            f"{file} does not hold a JSON object. Restore the bundle from its source."
        )
    return value


def _check_schema(stored: Mapping[str, Any], path: Path, version: str) -> None:
    """Raise BundleError if columns or codes differ from this code: the weights depend on them."""

    def binding(described: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return [tuple(column[key] for key in BINDING) for column in described["columns"]]

    if binding(stored) != binding(describe_schema()):
        raise BundleError(
            f"{path / 'schema.json'} describes other columns than this version of SAGA has. "
            f"Install version {version} of saga-forecast, or train the bundle again."
        )


def _sibling(path: Path, suffix: str) -> Path:
    return path.parent / f".{path.resolve().name}.{suffix}"


def _commit(path: Path, content: Mapping[str, bytes]) -> None:
    """Write all files to a new directory beside `path`, then rename it to `path`.

    A bundle at `path` is renamed first. Between the two renames there is no bundle at `path`. If
    the process is killed then, the error of `Bundle.load` names the directory of the old bundle.
    """
    check_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh, retired = _sibling(path, f"new-{os.getpid()}"), _sibling(path, "old")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        for name, data in content.items():
            commit(fresh / name, partial(Path.write_bytes, data=data))
        if path.exists():
            shutil.rmtree(retired, ignore_errors=True)
            path.rename(retired)
        fresh.rename(path)
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        if retired.exists() and not path.exists():
            retired.rename(path)
        raise
    shutil.rmtree(retired, ignore_errors=True)
