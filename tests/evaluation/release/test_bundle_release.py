"""A bundle leaves the room with an audit of itself, or not at all."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.evaluation.release.bundle_release import (
    bill_of_materials,
    read_audit,
    release_bundle,
)

from saga.bundle import Bundle, default_bundle
from saga.errors import UsageError
from saga.register import RegisterSettings

REGISTER = RegisterSettings(persons=1_000, seed=3, first_year=2018, last_year=2020)


def write_audit(folder: Path, bundle: str, word: str) -> dict[str, Any]:
    audit = {"bundle": bundle, "verdict": {"word": word, "advice": "Look again."}}
    folder.mkdir(exist_ok=True)
    (folder / "audit.json").write_text(json.dumps(audit))
    (folder / "audit.html").write_text("<p>the audit</p>")
    return audit


def test_an_audit_of_another_bundle_or_with_a_leak_is_refused(tmp_path: Path) -> None:
    bundle, out = Bundle.load(default_bundle()), tmp_path / "out"
    with pytest.raises(UsageError, match="There is no audit in"):
        release_bundle(bundle, tmp_path, out)
    write_audit(tmp_path / "audit", "0" * 64, "no leak found")
    with pytest.raises(UsageError, match="is of another bundle"):
        release_bundle(bundle, tmp_path / "audit", out)
    # A parent is not the bundle, unless the bundle stores this audit.
    write_audit(tmp_path / "audit", (*bundle.manifest["parents"], "none")[0], "no leak found")
    with pytest.raises(UsageError, match="is of another bundle"):
        read_audit(bundle, tmp_path / "audit")
    for word in ("leak", "unclear", "no power"):
        write_audit(tmp_path / "audit", bundle.digest, word)
        with pytest.raises(UsageError, match="--accept-risk"):
            release_bundle(bundle, tmp_path / "audit", out)
    assert not out.exists()


def test_the_bill_of_materials_names_what_runs_the_bundle() -> None:
    bill = bill_of_materials()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    names = [component["name"] for component in bill["components"]]
    assert {"torch", "polars", "numpy", "pydantic-core"} <= set(names)
    assert names == sorted(set(names))
    assert all(component["purl"].startswith("pkg:pypi/") for component in bill["components"])


@pytest.mark.thorough
def test_a_release_is_whole_and_states_the_accepted_risk(tmp_path: Path) -> None:
    bundle, out = Bundle.load(default_bundle()), tmp_path / "out"
    write_audit(tmp_path / "audit", bundle.digest, "leak")
    risk = "The head of unit accepts <1 %>."
    release_bundle(bundle, tmp_path / "audit", out, accepted_risk=risk, register=REGISTER)
    check = ["sha256sum", "-c", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=out, check=False).returncode == 0
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "The head of unit accepts &lt;1 %&gt;." in page
    assert json.loads((out / "release.json").read_text())["accepted_risk"] == risk
    for target in ("audit/audit.html", "calibration.csv", "card.md", "register/README.md"):
        assert f'href="{target}"' in page or f'href="{target.split("/")[0]}"' in page
        assert (out / target).is_file()
    assert Bundle.load(out / "bundle").digest == bundle.digest
    assert pl.read_csv(out / "calibration.csv").height > 0
