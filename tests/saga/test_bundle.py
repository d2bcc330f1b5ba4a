"""A bundle returns what was written to it, and is refused if a single byte differs."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load, save

from saga import schema
from saga.bundle import Bundle, BundleContents, replace_parts, shipped_bundle, write_bundle
from saga.diagnostics_tables import STORED
from saga.errors import BundleError
from saga.files import bundle_folder
from saga.files.bundle_folder import CALIBRATION, MANIFEST, REQUIRED
from saga.files.tables import parquet_bytes
from saga.forecaster import Forecaster
from saga.population.group_forecast import forecast_groups
from saga.requests import Draws
from tests.command_line import refusal

CELLS = pl.DataFrame({"kind": "threshold", "horizon": [1, 5], "threshold": [0.05, 0.07]})

RECORDS = {"first_year": 1990, "last_year": 2022, "longest": 32, "first_age": 16, "last_age": 64}
CONFIG: dict[str, Any] = {"model": {"width": 8}, "training": {"name": "tiny"}, "records": RECORDS}
SPLIT = {"panel_id": "toy", "scheme": "person", "shares": [70, 10, 10, 10]}


def write(path: Path, seed: int = 7, **changes: Any) -> Bundle:
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    parts: dict[str, Any] = {
        "config": CONFIG,
        "transforms": {"mean": [0.5, 1.25]},
        "macro": {"last_year": 2022},
        "split": SPLIT,
        "weights": {
            "tied": weight,
            "embedding": weight,
            "bias": torch.ones(3, dtype=torch.bfloat16),
        },
        "card": "# Toy\n\nSmå tal.\n",
        "calibration": CELLS,
        "metrics": {"training": {"crps": 0.3}},
    }
    contents = BundleContents(**(parts | changes))
    return write_bundle(path, contents, seed=seed, command="saga train")


def test_a_bundle_returns_what_was_put_in(tmp_path: Path) -> None:
    bundle = write(tmp_path / "b")
    assert bundle.config == CONFIG
    assert bundle.metrics == {"training": {"crps": 0.3}}
    assert bundle.card.startswith("# Toy")
    assert torch.equal(bundle.weights["embedding"], torch.arange(6.0).reshape(2, 3))
    assert bundle.weights["bias"].dtype == torch.bfloat16
    assert bundle.calibration is not None
    assert bundle.calibration.equals(CELLS)
    assert bundle.parameters == 15
    assert bundle.manifest["seed"] is None  # the panel is not simulated
    assert len(bundle.digest) == 64
    assert (
        bundle.calibration_digest
        == hashlib.sha256((tmp_path / "b" / CALIBRATION).read_bytes()).hexdigest()
    )
    assert [column["name"] for column in bundle.schema["columns"]][:4] == [
        "person_id",
        "year",
        "birth_year",
        "earnings",
    ]


def test_a_bundle_is_equal_to_itself_and_a_key(tmp_path: Path) -> None:
    bundle, other = (write(tmp_path / name) for name in "ab")
    assert bundle == bundle
    assert bundle != other
    assert {bundle: 1, other: 2}[bundle] == 1


def test_the_same_content_gives_the_same_bytes_and_other_content_another_digest(
    tmp_path: Path,
) -> None:
    first, second = (
        write(tmp_path / "a"),
        write(tmp_path / "b", config=dict(reversed(CONFIG.items()))),
    )
    for name in [*first.manifest["files"], MANIFEST]:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    other = write(tmp_path / "c", metrics={"training": {"crps": 0.31}}, calibration=None)
    assert first.digest == second.digest != other.digest
    assert first.model_digest == other.model_digest, "a calibration does not change the model"
    assert first.model_digest != write(tmp_path / "d", macro={"last_year": 2021}).model_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a bundle."""
    return write(tmp_path / "b").path


