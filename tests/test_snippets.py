"""What pages print for the shell, for a service and for a mapping works as it is printed.

Sizes are smaller, and `[...]` has persons. Python blocks: `test_docs` and `test_client`; commands
of all other pages are parsed by `test_options`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import yaml
from pydantic import SecretStr
from saga.api.example import example_csv, example_persons
from saga.api.settings import Settings

from saga.data.reading import read_panel
from tests.api.test_jobs import await_end
from tests.command_line import done
from tests.conftest import Running, Start

ROOT = Path(__file__).resolve().parents[1]
HOW_TO = ROOT / "docs" / "how-to"
SMALLER = {r"--persons \d+": "--persons 400", r"--paths \d+": "--paths 10"}
PERSONS = [
    {**person, "person_id": f"{sex}{i}", "sex": sex}
    for person in example_persons()
    for sex in ("female", "male")
    for i in range(12)
]

pytestmark = [pytest.mark.thorough, pytest.mark.slow]


def lines(page: Path, command: str) -> list[str]:
    """The lines of a page's code blocks that call a command, whole and without comments."""
    text = re.sub(r"\\\n *", " ", page.read_text(encoding="utf-8"))
    found = re.findall(rf"^(?:    )?((?:[A-Z_]+=\S+ )?{command} .*)$", text, re.M)
    return [re.sub(r"  +# .*", "", line) for line in found]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the names that pages use."""
    for name in ("bundles", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "inflow.csv").write_text("year,age,persons,sex\n2030,20,50,female\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        "docs/tutorial.md",
        "docs/how-to/sum-with-range.md",
        "docs/how-to/policy-tables.md",
    ],
)
@pytest.mark.usefixtures("workplace")
def test_the_commands_of_a_page_run_one_after_the_other(page: str) -> None:
    commands = lines(ROOT / page, "saga")
    assert commands
    if page.startswith("docs/how-to"):
        done("register generate --persons 400 --seed 77 --out panel")
    for command in commands:
        for printed, smaller in SMALLER.items():
            command = re.sub(printed, smaller, command)
        if "--product paths" in command and "--paths" not in command:
            command += " --paths 10"
        done(command.removeprefix("saga "))


def wage_panel() -> pd.DataFrame:
    """Men with the columns that linearmodels has of those of 1980 to 1987."""
    random = np.random.default_rng(1)
    years, men = np.arange(1980, 1988), np.arange(150)
    rows = pd.DataFrame({"nr": np.repeat(men, 8), "year": np.tile(years, 150), "educ": 12})
    rows["exper"] = rows["year"] - 1980 + np.repeat(random.integers(1, 6, 150), 8)
    rows["hours"] = random.integers(1_800, 2_400, len(rows))
    level = np.repeat(random.normal(1.5, 0.4, 150), 8)
    return rows.assign(lwage=level + 0.05 * rows["exper"] + random.normal(0, 0.2, len(rows)))


def test_my_panel_goes_from_its_file_to_report_brief_and_forecast(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = HOW_TO / "my-panel.md"
    loaded = SimpleNamespace(wage_panel=SimpleNamespace(load=wage_panel))
    monkeypatch.setitem(sys.modules, "linearmodels", ModuleType("linearmodels"))
    monkeypatch.setitem(sys.modules, "linearmodels.datasets", loaded)
    text = page.read_text(encoding="utf-8")
    exec("\n".join(re.findall(r"^    ((?!saga ).*)$", text, re.M)), {})
    (look,) = re.findall(r"`saga (init .*?)`", text)
    done(look)
    mapping = workplace / "wage.yaml"
    answers = re.findall(
        r"`(\w+: \w+)`", text.partition("Answer in the file")[2].partition("\n\n")[0]
    )
    assert len(answers) == 3
    mapping.write_text("\n".join([mapping.read_text(), *answers]))
    for command in lines(page, "saga"):
        done(command.removeprefix("saga "))
    made = pl.read_csv("wage-forecast.csv")
    assert {"person_id", "q50"} <= set(made.columns)
    assert "What to do next" in Path("wage.html").read_text(encoding="utf-8")
    assert Path("wage.pdf").read_bytes().startswith(b"%PDF")


@pytest.fixture
def service(start: Start, tiny_bundle: Path, workplace: Path) -> Iterator[Running]:
    """A service with jobs and a ledger."""
    ledger = SecretStr(f"sqlite:///{workplace / 'ledger.sqlite'}")
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=workplace / "jobs", database=ledger)
    with start(settings) as running:
        yield running


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("page", ["service.md", "how-to/jobs.md", "how-to/outcomes.md"])
def test_the_calls_of_a_page_are_answered(page: str, service: Running, workplace: Path) -> None:
    commands = lines(ROOT / "docs" / page, "curl")
    assert commands
    table = example_csv({"persons": example_persons()})
    pl.read_csv(table.encode(), schema_overrides={"person_id": pl.String}).write_parquet(
        workplace / "panel.parquet"
    )
    job = "ID"
    for command in commands:
        call = re.sub(r"(http://127\.0\.0\.1|localhost):8000", service.url, command)
        call = call.replace("[...]", json.dumps(example_persons())).replace("/ID", f"/{job}")
        answer = subprocess.run(
            ["bash", "-c", call.replace("curl ", "curl --fail-with-body ", 1)],
            cwd=workplace,
            capture_output=True,
            text=True,
        )
        assert answer.returncode == 0, (command, answer.stdout)
        if "/v1/jobs?" in command:
            job = json.loads(answer.stdout)["id"]
            await_end(service, job)


def test_the_body_of_a_page_is_answered(service: Running) -> None:
    text = (HOW_TO / "sum-with-range.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"^```json\n(.*?)^```", text, re.M | re.DOTALL)
    sent: dict[str, Any] = json.loads(body.replace("[...]", json.dumps(PERSONS)))
    answer = service.client.post("/v1/populations", json=sent)
    assert answer.status_code == 200, answer.text
    assert answer.json()["events"]


def test_the_mappings_of_a_page_are_read(workplace: Path) -> None:
    text = (HOW_TO / "mapping.md").read_text(encoding="utf-8")
    register, own, country = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.DOTALL)
    years = {"Ar": [1985, 1986, 1987], "LoneInk": [900, 950, 990], "FInk": [0, 0, 5]}
    rows: dict[str, list[Any]] = {"LopNr": ["a"] * 3, "FodelseAr": [1950] * 3, "Kon": [1] * 3}
    panel = read_panel({**rows, **years}, mapping=yaml.safe_load(register))
    assert panel.frame["sex"].to_list() == ["male"] * 3
    rows = {"person_id": ["a"] * 3, "year": years["Ar"], "birth_year": [1950] * 3}
    rows |= {"earnings": [9_000, 9_500, 9_900], "parents_education": [1] * 3}
    rows |= {"family_number": [1] * 3, "union": ["yes", "no", "no"], "wealth": [1, 2, 3]}
    panel = read_panel(rows, mapping=yaml.safe_load(own))
    assert panel.frame["extra_union"].to_list() == rows["union"]
    (workplace / "cpi.csv").write_text("year,index\n1985,108\n1986,110\n1987,114\n")
    (workplace / "country.yaml").write_text(textwrap.dedent(country))
    panel = read_panel(rows, mapping=workplace / "country.yaml")
    assert panel.meta.currency == "USD"
