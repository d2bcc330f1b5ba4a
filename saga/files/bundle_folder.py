"""The folder of a bundle: written as a whole, sealed by a manifest, verified when it is read.

`manifest.json` lists the sha256 of every other file, and its own seal. A bundle is never changed in
place: a new version is written to a new folder, which then replaces the old one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from saga.errors import BundleError
from saga.files.atomic import commit, json_bytes, whole_folder
from saga.files.tables import check_writable
from saga.version import current_version

# Format 1 conditioned recorded years on macro values; in format 2 macro values entered the network
# before the layers of the head; format 3 did not say what the training records span.
FORMAT = 4
MANIFEST, CARD, WEIGHTS = "manifest.json", "README.md", "model.safetensors"
CALIBRATION, DIAGNOSTICS = "calibration.parquet", "diagnostics.parquet"
CIRCUMSTANCES, TREES = "circumstances.safetensors", "trees.parquet"
AUDIT = "audit.json"  # what attacks on the bundle found (`saga audit`)
VINTAGES = "vintages.parquet"  # errors of group means of models trained up to earlier years
JUDGED_TABLES = f"{DIAGNOSTICS} or {VINTAGES}"  # what a report shows
PARTS = ("config", "schema", "transforms", "macro", "split", "metrics")  # each is PART.json
REQUIRED = frozenset({WEIGHTS, CARD, *(f"{part}.json" for part in PARTS)})
OPTIONAL = frozenset({AUDIT, CALIBRATION, DIAGNOSTICS, CIRCUMSTANCES, TREES, VINTAGES})
_MANIFEST_KEYS = frozenset(
    {"format", "code_version", "seed", "command", "parents", "files", "digest", "seal"}
)
# Largest files, a hundred times those of the shipped bundles or more: JSON needs twenty times its
# size in memory, and weights their own. What tables need is counted before they are read.
_MOST_BYTES = {".json": 2**24, ".md": 2**22, ".parquet": 2**28, ".safetensors": 2**32}
_PICKLES = {".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".bin"}


def write_folder(
    path: Path,
    content: Mapping[str, bytes],
    *,
    seed: int | None,
    command: str,
    parents: Sequence[str],
) -> None:
    """Write the files of a bundle and their manifest to `path`; a bundle there is replaced.

    Raises:
        BundleError: If `path` is neither a bundle nor an empty directory.
    """
    files = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(content.items())}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "code_version": current_version(),
        "seed": seed,
        "command": command,
        "parents": list(parents),
        "files": files,
        "digest": digest_files(files),
    }
    manifest["seal"] = seal(manifest)
    whole = {**content, MANIFEST: encode_part(manifest, "manifest")}
    check_replaceable(path)
    with whole_folder(path, retired=_sibling(path, "old")) as fresh:
        for name, data in whole.items():
            commit(fresh / name, partial(Path.write_bytes, data=data))


def read_folder(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest of a bundle, and the bytes of every other file, each equal to its hash.

    The caller parses these bytes and does not read the files again, so that a file cannot change
    between the check and its use.

    Raises:
        BundleError: If a file is missing, unknown or changed, or the format is another one.
    """
    manifest = _read_manifest(path)
    return manifest, _read_files(path, manifest["files"])


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


def encode_part(value: Mapping[str, Any], part: str) -> bytes:
    """The bytes of PART.json. Raises BundleError for values that JSON cannot represent."""
    try:
        return json_bytes(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BundleError(
            f"{part}.json cannot be written: {error}. Give plain numbers, strings, lists and "
            "dicts, all finite."
        ) from error


def parse_object(data: bytes, file: Path) -> dict[str, Any]:
    """The JSON object in `data`, the content of `file`. Raises BundleError for other content."""
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BundleError(
            f"{file} is not valid JSON. Restore the bundle from its source."
        ) from error
    if not isinstance(value, dict):
        raise BundleError(
            f"{file} does not contain a JSON object. Restore the bundle from its source."
        )
    return value


def digest_files(files: Mapping[str, str]) -> str:
    """The sha256 over names and hashes of files, in the order of the names."""
    return hashlib.sha256(
        "".join(f"{name}\n{files[name]}\n" for name in sorted(files)).encode()
    ).hexdigest()


def seal(manifest: Mapping[str, Any]) -> str:
    """The sha256 of a manifest without its own seal."""
    unsealed = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(encode_part(unsealed, "manifest")).hexdigest()


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
    if file.is_symlink() or not file.is_file():
        raise BundleError(
            f"{path} has no file {MANIFEST}, so it is not a bundle. Give the directory that "
            "`saga train` wrote."
        )
    data = _read_file(file)
    manifest = parse_object(data, file)
    if manifest.get("format") != FORMAT:
        version = manifest.get("code_version")
        hint = "" if version == current_version() else f", or install saga-forecast {version!r}"
        raise BundleError(
            f"{file} is of bundle format {manifest.get('format')!r}, this version of SAGA reads "
            f"format {FORMAT}. Train the bundle again{hint}."
        )
    intact = (
        manifest.keys() == _MANIFEST_KEYS
        and isinstance(manifest["files"], dict)
        and manifest["seal"] == seal(manifest)
        and data == encode_part(manifest, "manifest")
    )
    if not intact or manifest["digest"] != digest_files(manifest["files"]):
        raise BundleError(
            f"{file} was changed after the bundle was written. Restore the bundle from its source."
        )
    return manifest


def _read_files(path: Path, hashes: Mapping[str, str]) -> dict[str, bytes]:
    listed, present = set(hashes), {entry.name for entry in path.iterdir()} - {MANIFEST}
    for name in sorted(present | listed):
        if name not in REQUIRED | OPTIONAL:
            is_pickle = Path(name).suffix in _PICKLES
            reason = "may contain code (pickle)" if is_pickle else "is not a part of a bundle"
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
        content[name] = _read_file(file)
        if hashlib.sha256(content[name]).hexdigest() != hashes[name]:
            raise BundleError(
                f"{file} was changed after the bundle was written (sha256 differs). Restore the "
                "bundle from its source."
            )
    return content


def _read_file(file: Path) -> bytes:
    most = _MOST_BYTES[file.suffix]
    if file.stat().st_size > most:
        raise BundleError(
            f"{file} is larger than {most:,} bytes. Restore the bundle from its source."
        )
    return file.read_bytes()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _sibling(path: Path, suffix: str) -> Path:
    return path.parent / f".{Path(os.path.realpath(path)).name}.{suffix}"