@pytest.mark.parametrize("name", sorted(REQUIRED | {CALIBRATION, MANIFEST}))
def test_one_changed_byte_is_refused_and_the_error_names_the_file(folder: Path, name: str) -> None:
    file = folder / name
    intact = file.read_bytes()
    for position in range(0, len(intact), max(1, len(intact) // 40)):
        changed = bytes([intact[position] ^ 1])
        file.write_bytes(intact[:position] + changed + intact[position + 1 :])
        with pytest.raises(BundleError, match=name.replace(".", r"\.")):
            Bundle.load(folder)
    file.write_bytes(intact)
    Bundle.load(folder)


def test_a_manifest_that_is_only_reformatted_is_refused(folder: Path) -> None:
    file = folder / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text())))
    with pytest.raises(BundleError, match=r"manifest\.json was changed"):
        Bundle.load(folder)


@pytest.mark.parametrize("name", ["weights.pkl", "model.pt", "notes.txt", ".hidden"])
def test_a_pickle_and_any_other_unknown_file_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(pickle.dumps({"weights": 1}))
    with pytest.raises(BundleError, match=name.replace(".", r"\.")):
        Bundle.load(folder)


def test_a_pickle_listed_in_a_well_sealed_manifest_is_still_refused(folder: Path) -> None:
    data = pickle.dumps({"weights": 1})
    (folder / "extra.pkl").write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["extra.pkl"] = hashlib.sha256(data).hexdigest()
    manifest["digest"] = bundle_folder.digest_files(manifest["files"])
    manifest["seal"] = bundle_folder.seal(manifest)
    (folder / MANIFEST).write_bytes(bundle_folder.encode_part(manifest, "manifest"))
    with pytest.raises(BundleError, match=r"extra\.pkl may contain code"):
        Bundle.load(folder)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.json", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        ("schema.json", b"{}"),
        ("README.md", b"\xff"),
        ("model.safetensors", b""),
        ("trees.parquet", b"PAR1PAR1"),
    ],
)
def test_a_well_sealed_part_that_cannot_be_read_is_refused(
    folder: Path, name: str, data: bytes
) -> None:
    _, content = bundle_folder.read_folder(folder)
    changed = content | {name: data}
    bundle_folder.write_folder(folder, changed, seed=0, command="", parents=())
    with pytest.raises(BundleError):
        Bundle.load(folder)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BundleError, match=name.replace(".", r"\.") + " is missing"):
        Bundle.load(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [("config.json", r"config\.json is not a regular"), (MANIFEST, r"no file manifest\.json")],
)
def test_a_link_in_place_of_a_file_is_refused(folder: Path, name: str, message: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere.json")
    (folder / name).symlink_to(folder.parent / "elsewhere.json")
    with pytest.raises(BundleError, match=message):
        Bundle.load(folder)


def test_another_format_version_and_another_column_table_say_which_version_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("saga.files.bundle_folder.FORMAT", 99)
        write(tmp_path / "this_version")
        patch.setattr("saga.files.bundle_folder.current_version", lambda: "9.9")
        write(tmp_path / "b")
    with pytest.raises(BundleError, match=r"format 99.*9\.9"):
        Bundle.load(tmp_path / "b")
    with pytest.raises(BundleError, match=r"format 99.*again\.$"):
        Bundle.load(tmp_path / "this_version")
    with monkeypatch.context() as patch:
        patch.setattr("saga.files.bundle_folder.current_version", lambda: "8.8")
        write(tmp_path / "c")
    monkeypatch.setattr("saga.schema.COLUMNS", schema.COLUMNS[:-1])
    with pytest.raises(BundleError, match=r"schema\.json.*\(exit_reason\).*8\.8"):
        Bundle.load(tmp_path / "c")


def test_replacing_parts_keeps_the_rest_and_records_the_parent(tmp_path: Path) -> None:
    trained = write(tmp_path / "b", calibration=None)
    assert trained.calibration_digest is None
    calibrated = replace_parts(trained, trained.path, calibration=CELLS, command="saga calibrate")
    assert calibrated.manifest["parents"] == [trained.digest]
    assert calibrated.digest != trained.digest
    assert torch.equal(calibrated.weights["tied"], trained.weights["tied"])
    assert calibrated.metrics == trained.metrics
    rows = [
        {"table": "verdicts", "question": "coverage", "horizon": 1, "status": "unclear"},
        {"table": "coverage", "grouping": "all", "group": "all", "horizon": 1, "coverage": 0.9}
        | {"status": "unclear"},
    ]
    diagnostics = pl.DataFrame(rows, schema=STORED)
    judged = replace_parts(calibrated, tmp_path / "c", diagnostics=diagnostics, command="x")
    assert judged.manifest["parents"] == [trained.digest, calibrated.digest]
    assert judged.calibration_digest == calibrated.calibration_digest
    renamed = replace_parts(judged, tmp_path / "c", card="# Other", command="x")
    assert renamed.diagnostics is not None
    assert renamed.diagnostics.equals(diagnostics)
    assert (
        replace_parts(renamed, tmp_path / "c", calibration=CELLS, command="x").diagnostics is None
    )
    # No temporary directory remains.
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b", "c"]


def test_a_link_to_itself_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "b").symlink_to("b")
    with pytest.raises(BundleError, match="no bundle"):
        Bundle.load(tmp_path / "b")


