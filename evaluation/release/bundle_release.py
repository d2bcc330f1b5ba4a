"""The release of a bundle: one folder that an output checker can read in an hour.

It has the bundle, its calibration as tables, its card, the audit, what it needs to run, and a
simulated register in place of the agency's. Nothing in it is computed from the agency's persons
except the bundle and the audit.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl

from saga.bundle import Bundle
from saga.errors import Problem, UsageError
from saga.files.atomic import digest_file, read_json, whole_folder
from saga.pages.layout import render_page
from saga.register import RegisterSettings
from saga.register.release import CHECKSUMS, release_register
from saga.version import current_version

AUDIT = "audit.json"
PASSED = "no leak found"  # the verdict that needs no accepted risk
DISTRIBUTION = "saga-forecast"
REGISTER = RegisterSettings(persons=10_000, seed=1, first_year=1990, last_year=2022)
CONTENTS = {
    "bundle": "the weights and tables that forecast, without program code or records",
    "card.md": "what the bundle is for, on whom it was trained and how it was calibrated",
    "calibration.csv": "the calibration: thresholds and maps by horizon and group; n counts the "
    "persons behind a row, in rows of the kinds origin_years and drift years",
    "audit": "attacks on the bundle, planted leaks and the verdict: begin with audit.html",
    "register": "a simulated register with the columns of the panel, so that others can try the "
    "bundle: no person in it exists, and the agency's persons were not used to make it",
    "sbom.cdx.json": "names, versions and licences of the software that runs it (CycloneDX 1.6)",
    CHECKSUMS: "checksums of all other files",
}


def release_bundle(
    bundle: Bundle,
    audit: Path,
    out: Path,
    *,
    accepted_risk: str | None = None,
    register: RegisterSettings = REGISTER,
    workers: int = 1,
) -> dict[str, Any]:
    """Write the release of an audited bundle to the new folder `out`.

    Args:
        bundle: The bundle.
        audit: Folder of `audit.json` and `audit.html`, as `saga audit` writes them.
        out: Folder to write; it must not exist or be empty.
        accepted_risk: Who accepts which risk and why, if the verdict is not that no leak was found.
        register: The simulated register.
        workers: Number of processes.

    Returns:
        Digest, verdict, accepted risk and number of files.

    Raises:
        UsageError: If there is no audit of this bundle, its verdict needs an accepted risk, or
            `out` is not empty.
    """
    judged = read_audit(bundle, audit)
    verdict = str(judged["verdict"]["word"])
    if verdict != PASSED and not accepted_risk:
        problem = Problem(
            "audit-verdict",
            f"its verdict is {verdict!r}",
            'Follow its advice, or state who accepts the risk and why: --accept-risk "..."',
        )
        raise UsageError("The audit does not clear this bundle", [problem])
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; give a new folder")
    with whole_folder(out) as folder:
        shutil.copytree(bundle.path, folder / "bundle")
        (folder / "audit").mkdir()
        for name in (AUDIT, "audit.html"):
            shutil.copyfile(audit / name, folder / "audit" / name)
        _write_text(folder / "card.md", bundle.card)
        if bundle.calibration is not None:
            readable = bundle.calibration.select(~pl.selectors.nested() & ~pl.selectors.binary())
            readable.write_csv(folder / "calibration.csv")
        _write_text(folder / "sbom.cdx.json", json.dumps(bill_of_materials(), indent=1) + "\n")
        release_register(folder / "register", register, workers=workers)
        summary = {
            "digest": bundle.digest,
            "model": bundle.model_digest,
            "verdict": verdict,
            "advice": str(judged["verdict"].get("advice", "")),
            "accepted_risk": None if verdict == PASSED else accepted_risk,
            "simulated": bundle.simulated,
        }
        contents = {name: text for name, text in CONTENTS.items() if name != CHECKSUMS}
        listed = {name: text for name, text in contents.items() if (folder / name).exists()}
        page = {**summary, "contents": {**listed, CHECKSUMS: CONTENTS[CHECKSUMS]}}
        values = {"release": page, "card": bundle.card, "sizes": dict(_sizes(folder, listed))}
        values["provenance"] = {"bundle": bundle.digest, "saga": current_version()}
        _write_text(
            folder / "index.html", render_page("index.html", values, "saga.evaluation.release")
        )
        _write_text(folder / "release.json", json.dumps(summary, indent=2) + "\n")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        lines = [f"{digest_file(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
        _write_text(folder / CHECKSUMS, "".join(lines))
    return {**summary, "files": len(files) + 1}


def read_audit(bundle: Bundle, folder: Path) -> dict[str, Any]:
    """The audit in a folder, if it judged this bundle.

    `saga audit` stores the audit in the bundle, which then has another digest: the bundle that was
    audited is the parent of the one that stores this very audit.

    Raises:
        UsageError: If there is no audit, or it is one of another bundle.
    """
    audit = read_json(folder / AUDIT)
    if audit is None or "verdict" not in audit or not (folder / "audit.html").is_file():
        raise UsageError(
            f"There is no audit in {folder}. A bundle leaves the room with an audit: "
            f"saga audit {bundle.path} --panel PANEL --out {folder}"
        )
    stored = read_json(bundle.path / AUDIT)
    digests = [bundle.digest, *(bundle.manifest["parents"][-1:] if stored == audit else ())]
    if audit.get("bundle") not in digests:
        problem = Problem(
            "audit-digest",
            f"it judged {str(audit.get('bundle'))[:12]}, and this bundle is {bundle.digest[:12]}",
            f"Audit this bundle: saga audit {bundle.path} --panel PANEL --out {folder}",
        )
        raise UsageError(f"The audit in {folder} is of another bundle", [problem])
    return audit


def bill_of_materials() -> dict[str, Any]:
    """The installed software that SAGA needs, as CycloneDX 1.6 without time and serial number."""
    components = [_component(name) for name in sorted(_needed())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(DISTRIBUTION)},
        "components": components,
    }


def _component(name: str) -> dict[str, Any]:
    """A distribution as a component; its licence as its metadata has it."""
    about = metadata.metadata(name)
    version = metadata.version(name).partition("+")[0]
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }
    if "License-Expression" in about:
        component["licenses"] = [{"expression": about["License-Expression"]}]
    elif "License" in about and about["License"].strip():
        component["licenses"] = [{"license": {"name": about["License"].strip().splitlines()[0]}}]
    return component


def _needed() -> set[str]:
    """Installed distributions that SAGA needs to forecast, also indirectly; extras left out."""
    needed: set[str] = set()
    waiting = [DISTRIBUTION]
    while waiting:
        for requirement in metadata.requires(waiting.pop()) or ():
            name = re.split(r"[\s;\[<>=!~(]", requirement, maxsplit=1)[0]
            name = re.sub(r"[-_.]+", "-", name).lower()
            if "extra ==" not in requirement and name not in needed and _is_installed(name):
                needed.add(name)
                waiting.append(name)
    return needed


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _sizes(folder: Path, contents: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Number of files and bytes of each part."""
    for name in contents:
        path = folder / name
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in files)
        yield name, f"{len(files):,} file{'s' if len(files) > 1 else ''}, {size / 1e3:,.0f} kB"


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
