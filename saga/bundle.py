"""The bundle: one directory with everything needed to forecast, verified byte by byte when it is opened.

Weights are safetensors, tables are Parquet, all else is JSON: nothing in a bundle can run code. `manifest.json` holds
the sha256 of every other file, and its own seal. A bundle never changes in place: it is written to a new directory beside
the old one, which then takes its name.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
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

FORMAT = 3  # 1: the years of the record were told their economy. 2: the economy entered before the head's layers
MANIFEST, WEIGHTS, CALIBRATION, CARD = (
    "manifest.json",
    "model.safetensors",
    "calibration.parquet",
    "README.md",
)
DIAGNOSTICS, CIRCUMSTANCES = "diagnostics.parquet", "circumstances.safetensors"
PARTS = ("config", "schema", "transforms", "macro", "split", "metrics")  # each is PART.json
MODEL = (
    WEIGHTS,
    "config.json",
    "macro.json",
    "transforms.json",
)  # what simulated paths follow from, before calibration
REQUIRED = frozenset({WEIGHTS, CARD, *(f"{part}.json" for part in PARTS)})
OPTIONAL = frozenset({CALIBRATION, DIAGNOSTICS, CIRCUMSTANCES})
MANIFEST_KEYS = frozenset(
    {"format", "code_version", "seed", "command", "parents", "files", "digest", "seal"}
)
# What a column means to the weights; descriptions and ranges may be reworded without a retraining.
BINDING = ("name", "kind", "dtype", "codes", "pattern")


@dataclass(frozen=True)
class Bundle:
    """A verified bundle in memory.

    `digest` is the sha256 over the names and hashes of all files, thus names the content whoever wrote it;
    `calibration_digest` is the sha256 of `calibration.parquet`, None without one.
    """

    path: Path
    config: dict[str, Any]
    schema: dict[str, Any]
    transforms: dict[str, Any]
    macro: dict[str, Any]
    split: dict[str, Any]
    weights: dict[str, torch.Tensor]
    calibration: pl.DataFrame | None
    diagnostics: pl.DataFrame | None
    circumstances: dict[str, torch.Tensor] | None
    metrics: dict[str, Any]
    card: str
    manifest: dict[str, Any]

    @property
    def digest(self) -> str:
        """sha256 over the names and hashes of all files, 64 hex digits."""
        return str(self.manifest["digest"])

    @property
    def model_digest(self) -> str:
        """sha256 over the files that uncalibrated paths follow from: it stays when the bundle is calibrated anew."""
        return _digest({name: self.manifest["files"][name] for name in MODEL})

    @property
    def calibration_digest(self) -> str | None:
        """sha256 of the calibration table, None where the bundle is not calibrated."""
        digest: str | None = self.manifest["files"].get(CALIBRATION)
        return digest

    @property
    def code_version(self) -> str:
        """Version of the code that wrote the bundle."""
        return str(self.manifest["code_version"])

    def state_weights(self) -> dict[str, torch.Tensor]:
        """Weights of `saga.states.state_network`. Raises UsageError if the bundle has none."""
        if self.circumstances is None:
            raise UsageError(
                "This bundle has no state model. Train one with `saga circumstances BUNDLE --panel DIR`, "
                "or request earnings alone."
            )
        return self.circumstances

    @property
    def parameters(self) -> int:
        """Numbers in the weights, counted."""
        return sum(tensor.numel() for tensor in self.weights.values())

    @classmethod
    def load(cls, path: str | Path) -> Bundle:
        """Read the bundle at `path`; every byte is checked before any of it is used.

        Raises `BundleError`, naming the file and the fix, when a file is missing, unknown, changed or of another format version.
        """
        path = Path(path)
        manifest = _read_manifest(path)
        content = _read_verified(path, manifest)
        parts = {
            part: _parse_object(content[f"{part}.json"], path / f"{part}.json") for part in PARTS
        }
        _check_schema(parts["schema"], path, str(manifest["code_version"]))
        calibration, diagnostics = (
            None if name not in content else _read_table(content[name])
            for name in (CALIBRATION, DIAGNOSTICS)
        )
        return cls(
            path=path,
            **parts,
            weights=load_safetensors(content[WEIGHTS]),
            calibration=calibration,
            diagnostics=diagnostics,
            circumstances=load_safetensors(content[CIRCUMSTANCES])
            if CIRCUMSTANCES in content
            else None,
            card=content[CARD].decode("utf-8"),
            manifest=manifest,
        )


def write_bundle(
    path: str | Path,
    *,
    config: Mapping[str, Any],
    transforms: Mapping[str, Any],
    macro: Mapping[str, Any],
    split: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    card: str,
    seed: int,
    command: str,
    calibration: pl.DataFrame | None = None,
    diagnostics: pl.DataFrame | None = None,
    circumstances: Mapping[str, torch.Tensor] | None = None,
    metrics: Mapping[str, Any] | None = None,
    parents: Sequence[str] = (),
    code_version: str | None = None,
) -> Bundle:
    """Write a bundle to `path` and return it as `Bundle.load` reads it.

    The same content gives the same bytes. An existing bundle at `path` is replaced as a whole, never half; any other
    directory there is left alone. `parents` are digests of the bundles or registers this one was made from; `command` is the line
    that made it. Raises `BundleError` when a part cannot be stored.
    """
    path = Path(path)
    parts = {
        "config": config,
        "transforms": transforms,
        "macro": macro,
        "split": split,
        "metrics": metrics or {},
        "schema": describe_schema(),
    }
    content = {f"{part}.json": _json_bytes(value, part) for part, value in parts.items()}
    content[WEIGHTS] = _weight_bytes(weights)
    if circumstances is not None:
        content[CIRCUMSTANCES] = _weight_bytes(circumstances)
    content[CARD] = card.encode("utf-8")
    for name, table in ((CALIBRATION, calibration), (DIAGNOSTICS, diagnostics)):
        if table is not None:
            content[name] = _table_bytes(table, name)
    files = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(content.items())}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "code_version": code_version or current_version(),
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
    """Raise `BundleError` where a bundle may not be written to `path`, UsageError where it cannot; asked before hours of work go into it.

    A bundle and an empty directory are replaced, anything else there is left alone.
    """
    path = Path(path)
    check_writable(path.absolute())
    if (
        path.exists()
        and not (path / MANIFEST).is_file()
        and not (path.is_dir() and not any(path.iterdir()))
    ):
        raise BundleError(
            f"{path} exists and is not a bundle, so it is not replaced. Give another --out, or remove it."
        )


def replace_parts(
    bundle: Bundle,
    out: str | Path,
    *,
    command: str,
    calibration: pl.DataFrame | None = None,
    diagnostics: pl.DataFrame | None = None,
    circumstances: Mapping[str, torch.Tensor] | None = None,
    metrics: Mapping[str, Any] | None = None,
    card: str | None = None,
) -> Bundle:
    """Write `bundle` to `out` (which may be its own path) with another calibration, diagnostics, state network, metrics or card.

    What is None stays as it is, but diagnostics of another calibration are left out. The earlier digest joins the parents.
    """
    kept = bundle.diagnostics if calibration is None else None
    return write_bundle(
        out,
        config=bundle.config,
        transforms=bundle.transforms,
        macro=bundle.macro,
        split=bundle.split,
        weights=bundle.weights,
        calibration=bundle.calibration if calibration is None else calibration,
        diagnostics=kept if diagnostics is None else diagnostics,
        circumstances=bundle.circumstances if circumstances is None else circumstances,
        metrics=bundle.metrics if metrics is None else metrics,
        card=bundle.card if card is None else card,
        seed=bundle.manifest["seed"],
        command=command,
        parents=(*bundle.manifest["parents"], bundle.digest),
    )


def default_bundle() -> Path:
    """The shipped bundle: `SAGA_BUNDLE` if set, else `bundles/small` here, else beside the code."""
    if chosen := os.environ.get("SAGA_BUNDLE"):
        return Path(chosen)
    shipped = Path("bundles") / "small"
    beside_code = Path(__file__).resolve().parent.parent / shipped
    return beside_code if beside_code.is_dir() and not shipped.is_dir() else shipped


def describe_schema() -> dict[str, Any]:
    """The column table of `saga.schema` as JSON: what `schema.json` holds and `GET /v1/variables` shows."""
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
        "max_context": schema.MAX_CONTEXT,
        "price_year": schema.PRICE_YEAR,
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _json_bytes(value: Mapping[str, Any], part: str) -> bytes:
    try:
        return json_bytes(value)
    except (TypeError, ValueError) as error:
        raise BundleError(
            f"{part}.json cannot be written: {error}. Give plain numbers, strings, lists and dicts, all finite."
        ) from error


def _weight_bytes(weights: Mapping[str, torch.Tensor]) -> bytes:
    broken = [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise BundleError(
            f"The weights {', '.join(broken)} hold NaN or infinity: training diverged. Train again with a lower learning rate."
        )
    # Clones, because safetensors refuses tensors that share memory (tied weights).
    return save_safetensors(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    )


def _read_table(data: bytes) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(data))


def _table_bytes(table: pl.DataFrame, name: str) -> bytes:
    if "person_id" in table.columns:
        raise BundleError(
            f"{name} must not hold single persons, but has a column person_id. Store cells, not persons."
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
            f"{path} has no {MANIFEST}, so it is not a bundle. Give the directory that `saga train` wrote."
        )
    data = file.read_bytes()
    manifest = _parse_object(data, file)
    if manifest.get("format") != FORMAT:
        wrote = manifest.get("code_version")
        other = (
            f", or install version {wrote!r} of saga-forecast" if wrote != current_version() else ""
        )
        raise BundleError(
            f"{file} is of bundle format {manifest.get('format')!r}, this version of SAGA reads format {FORMAT}. "
            f"Train the bundle again{other}."
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
    """The bytes of every file, each equal to its hash; parsing them, not the files again, leaves no gap between check and use."""
    listed, present = set(manifest["files"]), {entry.name for entry in path.iterdir()} - {MANIFEST}
    for name in sorted(present | listed):
        if name not in REQUIRED | OPTIONAL:
            what = (
                "may hold code (pickle)"
                if Path(name).suffix in {".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".bin"}
                else "is no part of a bundle"
            )
            raise BundleError(
                f"{path / name} {what}. Remove it, or restore the bundle from its source."
            )
        if name not in listed:
            raise BundleError(
                f"{path / name} is not listed in {MANIFEST}. Remove it, or restore the bundle from its source."
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
                f"{file} was changed after the bundle was written (sha256 differs). Restore the bundle from its source."
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
    """Weights read the columns by position and codes by meaning, so both must be those of this code."""

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
    """Write all files to a new directory beside `path`, then let it take the name; nobody sees half a bundle.

    A bundle that is replaced is renamed first, and between the two renames there is none at `path`: who looks in that moment finds no
    bundle, and a process killed in it leaves the old one under the name that `Bundle.load` tells.
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