def test_a_directory_that_is_not_a_bundle_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.docx").write_text("years of work")
    with pytest.raises(BundleError, match="not a bundle"):
        write(tmp_path / "b")
    assert (tmp_path / "b" / "thesis.docx").read_text() == "years of work"


def test_a_failed_write_leaves_the_old_bundle_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write(tmp_path / "b")
    real, calls = Path.rename, []

    def second_rename_fails(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise OSError("disk gone")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", second_rename_fails)
    with pytest.raises(OSError, match="disk gone"):
        write(tmp_path / "b", seed=8)
    assert Bundle.load(tmp_path / "b").manifest == old.manifest
    assert [entry.name for entry in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o700), (0o022, 0o755)])
def test_a_new_folder_follows_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        bundle = write(tmp_path / "b")
    finally:
        os.umask(before)
    assert stat.S_IMODE(bundle.path.stat().st_mode) == mode


def test_after_an_interrupted_replacement_the_error_names_the_old_bundle(tmp_path: Path) -> None:
    write(tmp_path / "b").path.rename(tmp_path / ".b.old")
    with pytest.raises(BundleError, match=r"rename .*\.b\.old"):
        Bundle.load(tmp_path / "b")


def test_a_part_that_cannot_be_stored_is_refused_before_any_file_is_written(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="embedding contain NaN"):
        write(tmp_path / "b", weights={"embedding": torch.tensor([float("nan")])})
    with pytest.raises(BundleError, match=r"metrics\.json"):
        write(tmp_path / "b", metrics={"crps": float("nan")})
    with pytest.raises(BundleError, match="single persons"):
        write(tmp_path / "b", calibration=CELLS.with_columns(person_id=pl.lit("0001")))
    with pytest.raises(BundleError, match="single persons"):
        write(tmp_path / "b", diagnostics=pl.DataFrame({"person_id": ["A"]}))
    assert not any(tmp_path.iterdir())


def in_json(*place: str, value: Any = None) -> Callable[[bytes], bytes]:
    """A change of one value of a JSON part; without a value it is left out."""

    def change(data: bytes) -> bytes:
        part = at = json.loads(data)
        for name in place[:-1]:
            at = at[name]
        if value is None:
            del at[place[-1]]
        else:
            at[place[-1]] = value
        return json.dumps(part).encode()

    return change


def in_table(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[bytes], bytes]:
    return lambda data: parquet_bytes(change(pl.read_parquet(data)))


