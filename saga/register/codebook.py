"""The codebook of a released register: labels of codes, DDI-Codebook 2.5 and Croissant 1.1.

All three are made from `saga.schema.COLUMNS`, so they say what the panel is read by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import polars as pl
import yaml

from saga import schema
from saga.files.atomic import digest_file
from saga.schema import Column

DDI_NAMESPACE = "ddi:codebook:2_5"
CROISSANT = "http://mlcommons.org/croissant/1.1"
LICENCE_URL = "https://www.apache.org/licenses/LICENSE-2.0"
NAME = "Synthetic register of working life"
_MOST_LABEL = 80  # characters of a variable's label in Stata
_COUNTIES = (
    "Stockholm", "Uppsala", "Södermanland", "Östergötland", "Jönköping", "Kronoberg", "Kalmar",
    "Gotland", "Blekinge", "Skåne", "Halland", "Västra Götaland", "Värmland", "Örebro",
    "Västmanland", "Dalarna", "Gävleborg", "Västernorrland", "Jämtland", "Västerbotten",
    "Norrbotten",
)  # fmt: skip
_FIELDS = (
    "General", "Teaching", "Humanities and arts", "Social sciences, law, business",
    "Natural sciences and computing", "Engineering and manufacturing",
    "Agriculture and veterinary", "Health and welfare", "Services", "Unknown",
)  # fmt: skip
_TEXTS: dict[str, tuple[str, ...]] = {
    "county": _COUNTIES,
    "education_field": _FIELDS,
    "children": ("None", "One", "Two", "Three or more"),
}


@dataclass(frozen=True)
class DataSet:
    """What the codebook says about a register as a whole.

    Args:
        register_id: Name of the register.
        years: First and last year.
        persons: Number of persons.
        rows: Number of person-years.
        missing: Empty cells by column.
        version: Version of SAGA that made it.
        command: The command that makes it again.
    """

    register_id: str
    years: tuple[int, int]
    persons: int
    rows: int
    missing: Mapping[str, int]
    version: str
    command: str

    @property
    def abstract(self) -> str:
        """What it is, in two sentences."""
        return (
            "Simulated persons with the columns and codes of a Swedish register of income and "
            "work. No person in it exists, and no cell of a real register was used."
        )


def code_labels(column: Column) -> dict[str, str]:
    """Code -> what it means, of a column with listed codes; otherwise empty."""
    texts = _TEXTS.get(column.name, [code.replace("_", " ").capitalize() for code in column.codes])
    return dict(zip(column.codes, texts, strict=True))


def numbered_codes(column: Column) -> dict[str, int]:
    """Code -> number in Stata and SPSS: the code itself, or its position from 1."""
    if all(code.isdigit() for code in column.codes):
        return {code: int(code) for code in column.codes}
    return {code: number for number, code in enumerate(column.codes, 1)}


def write_labelled(rows: pl.DataFrame, path: Path) -> None:
    """Write rows of a panel to a .dta or .sav file with labels of columns and codes.

    Columns with listed codes are numbers there, as `numbered_codes` says.
    """
    from polars_readstat import write_readstat

    coded = [column for column in schema.COLUMNS if column.codes and column.name in rows.columns]
    numbers = {
        column.name: pl.col(column.name).replace_strict(
            numbered_codes(column), return_dtype=pl.Int32
        )
        for column in coded
    }
    write_readstat(
        rows.with_columns(**numbers),
        str(path),
        format=path.suffix.removeprefix("."),
        value_labels={
            column.name: {
                numbered_codes(column)[code]: text for code, text in code_labels(column).items()
            }
            for column in coded
        },
        variable_labels={
            name: schema.BY_NAME[name].description[:_MOST_LABEL] for name in rows.columns
        },
    )


def _add(
    parent: ET.Element, tag: str, text: str = "", attributes: Mapping[str, str] | None = None
) -> ET.Element:
    element = ET.SubElement(parent, tag, dict(attributes or {}))
    element.text = text or None
    return element


def write_mapping(path: Path) -> None:
    """Write the mapping with which SAGA reads a file of `write_labelled`: number -> code."""
    codes = {
        column.name: {number: code for code, number in numbered_codes(column).items()}
        for column in schema.COLUMNS
        if column.codes
    }
    text = yaml.safe_dump({"codes": codes}, allow_unicode=True, sort_keys=False)
    path.write_text(text, encoding="utf-8", newline="\n")


def write_ddi(data: DataSet, sample: Path, path: Path) -> None:
    """Write the codebook as DDI-Codebook 2.5 (XML); `sample` is the file that it describes."""
    root = ET.Element("codeBook", {"xmlns": DDI_NAMESPACE, "version": "2.5", "xml:lang": "en"})
    study = _add(root, "stdyDscr")
    citation = _add(study, "citation")
    title = _add(citation, "titlStmt")
    _add(title, "titl", f"{NAME}: {data.register_id}")
    _add(title, "IDNo", data.register_id, {"agency": "SAGA"})
    _add(_add(citation, "rspStmt"), "AuthEnty", "The SAGA authors")
    produced = _add(citation, "prodStmt")
    _add(produced, "producer", "SAGA")
    _add(produced, "copyright", "Apache-2.0")
    _add(produced, "software", "saga", {"version": data.version})
    information = _add(study, "stdyInfo")
    _add(information, "abstract", data.abstract)
    summary = _add(information, "sumDscr")
    for event, year in zip(("start", "end"), data.years, strict=True):
        _add(summary, "timePrd", str(year), {"event": event, "date": str(year)})
    _add(summary, "nation", "Sweden (simulated)", {"abbr": "SE"})
    _add(summary, "anlyUnit", "Person-year")
    _add(summary, "universe", "Simulated residents of 16 to 64 years on 31 December")
    _add(summary, "dataKind", "Simulated administrative records")
    collected = _add(_add(study, "method"), "dataColl")
    _add(collected, "timeMeth", "Longitudinal: one record a person and year")
    _add(collected, "collMode", f"Simulation: {data.command}")
    file = _add(_add(root, "fileDscr", "", {"ID": "F1"}), "fileTxt")
    _add(file, "fileName", f"{sample.parent.name}/{sample.name}")
    size = _add(file, "dimensns")
    _add(size, "caseQnty", str(data.rows))
    _add(size, "varQnty", str(len(schema.COLUMNS)))
    _add(file, "fileType", "CSV and Parquet; one row a person-year")
    variables = _add(root, "dataDscr")
    for number, column in enumerate(schema.COLUMNS, 1):
        is_text = column.dtype_name == "String"
        kind = "discrete" if column.codes or column.pattern else "contin"
        names = {"ID": f"V{number}", "name": column.name, "files": "F1", "intrvl": kind}
        variable = _add(variables, "var", "", names)
        _add(variable, "labl", column.description)
        if column.minimum is not None or column.maximum is not None:
            ends = {"min": column.minimum, "max": column.maximum}
            stated = {name: f"{end:g}" for name, end in ends.items() if end is not None}
            _add(_add(variable, "valrng"), "range", "", stated)
        known = data.rows - data.missing[column.name]
        _add(variable, "sumStat", str(known), {"type": "vald"})
        _add(variable, "sumStat", str(data.missing[column.name]), {"type": "invd"})
        for code, text in code_labels(column).items():
            category = _add(variable, "catgry")
            _add(category, "catValu", code)
            _add(category, "labl", text)
        form = {"type": "character" if is_text else "numeric", "schema": "other"}
        _add(variable, "varFormat", "", form)
        if column.unit not in ("", "code"):
            _add(variable, "notes", f"Unit: {column.unit}")
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode", xml_declaration=False)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    path.write_text(f"{head}{text}\n", encoding="utf-8", newline="\n")


_TYPES = {"String": "sc:Text", "Int32": "sc:Integer", "Float64": "sc:Float"}
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "samplingRate": "cr:samplingRate",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def write_croissant(data: DataSet, sample: Path, path: Path) -> None:
    """Write the metadata as Croissant 1.1 (JSON-LD); its records are those of the file `sample`."""
    file = f"{sample.parent.name}/{sample.name}"
    description = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CROISSANT,
        "name": data.register_id,
        "description": f"{NAME}. {data.abstract}",
        "license": LICENCE_URL,
        "url": "https://arxiv.org/abs/2605.19014",
        "creator": {"@type": "sc:Organization", "name": "The SAGA authors"},
        "publisher": {"@type": "sc:Organization", "name": "The SAGA authors"},
        "version": data.version,
        "citeAs": f"The SAGA authors. {NAME}: {data.register_id}.",
        "temporalCoverage": f"{data.years[0]}/{data.years[1]}",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file,
                "name": file,
                "contentUrl": file,
                "encodingFormat": "text/csv",
                "sha256": digest_file(sample),
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "person-years",
                "name": "person-years",
                "description": "One row a person-year, unique by person_id and year.",
                "key": [{"@id": f"person-years/{name}"} for name in ("person_id", "year")],
                "field": [_field(column, file) for column in schema.COLUMNS],
            }
        ],
    }
    text = json.dumps(description, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8", newline="\n")


def _field(column: Column, file: str) -> dict[str, Any]:
    """A column as a field of the record set."""
    labels = "; ".join(f"{code}: {text}" for code, text in code_labels(column).items())
    unit = "" if column.unit in ("", "code") else f" ({column.unit})"
    return {
        "@type": "cr:Field",
        "@id": f"person-years/{column.name}",
        "name": column.name,
        "description": f"{column.description}{unit}{'. ' if labels else ''}{labels}",
        "dataType": _TYPES[column.dtype_name],
        "source": {"fileObject": {"@id": file}, "extract": {"column": column.name}},
    }
