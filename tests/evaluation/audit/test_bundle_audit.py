"""A whole audit: of a model of few steps, and of one that has learnt nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from saga.evaluation.audit.bundle_audit import AuditOptions, audit_bundle, store_audit
from saga.training.ensembles import train_members
from saga.training.privacy import private_settings

from saga.bundle import PROMISE, Bundle, write_bundle
from saga.data.panel import Panel
from saga.data.split import Shares, salted_beside
from saga.errors import UsageError
from tests.toy_training import QUIET, TOY, make_panel

pytestmark = pytest.mark.thorough
SHARES: Shares = {"train": 0.5, "validation": 0.1, "calibration": 0.0, "test": 0.4}


@pytest.fixture(scope="module")
def panel() -> Panel:
    return make_panel()


@pytest.fixture(scope="module")
def trained(panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Panel]:
    out = tmp_path_factory.mktemp("audit") / "ours"
    salted = salted_beside(panel, out)
    return train_members(salted, out, config=TOY, shares=SHARES, run=QUIET), salted


@pytest.fixture(scope="module")
def found(
    trained: tuple[Bundle, Panel], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    bundle, panel = trained
    folder = tmp_path_factory.mktemp("shadows") / "run"
    first = audit_bundle(bundle, panel, folder, AuditOptions(shadows=4), report=lambda _: None)
    # The second audit trains nothing: it continues from what is in the folder.
    lines: list[str] = []
    assert (
        audit_bundle(bundle, panel, folder, AuditOptions(shadows=4), report=lines.append) == first
    )
    assert not any("Shadow 1" in line for line in lines)
    return first


def test_planted_faults_of_files_are_caught_and_an_audit_without_power_says_so(
    found: dict[str, Any],
) -> None:
    """After twelve steps nothing is learnt by heart, so the canaries of training are missed."""
    canaries = {canary["name"]: canary for canary in found["canaries"]}
    for name in ("a column that numbers the persons", "a cell of two persons"):
        assert canaries[name]["caught"], canaries[name]
    missed = [name for name, canary in canaries.items() if canary["must"] > canary["caught"]]
    assert found["verdict"]["missed"] == missed
    assert (found["verdict"]["word"] == "no power") == bool(missed)


def test_a_constant_model_has_no_leak(
    trained: tuple[Bundle, Panel], found: dict[str, Any], tmp_path: Path
) -> None:
    """With weights of zero the scores depend on the record alone, which the split does not see."""
    del found  # its shadows would be trained again here
    bundle, panel = trained
    nothing = {name: torch.zeros_like(weight) for name, weight in bundle.weights.items()}
    constant = write_bundle(
        tmp_path / "constant", replace(bundle, weights=nothing), seed=0, command="saga train"
    )
    (tmp_path / "constant.salt").write_text(panel.meta.salt)
    options = AuditOptions(shadows=4, canaries=False)
    audit = audit_bundle(constant, panel, tmp_path / "run", options, report=lambda _: None)
    of_bundle = [row for row in audit["membership"] if row["target"] == "bundle"]
    assert of_bundle
    for row in of_bundle:
        error = (1 / 12 * (1 / row["members"] + 1 / row["others"])) ** 0.5
        assert abs(row["auc"] - 0.5) < 4 * error, row


def test_the_verdict_is_in_bundle_card_and_page(
    trained: tuple[Bundle, Panel], found: dict[str, Any], tmp_path: Path
) -> None:
    bundle, _ = trained
    stored = store_audit(bundle, found, tmp_path / "page")
    assert stored.audit == found
    assert stored.model_digest == bundle.model_digest == found["model"]
    assert f"Verdict: {found['verdict']['word']}" in stored.card
    page = (tmp_path / "page" / "audit.html").read_text()
    assert found["verdict"]["advice"] in page
    assert "record, offline" in page
    assert all(
        f"<li>{line}" in page.replace(' class="bad"', "") for line in found["verdict"]["unclear"]
    )
    assert stored.digest in page
    with pytest.raises(UsageError, match="was changed while it was audited"):
        store_audit(bundle, found, tmp_path / "another")
    assert "above 0.55, or more than 3 %" in page
    assert Bundle.load(bundle.path).audit == found


def test_a_bundle_with_a_promise_is_audited_and_need_not_tell_of_copies(
    panel: Panel, tmp_path: Path
) -> None:
    """Shadows keep the promise as the bundle does; the overfitted model has none."""
    out = tmp_path / "private"
    salted = salted_beside(panel, out)
    config = private_settings(replace(TOY, model=replace(TOY.model, light=4)), 4.0, 120)
    bundle = train_members(salted, out, config=config, shares=SHARES, run=QUIET)
    run = tmp_path / "run"
    audit = audit_bundle(bundle, salted, run, AuditOptions(shadows=4), report=lambda _: None)
    assert PROMISE in Bundle.load(run / "shadow-0").config
    assert PROMISE not in Bundle.load(run / "overfitted").config
    must = {canary["name"]: canary["must"] for canary in audit["canaries"]}
    assert not must.pop("persons repeated 16 times")
    assert must["a model overfitted to few persons"]


def test_another_panel_is_no_evidence(trained: tuple[Bundle, Panel], tmp_path: Path) -> None:
    bundle, panel = trained
    other = replace(panel, meta=replace(panel.meta, salt="0" * 64))
    with pytest.raises(UsageError, match="salt"):
        audit_bundle(bundle, other, tmp_path, AuditOptions(), report=lambda _: None)
