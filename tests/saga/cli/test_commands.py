"""The command line: results, exit codes and messages of every command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import polars as pl
import pytest
import saga.training

from saga.bundle import Bundle, replace_parts
from saga.cli import console
from saga.cli.inputs import show_warnings
from saga.cli.product_commands import headings_of
from saga.conformal.families.set_family import SMALLEST_AMOUNT
from saga.data.reading import read_panel
from saga.files.tables import read_provenance
from saga.forecast_warnings import ForecastWarning
from saga.states.codes import COLUMNS
from tests.command_line import answer, done, error_text, refusal, run
from tests.conftest import quick_calibration
from tests.encoded import encoded

EXAMPLE = Path(__file__).parents[3] / "examples" / "people.csv"
PEOPLE = """person_id,year,birth_year,earnings
007,2016,1980,300000
007,2018,1980,310000
007,2019,1980,
007,2022,1980,0
young,2022,1999,250000
"""


MAIN = "from saga.cli import main; main()"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    return path


def test_the_command_line_loads_heavy_packages_only_when_a_command_runs() -> None:
    modules = ("torch", "fastapi", "saga.training", "saga.calibration", "saga.api")
    code = f"import sys, saga.cli; print([m for m in {modules} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_command_does_not_search_imported_modules_for_garbage_again_and_again() -> None:
    """Searches, and the one at the end, took a fifth of the processor time of a forecast."""
    look = "print(gc.get_threshold()[0], gc.get_freeze_count())"
    code = f"import atexit, gc, saga.cli; atexit.register(lambda: {look}); saga.cli.main()"
    program = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    threshold, kept = map(int, done.stdout.splitlines()[-1].split())
    assert threshold >= 10_000
    assert kept > 10_000


def test_forecast_writes_the_table_with_its_provenance(
    tiny_bundle: Path, people: Path, tmp_path: Path
) -> None:
    result = done(
        f"forecast {people} --bundle {tiny_bundle} --out {tmp_path / 'f.parquet'} --paths 20",
        "--horizons 1-3,20 --json",
    )
    told = json.loads(result.stdout)  # nothing but one JSON object
    assert told["rows"] == pl.read_parquet(tmp_path / "f.parquet").height == 8
    assert told["provenance"] == read_provenance(tmp_path / "f.parquet")
    assert told["provenance"]["panel_digest"] == read_panel(people).digest
    assert told["warnings"] == told["provenance"]["warnings"]
    assert {w["code"] for w in told["warnings"]} >= {"simulated-people", "no-effect"}
    assert "number of paths has no effect" in error_text(result)


@pytest.mark.parametrize("command", ["forecast", "score"])
def test_rows_and_columns_that_are_left_out_are_told_by_every_command(
    command: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    source = tmp_path / "rows" / "rows.csv"
    source.parent.mkdir()
    (source.parent / "more.txt").write_text("person_id,year,birth_year,earnings\n")
    years = [*range(2015, 2023), 2060]  # the last is at an age above 64
    rows = [f"a,{year},1980,300000,x" for year in years] + ["b,2022,1980,-5,x"]
    source.write_text("\n".join(["person_id,year,birth_year,earnings,note", *rows]))
    out = f"{'' if command == 'score' else '--out '}{tmp_path / 'out.parquet'}"
    options = f"--bundle {tiny_bundle} --on-error drop"
    remarks = ("age-range 1", "negative 1", "columns not used: note files not read: more.txt")
    for _ in range(2 if command == "score" else 1):  # again: the run is complete, nothing is read
        told = error_text(done(f"{command} {source.parent} {out} {options}"))
        for remark in remarks:
            assert remark in told


def test_the_screen_says_above_0_where_a_set_without_zero_begins_and_the_file_has_the_number(
    tmp_path: Path,
) -> None:
    out = tmp_path / "f.csv"
    result = done(f"forecast {EXAMPLE} --horizons 4 --coverage 0.9 --out {out}")
    starts = pl.read_csv(out)["lower_90"].to_list()
    assert SMALLEST_AMOUNT in starts, "the example has such a set"
    rows = [line.split() for line in result.stdout.splitlines() if re.match(r" *000[12] ", line)]
    shown = [" ".join(row[5:-1]) for row in rows]
    assert shown == ["above 0" if x == SMALLEST_AMOUNT else f"{x:,.0f}" for x in starts]


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ({"50": 1.0, "80": 1.0, "90": 1.0, "95": 1.0}, "90"),
        ({"50": 1.0, "80": 1.0, "90": None}, "80"),
        ({"50": 1.0, "90": None}, "50"),
        ({"50": None, "90": None}, "90"),
        ({"50": 1.0}, "50"),
        ({"95": 1.0}, None),
    ],
)
def test_the_screen_shows_the_widest_set_that_there_is(
    ends: dict[str, float | None], shown: str | None
) -> None:
    """Few persons have no 90 % sets; a screen of dashes would look as if they had none."""
    sets = {
        f"{end}_{label}": [value] for label, value in ends.items() for end in ("lower", "upper")
    }
    table = pl.DataFrame(
        {"person_id": ["a"], **sets}, schema_overrides=dict.fromkeys(sets, pl.Float64)
    )
    headings = {"person_id": "person"}
    if shown:
        headings |= {f"lower_{shown}": f"{shown} % from", f"upper_{shown}": f"{shown} % to"}
    assert headings_of(table) == headings


@pytest.mark.parametrize("guarantees", [["assumption", "none"], ["assumption", "extrapolated"]])
def test_the_screen_says_which_sets_were_not_tested(guarantees: list[str]) -> None:
    ends = {"lower_80": [1.0, 2.0], "upper_80": [3.0, 4.0]}
    columns = headings_of(pl.DataFrame({**ends, "guarantee_80": guarantees}))
    assert ("guarantee_80" in columns) == ("extrapolated" in guarantees)


def test_lifetimes_of_ten_persons_are_shown_as_a_distribution_and_have_a_tax(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    rows = [f"{p},{year},1980,200000" for p in range(10) for year in range(2015, 2020)]
    (tmp_path / "ten.csv").write_text("\n".join(["person_id,year,birth_year,earnings", *rows]))
    ten = f"lifetime {tmp_path / 'ten.csv'} --bundle {tiny_bundle} --paths 20 --to-age 45"
    shown = done(f"{ten} --out {tmp_path / 'l.csv'}").output
    assert "Distribution of present values over 10 persons" in shown
    taxed = answer(f"{ten} --out {tmp_path / 'l.csv'} --tax se-2022")
    assert {"mean", "gini"} <= {row["statistic"] for row in taxed["population"]}
    table = pl.read_csv(tmp_path / "l.csv")
    assert ((table["tax_mean"] > 0) & (table["tax_mean"] < 0.5 * table["mean"])).all()


@pytest.mark.thorough
def test_circumstances_are_trained_and_simulated_along_the_paths(
    tiny_bundle: Path, register_dir: Path, people: Path, tmp_path: Path
) -> None:
    bundle, out = tmp_path / "living", tmp_path / "out"
    paths = f"score {people} {out} --product paths --circumstances --paths 5"
    assert "saga circumstances" in refusal(paths, f"--bundle {tiny_bundle}")
    trained = answer(
        f"circumstances {tiny_bundle} --panel {register_dir} --out {bundle} --steps 20"
    )
    assert set(trained["validation_nll"]) == {"leaving", "dying", *COLUMNS}
    assert "## Circumstances" in (bundle / "README.md").read_text()
    done(paths, f"--bundle {bundle}")
    table = pl.read_parquet(out / "part-*.parquet")
    assert table.columns == ["person_id", "path", "year", "earnings", *COLUMNS]
    wrong = f"score {people} {tmp_path / 'other'} --bundle {bundle} --circumstances"
    assert "no option circumstances" in refusal(wrong)


@pytest.mark.thorough
@pytest.mark.slow
def test_from_a_generated_register_to_a_bundle_and_its_metrics(tmp_path: Path) -> None:
    """A register never replaces another one; `saga evaluate` reads a folder of its files."""
    register_dir, config = tmp_path / "register", tmp_path / "seconds.yaml"
    generate = f"register generate --persons 800 --seed 3 --years 2000-2022 --out {register_dir}"
    assert answer(generate)["years"] == [2000, 2022]
    refusal(generate)
    shipped = (Path(__file__).parents[3] / "training" / "configs" / "tiny.yaml").read_text()
    config.write_text(
        re.sub(r"(?m)^(max_steps|validate_every|warmup_steps):.*$", r"\1: 4", shipped)
    )
    bundle = tmp_path / "bundle"
    trained = answer(f"train --panel {register_dir} --out {bundle} --config {config} --seed 2")
    with quick_calibration():
        calibrated = answer(f"calibrate {bundle} --panel {register_dir} --paths 20")
    assert calibrated["parents"] == [trained["bundle"]]
    assert {*calibrated["reach"]["0.5"]} >= {*calibrated["reach"]["0.95"]}
    assert Bundle.load(bundle).calibration is not None
    out = tmp_path / "evaluation"
    evaluated = done(
        f"evaluate {bundle} --panel {register_dir / 'panel'} --baselines carry --paths 20",
        f"--persons 60 --out {out}",
    )
    assert {"saga", "carry"} <= set(pl.read_parquet(out / "metrics.parquet")["model"])
    assert "crps_log" in evaluated.stdout


def test_bundle_verify_and_inspect_describe_a_bundle_and_name_a_changed_file(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_bundle, copy)
    assert answer(f"bundle verify {copy}")["intact"] is True
    assert answer(f"bundle inspect {copy}")["parameters"] == Bundle.load(copy).parameters
    config = copy / "config.json"
    config.write_bytes(config.read_bytes().replace(b"2", b"3", 1))
    for command in ("verify", "inspect"):
        assert "config.json was changed" in refusal("bundle", command, copy)


def test_a_bundle_that_somebody_else_sealed_is_refused_with_the_digest_of_the_first(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    """The seal has no key, so that a changed bundle which is sealed again is intact."""
    first = Bundle.load(tiny_bundle)
    other = tmp_path / "other"
    replace_parts(first, other, card="Another \x1b[2Jcard.\x9b", command="by hand")
    done(f"bundle verify {other}")
    shown = done(f"bundle inspect {other}").stdout
    assert "card." in shown
    assert not {"\x1b", "\x9b"} & {*shown}, "its card steers the terminal"
    assert "as stated" in done(f"bundle verify {tiny_bundle} --digest {first.digest}").stdout
    assert "another bundle" in refusal(f"bundle verify {other} --digest {first.digest}")


def test_keys_are_shown_once_and_stored_as_a_hash(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for name in ("ada", "grace"):
        assert answer(f"keys create {name} --file {file}")["key"] not in file.read_text()
    assert [line.split()[0] for line in file.read_text().splitlines()] == ["ada", "grace"]
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quantiles", "0,.5"), "strictly between 0 and 1"),
        (("--prices", "real"), "nominal"),
        (("--mapping", "no-such-mapping"), "mapping"),
        (("--on-error", "ignore"), "'--on-error': 'ignore' is not one of 'fail', 'drop'"),
        (("--bundle", "no-such-bundle"), "no bundle at no-such-bundle"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_option_ends_with_2_and_names_the_allowed_values(
    tiny_bundle: Path, people: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    line = f"forecast {people} --bundle {tiny_bundle} --out {tmp_path / 'f.csv'}"
    assert message in refusal(line, *arguments)
    assert not (tmp_path / "f.csv").exists()


@pytest.mark.parametrize(
    ("options", "refused_option"),
    [
        (("--append", "--until", "2015"), "--until"),
        (("--append", "--rollout", "exact"), "--rollout"),
        (("--append", "--out", "b"), "--out"),
        (("--append", "--target-by", "sex"), "--target-by"),
        (("--since", "2015"), "--since"),
        (("--persons", "50"), "--persons"),
        (("--database", "sqlite:///l.sqlite"), "--database"),
    ],
    ids=" ".join,
)
def test_calibrate_refuses_options_of_its_other_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], refused_option: str
) -> None:
    """Nothing is read before. SAGA_DATABASE is for all commands, so it is not refused."""
    monkeypatch.setenv("SAGA_DATABASE", "sqlite:///other.sqlite")
    told = refusal(f"calibrate no-bundle --panel {tmp_path / 'no-panel'}", *options)
    assert refused_option in told
    assert "no-panel" not in told


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_standard_input_and_output_carry_the_table_alone(
    suffix: str, tiny_bundle: Path, people: Path, tmp_path: Path
) -> None:
    content = PEOPLE.encode()
    if suffix == ".parquet":
        content = encoded(pl.read_csv(people, schema_overrides={"person_id": pl.String}))
    command = f"forecast - --out - --bundle {tiny_bundle} --horizons 1,5"
    piped = run(command, content=content)
    assert piped.exit_code == 0, piped.stderr
    assert "Wrote 4 rows for 2 persons" in error_text(piped)
    out = tmp_path / "f.csv"
    done(f"forecast {people} --out {out} --bundle {tiny_bundle} --horizons 1,5")
    assert piped.stdout == out.read_text()
    refusal(command, "--json")
    refusal("score - out")


def test_an_error_about_standard_input_does_not_name_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    piped = run("forecast - --out -", content=b"PAR1 damaged")
    assert piped.exit_code == 2
    assert error_text(piped).startswith("Error: standard input cannot be read")


MAPPING = """
keep: {earnings: [0, 900000]}
extra: {union: {kind: category}, wealth: {kind: number}}
codes: {union: {yes: member, no: null, never: other}}
"""


def test_what_a_mapping_does_is_told_by_every_command(tiny_bundle: Path, tmp_path: Path) -> None:
    """Also by a batch, in which a code of one partition is not in another."""
    source, mapping = tmp_path / "people.csv", tmp_path / "mapping.yaml"
    header, first, *others = PEOPLE.split()
    cells = first.split(",")
    cells[header.split(",").index("earnings")] = "9999999"
    other = ",".join(["zz", *first.split(",")[1:]])
    rows = [",".join(cells) + ",yes", *(f"{row},yes" for row in others), f"{other},no"]
    source.write_text("\n".join([f"{header},union", *rows]))
    mapping.write_text(MAPPING)
    made_unknown = {"keep earnings": 1, "codes union: no": 1}
    unmatched = ["extra wealth", "codes union: never"]
    options = f"--mapping {mapping} --bundle {tiny_bundle} --horizons 1"
    single = done(f"forecast {source} --out {tmp_path / 'f.csv'} {options} --json")
    result = json.loads(single.stdout)
    scored = answer(f"score {source} {tmp_path / 'out'} --persons-per-partition 1 {options}")
    for told in (result, scored):
        warnings = [w for w in told["warnings"] if w.get("option") == "mapping"]
        entries = {w["message"].split("`")[1]: w.get("count") for w in warnings}
        assert entries == {**made_unknown, **dict.fromkeys(unmatched)}
    assert (result["nulled"], result["unmatched"]) == (made_unknown, unmatched)
    assert single.stderr.count("codes union: never") == 1


def test_init_shows_what_each_entry_of_a_mapping_does(tmp_path: Path) -> None:
    source, mapping = tmp_path / "people.csv", tmp_path / "mapping.yaml"
    header, *rows = PEOPLE.split()
    source.write_text("\n".join([f"{header},Union", *(f"{row},yes" for row in rows)]))
    mapping.write_text(f"{MAPPING}digits: {{industry: 2}}\n".replace("{earnings:", "{earning:"))
    shown = answer(f"init {source} --mapping {mapping}")
    entries = {e["entry"]: (e["columns"], e["cells"], e["made_unknown"]) for e in shown["entries"]}
    n_rows = len(rows)
    assert entries["codes union: yes"] == (["Union"], n_rows, 0)
    assert entries["codes union: no"] == (["Union"], 0, 0)
    assert {"keep earning", "extra wealth", "codes union: never", "digits industry"} <= set(
        shown["unmatched"]
    )
    assert [problem["column"] for problem in shown["problems"]] == ["earning"]
    assert "Is it earnings?" in shown["problems"][0]["fix"]
    assert len(shown["before"]) == len(shown["after"]) == min(10, n_rows)
    assert shown["before"][0]["Union"] == "yes"
    assert shown["after"][0]["extra_union"] == "member"
    text = done(f"init {source} --mapping {mapping}")
    assert "codes union: yes" in text.stdout
    assert "Match nothing" in text.stderr


def test_init_proposes_a_mapping_and_writes_it_once(tmp_path: Path) -> None:
    source, out = tmp_path / "people.csv", tmp_path / "ours.yaml"
    source.write_text(PEOPLE.replace("birth_year", "yob"))
    shown = answer(f"init {source} --out {out}")
    assert shown["mapping"] == out.read_text(encoding="utf-8")
    assert "  birth_year: yob" in shown["mapping"].splitlines()
    assert any("SEK" in question for question in shown["questions"])
    assert shown["after"][0]["birth_year"] == shown["before"][0]["yob"]
    assert "is there already. Name a new file." in refusal(f"init {source} --out {out}")
    dollars = out.read_text().replace("# currency", "currency")
    for key in ("floor", "macro"):
        dollars = dollars.replace(f"# {key}", key)
    out.write_text(dollars)
    assert not answer(f"init {source} --mapping {out}")["problems"]  # --prices is for later


def test_wrong_use_is_json_with_the_option_json() -> None:
    result = run("forecast --json")
    assert result.exit_code == 2
    assert "INPUT" in json.loads(result.stderr)["message"]


def test_an_internal_error_ends_with_70_hides_the_message_and_keeps_the_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("earnings 98765")

    monkeypatch.setattr("saga.bundle.Bundle.load", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run(f"bundle verify {tmp_path}")
    assert result.exit_code == 70
    assert "98765" not in result.stderr
    assert "RuntimeError" in result.stderr
    (traceback_file,) = tmp_path.glob("saga-traceback-*.txt")
    assert "earnings 98765" in traceback_file.read_text()
    debugged = run(f"--debug bundle verify {tmp_path}")
    assert debugged.exit_code == 70
    assert "Traceback" in debugged.stderr


def test_the_error_of_a_missing_extra_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [f"1,{year},1980,300000" for year in range(2015, 2021)]
    panel = tmp_path / "panel.csv"
    panel.write_text("\n".join(["person_id,year,birth_year,earnings", *rows]))
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    # The command imports the package anew; `saga.training` must be the old one again afterwards.
    monkeypatch.setattr(saga, "training", saga.training)
    for name in [name for name in sys.modules if name.startswith("saga.training")]:
        monkeypatch.delitem(sys.modules, name)
    assert "saga-forecast[train]" in refusal(f"train --panel {panel} --out {tmp_path / 'b'}")


@pytest.mark.parametrize(
    ("mapping", "options", "why"),
    [
        ("currency: USD", "", "needs `floor`"),
        ("{currency: USD, floor: none, macro: none}", "", "USD has no deflator"),
        ("{currency: USD, floor: none, macro: sweden}", "--prices 1987", "have 0 years up to 1984"),
        ("{currency: USD, floor: none, macro: {file: own.csv}}", "--prices 1987", "own.csv"),
    ],
)
def test_currency_prices_and_macro_are_checked_before_the_libraries_of_training_are_loaded(
    mapping: str, options: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They take seconds, and minutes where others compute."""
    rows = [f"1,{year},1950,{300 + year}" for year in range(1980, 1985)]
    columns = "person_id,year,birth_year,earnings"
    (tmp_path / "panel.csv").write_text("\n".join([columns, *rows]))
    (tmp_path / "usd.yaml").write_text(mapping)
    monkeypatch.setitem(sys.modules, "saga.training.ensembles", None)
    read = f"--panel {tmp_path}/panel.csv --mapping {tmp_path}/usd.yaml {options}"
    assert why in refusal(f"train {read} --out {tmp_path / 'b'}")


