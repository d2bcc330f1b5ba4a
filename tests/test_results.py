"""The figures in the docs are what the committed metrics and the code say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from saga.bundle import Bundle
from saga.output import read_provenance

ROOT = Path(__file__).resolve().parents[1]


def test_results_and_readme_are_what_the_metrics_give() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs/results/write.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "run: python docs/results/write.py"


def test_the_results_are_of_the_shipped_model_and_calibration() -> None:
    judged = read_provenance(ROOT / "docs/results/metrics.parquet")["register"]
    shipped = Bundle.load(ROOT / "bundles/small")
    assert judged["calibration"] == shipped.calibration_digest
    assert judged["bundle"] in (shipped.digest, *shipped.manifest["parents"])


def test_the_page_of_parameters_is_what_the_code_says() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs/parameters/write.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "run: python docs/parameters/write.py"