def in_kind(kind: str, column: str, value: float | None) -> Callable[[bytes], bytes]:
    """A change of a column in the rows of one kind of a calibration table."""
    changed = pl.when(pl.col("kind") != kind).then(column).otherwise(value)
    return in_table(lambda t: t.with_columns(changed.cast(t.schema[column]).alias(column)))


def in_weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        weights = load(data)
        change(weights)
        return save(weights)

    return changed


MODEL, TABLE = "model.safetensors", "calibration.parquet"
ZEROS = pl.DataFrame({"a": pl.repeat(0, 2**24, eager=True)})
NONSENSE: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("config.json", in_json("records")),
    ("config.json", in_json("records", "last_year", value="late")),
    ("config.json", in_json("members", value=10**6)),
    ("config.json", in_json("tree_weights", value=[1, "x"])),
    *(
        ("config.json", in_json("model", name, value=value))
        for name in ("layers", "width", "heads", "mlp_ratio", "bins", "head_width", "light")
        for value in (-1, 10**9, "x")
    ),
    ("config.json", in_json("model", "heads", value=0)),
    ("config.json", in_json("model", "layers", value=100_000)),
    ("config.json", in_json("model", "width", value=100_000)),
    ("config.json", in_json("model", "depth", value=3)),
    ("split.json", in_json("shares", value=[0.7, 0.3])),
    ("split.json", in_json("panel_id", value=[1])),
    ("metrics.json", in_json("calibration", "records", value={})),
    ("metrics.json", in_json("calibration", "rollout", value="fast")),
    ("metrics.json", lambda _: b'{"training": {"loss": NaN}}'),
    ("metrics.json", lambda _: b" " * 2**23 + b"{}"),
    ("macro.json", in_json("first_year")),
    ("macro.json", in_json("history", value=[[0.1, 0.0]])),
    ("macro.json", in_json("transition", value=[[2, 0, 0], [0, 2, 0], [0, 0, 2]])),
    ("macro.json", in_json("moving_mean", "unemployment", "state_sd", value=[0.2])),
    ("macro.json", in_json("groups", "columns", value=[["sex", ["female", "male"]]])),
    ("macro.json", in_json("groups", "columns", value=[["wealth", ["some"] * 8]])),
    ("macro.json", in_json("groups", "series", "odds")),
    ("transforms.json", in_json("centre", value={})),
    ("transforms.json", in_json("scale", value=0)),
    ("transforms.json", in_json("knots", value=[1.0, 1.0])),
    ("transforms.json", in_json("knots", value=[1.0, 1e300])),
    ("transforms.json", in_json("codes", "sex")),
    ("transforms.json", in_json("codes", "sex", value=["male", "male"])),
    ("transforms.json", in_json("spread", "transfers", value=0)),
    ("transforms.json", in_json("extra", value=[{"name": "own"}])),
    ("transforms.json", in_json("reference", "typical", value=[12.0])),
    (MODEL, in_weights(lambda w: w.pop("norm.weight"))),
    (MODEL, in_weights(lambda w: w.update(more=torch.ones(2)))),
    (MODEL, in_weights(lambda w: w["norm.weight"].fill_(torch.nan))),
    (MODEL, in_weights(lambda w: w.update({"norm.weight": torch.ones(3)}))),
    (MODEL, in_weights(lambda w: w.update({"norm.weight": w["norm.weight"].double() * 1e300}))),
    (TABLE, in_table(lambda t: t.drop("n"))),
    (TABLE, in_table(lambda t: t.drop("kind"))),
    (TABLE, in_table(lambda t: t.with_columns(pl.col("n").cast(pl.String)))),
    (TABLE, in_table(lambda t: t.with_columns(pl.concat_list("value").alias("value")))),
    (TABLE, in_table(lambda t: t.filter(pl.col("group") != "all"))),
    (TABLE, in_table(lambda t: t.filter(pl.col("kind") != "threshold"))),
    (TABLE, in_kind("map", "value", None)),
    (TABLE, in_kind("map", "value", 0.5 + 1)),
    (TABLE, in_kind("map", "knot", float("nan"))),
    (TABLE, in_kind("shift", "level", None)),
    (TABLE, in_kind("band", "n", -1)),
    (TABLE, in_kind("threshold", "horizon", 10**9)),
    (TABLE, lambda _: parquet_bytes(ZEROS)),
    ("vintages.parquet", lambda _: parquet_bytes(ZEROS)),
    ("vintages.parquet", in_table(lambda t: t.drop("se"))),
    ("vintages.parquet", in_table(lambda t: t.with_columns(pl.col("horizon").cast(pl.String)))),
    ("diagnostics.parquet", lambda _: parquet_bytes(pl.DataFrame({"a": ["x" * 2**27]}))),
    ("diagnostics.parquet", lambda _: parquet_bytes(pl.DataFrame({"a": ["x" * 2**12] * 2**15}))),
    ("diagnostics.parquet", in_table(lambda t: t.drop("horizon"))),
    ("diagnostics.parquet", in_table(lambda t: t.with_columns(pl.col("n").cast(pl.String)))),
]