def test_the_console_script_returns_the_exit_codes_to_the_shell(
    tmp_path: Path, people: Path
) -> None:
    def shell(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", MAIN, *shlex.split(" ".join(map(str, arguments)))]
        return subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert shell("--version").returncode == 0
    refused = shell(f"forecast {people} --bundle {tmp_path} --out f.csv")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "manifest.json" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("log", ["full disk", "closed", "closed pipe"])
def test_a_log_that_cannot_be_written_ends_no_command(
    people: Path, tmp_path: Path, log: str
) -> None:
    """The forecast is written, though it begins with a warning; an error keeps its exit code."""
    reader, pipe = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)

    def call(*arguments: str | Path) -> int:
        program = [sys.executable, "-c", MAIN, *map(str, arguments)]
        return subprocess.run(
            program,
            stdout=subprocess.DEVNULL,
            stderr=full if log == "full disk" else pipe,
            preexec_fn=(lambda: os.close(2)) if log == "closed" else None,
        ).returncode

    options = ("--horizons", "1", "--out", tmp_path / "forecast.csv")
    try:
        assert call("forecast", people, *options) == 0
        assert call("forecast", tmp_path / "absent.csv", *options) == 2
    finally:
        os.close(full)
        os.close(pipe)
    assert pl.read_csv(tmp_path / "forecast.csv").height > 0


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_standard_output_is_named_and_files_are_complete(
    people: Path, tmp_path: Path
) -> None:
    out = tmp_path / "forecast.parquet"
    program = [sys.executable, "-c", MAIN, "forecast", str(people), "--horizons", "1", "--out"]
    with Path("/dev/full").open("w") as full:
        for target in (str(out), "-"):
            done = subprocess.run([*program, target], stdout=full, stderr=subprocess.PIPE)
            assert done.returncode == 2
            assert b"Standard output cannot be written" in done.stderr
    assert pl.read_parquet(out).height > 0


