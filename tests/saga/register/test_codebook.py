"""The codebook describes the released sample, and statistics programs show its labels."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl
import pytest

from saga import read_panel, schema
from saga.register.codebook import (
    DDI_NAMESPACE,
    DataSet,
    code_labels,
    write_croissant,
    write_ddi,
    write_labelled,
    write_mapping,
)

TOOLS = Path(__file__).parents[3] / "build" / "codebook-tools" / "bin" / "python"
DDI_SCHEMA = os.environ.get("SAGA_DDI_SCHEMA", "")


@pytest.fixture(scope="module")
def folder(register_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("codebook")
    (out / "sample").mkdir()
    files = sorted(register_dir.glob("panel/birth_year=198*/*.parquet"))
    rows = pl.concat(pl.read_parquet(file, hive_partitioning=False) for file in files)
    rows = rows.sort("person_id", "year")
    sample = out / "sample" / "panel.csv"
    rows.write_csv(sample)
    for suffix in (".dta", ".sav"):
        write_labelled(rows, sample.with_suffix(suffix))
    nulls = rows.null_count().row(0, named=True)
    n_persons = rows["person_id"].n_unique()
    data = DataSet("saga-test", (1990, 2022), n_persons, rows.height, nulls, "1", "saga")
    write_mapping(out / "mapping.yaml")
    write_ddi(data, sample, out / "codebook.xml")
    write_croissant(data, sample, out / "croissant.json")
    return out


@pytest.mark.parametrize("suffix", [".dta", ".sav"])
def test_files_of_statistics_programs_show_labels_and_are_read_back(
    suffix: str, folder: Path
) -> None:
    import pyreadstat

    file = folder / "sample" / f"panel{suffix}"
    read = pyreadstat.read_dta if suffix == ".dta" else pyreadstat.read_sav
    labelled, meta = read(str(file), apply_value_formats=True)
    assert meta.column_names_to_labels["sex"] == schema.BY_NAME["sex"].description
    assert set(labelled["sex"].dropna()) == {"Female", "Male"}
    assert set(labelled["county"].dropna()) <= set(code_labels(schema.BY_NAME["county"]).values())
    mapped = read_panel(file, mapping=folder / "mapping.yaml")
    assert mapped.frame.equals(read_panel(folder / "sample" / "panel.csv").frame)


def test_the_codebook_has_every_column_with_its_codes_and_counts(folder: Path) -> None:
    rows = read_panel(folder / "sample" / "panel.csv").frame
    root = ET.parse(folder / "codebook.xml").getroot()
    ddi = {"d": DDI_NAMESPACE}
    variables = {var.attrib["name"]: var for var in root.findall("d:dataDscr/d:var", ddi)}
    assert list(variables) == list(schema.NAMES)
    for column in schema.COLUMNS:
        variable = variables[column.name]
        codes = [value.text for value in variable.findall("d:catgry/d:catValu", ddi)]
        assert codes == list(column.codes)
        counts = {s.attrib["type"]: int(s.text or "") for s in variable.findall("d:sumStat", ddi)}
        assert counts == {
            "vald": rows[column.name].count(),
            "invd": rows[column.name].null_count(),
        }
    croissant = json.loads((folder / "croissant.json").read_text())
    fields = [field["name"] for field in croissant["recordSet"][0]["field"]]
    assert fields == list(schema.NAMES)


@pytest.mark.thorough
@pytest.mark.skipif(not TOOLS.exists(), reason="make build/codebook-tools")
def test_the_tools_of_both_standards_accept_the_files(folder: Path) -> None:
    check = (
        "import sys, mlcroissant\n"
        "data = mlcroissant.Dataset(sys.argv[1])\n"
        "row = next(iter(data.records('person-years')))\n"
        "assert len(row) == int(sys.argv[2]), row\n"
    )
    command: list[str | Path] = [
        TOOLS,
        "-c",
        check,
        folder / "croissant.json",
        str(len(schema.COLUMNS)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if DDI_SCHEMA:  # codebook.xsd of DDI-Codebook 2.5, which no package has
        validate = "import sys, xmlschema; xmlschema.validate(sys.argv[1], sys.argv[2])"
        command = [TOOLS, "-c", validate, folder / "codebook.xml", DDI_SCHEMA]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