@pytest.mark.parametrize(("name", "change"), NONSENSE)
def test_nonsense_that_somebody_sealed_is_an_error_of_its_file(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    """All digests agree, and yet no forecast is made from it, and no memory is filled."""
    _, content = bundle_folder.read_folder(shipped_bundle("small"))
    changed = {**content, name: change(content[name])}
    bundle_folder.write_folder(tmp_path / "b", changed, seed=0, command="", parents=())
    with pytest.raises(BundleError, match=name.replace(".", r"\.")):
        Forecaster.load(tmp_path / "b", threads=1)


def with_nothing(table: str, column: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """No value in a column of one of the judged tables."""
    value = pl.when(pl.col("table") != table).then(column)
    return lambda stored: stored.with_columns(value.alias(column))


UNSHOWN: list[Callable[[pl.DataFrame], pl.DataFrame]] = [
    lambda t: t.filter(pl.col("table") != "coverage"),
    lambda t: t.with_columns(question=pl.lit("sum")),
    lambda t: t.with_columns(status=pl.lit("fine")),
    with_nothing("verdicts", "size"),
    with_nothing("verdicts", "figures"),
    with_nothing("sums", "size"),
    with_nothing("efficiency", "size"),
    with_nothing("people", "earnings"),
    with_nothing("together", "question"),
]


@pytest.mark.parametrize("change", UNSHOWN)
def test_sealed_tables_that_no_report_can_show_are_an_error_of_their_file(
    tmp_path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]
) -> None:
    _, content = bundle_folder.read_folder(shipped_bundle("small"))
    name = bundle_folder.DIAGNOSTICS
    content = {**content, name: in_table(change)(content[name])}
    bundle_folder.write_folder(tmp_path / "b", content, seed=0, command="", parents=())
    brief = tmp_path / "brief.pdf"
    error = refusal("report", tmp_path / "b", "--out", tmp_path / "r.html", "--brief", brief)
    assert name in error


@pytest.mark.parametrize("column", ["cutoff", "horizon"])
def test_sealed_vintages_that_say_nothing_are_an_error_of_their_file(
    tmp_path: Path, column: str
) -> None:
    _, content = bundle_folder.read_folder(shipped_bundle("small"))
    name, nothing = bundle_folder.VINTAGES, pl.lit(None, pl.Int32).alias(column)
    content = {**content, name: in_table(lambda t: t.with_columns(nothing))(content[name])}
    bundle_folder.write_folder(tmp_path / "b", content, seed=0, command="", parents=())
    forecaster = Forecaster.load(tmp_path / "b", threads=1)
    record = pl.DataFrame({"person_id": "a", "year": 2022, "birth_year": 1980, "earnings": 1e5})
    with pytest.raises(BundleError, match=name):
        forecast_groups(forecaster, record, draws=Draws(n_paths=2))