def test_no_file_gets_the_number_of_a_closed_stream() -> None:
    """Native code writes its messages to number 2, and they would be in that file."""
    code = (
        "import os; from saga.cli import console; console.protect_streams();"
        "raise SystemExit(min(os.open('/', os.O_RDONLY), 3))"
    )
    for redirection in ("2>&-", "<&- >&- 2>&-", ">&-"):
        line = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {redirection}"
        done = subprocess.run(line, shell=True)
        assert done.returncode == 3


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=("ctrl-c", "container stop"))
def test_an_interrupted_run_ends_with_3(
    tiny_bundle: Path, people: Path, tmp_path: Path, stop: signal.Signals
) -> None:
    code = "import saga.cli, saga.forecaster; print('loaded', flush=True); saga.cli.main()"
    arguments = f"lifetime {people} --bundle {tiny_bundle} --out l.csv --threads 1"
    program = [sys.executable, "-c", code, *arguments.split()]
    rows = [f"p{i},2022,2000,{200000 + i}" for i in range(3_000)]
    people.write_text("\n".join(["person_id,year,birth_year,earnings", *rows]) + "\n")
    started = subprocess.Popen(
        program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "loaded\n"
    time.sleep(1)  # the work takes minutes
    started.send_signal(stop)
    try:
        _, stderr = started.communicate(timeout=40)
    except subprocess.TimeoutExpired:  # a library's callback may swallow the first one
        started.send_signal(stop)
        _, stderr = started.communicate(timeout=40)
    assert started.returncode == 3, stderr
    assert "Interrupted" in stderr
    assert not (tmp_path / "l.csv").exists()


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_serve_prints_its_address_answers_and_ends_without_an_error(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    arguments = f"serve --bundle {tiny_bundle} --port 0 --threads 1"
    program = [sys.executable, "-c", MAIN, *arguments.split()]
    service = subprocess.Popen(
        program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert service.stdout is not None
    try:
        announced = re.search(r"http://127\.0\.0\.1:\d+", service.stdout.readline())
        assert announced, service.communicate(timeout=10)[1]
        with urllib.request.urlopen(f"{announced[0]}/livez", timeout=10) as answer:
            assert answer.status == 200
    finally:
        service.terminate()
        _, stderr = service.communicate(timeout=60)
    assert service.returncode == 0, stderr


@pytest.mark.parametrize(
    "error",
    [
        OSError("No space left on device (os error 28)"),
        pl.exceptions.ComputeError("parquet: No space left on device (os error 28)"),
        ValueError("IO error: No space left on device (os error 28)"),
        OSError(28, "No space left on device"),
    ],
    ids=["polars", "Parquet", "Stata", "Python"],
)
def test_a_full_disk_is_no_defect_of_saga(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console.report(error, as_json=False, debug=False) == 2
    assert "The disk is full" in capsys.readouterr().err


def test_a_warning_names_up_to_three_persons(capsys: pytest.CaptureFixture[str]) -> None:
    for names, told in (
        (["P1"], "(person P1)"),
        (["P1", "P2"], "(2 persons: P1, P2)"),
        (["P1", "P2", "P3", "P4"], "(4 persons: such as P1, P2, P3)"),
    ):
        show_warnings([ForecastWarning("beyond-age", "Late.", person_id=name) for name in names])
        assert capsys.readouterr().err == f"Warning: Late. {told}\n"
    show_warnings([ForecastWarning("beyond-age", "Late.", count=30)])
    assert capsys.readouterr().err == "Warning: Late. (30 persons)\n"
