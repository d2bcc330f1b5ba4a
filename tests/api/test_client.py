"""The client against real servers: frames in and out, errors, retries, jobs."""

from __future__ import annotations

import io
import json
import re
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal
from saga.api.key_file import add_key, new_key
from saga.api.settings import Settings

from saga.client import (
    AuthorisationError,
    BusyError,
    Client,
    JobError,
    JobState,
    MissingError,
    RefusedError,
    Retries,
    Sending,
    ServiceError,
    UnreachableError,
)
from saga.client.frames import read_answer
from saga.client.service_connection import retry_after
from saga.data.reading import read_panel
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.population.group_forecast import forecast_groups
from saga.requests import (
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PopulationRequest,
)
from tests.conftest import Running, Start

Answered = tuple[int, dict[str, str], bytes]
ONCE = Retries(seconds=0.0)
ROOT = Path(__file__).parents[2]
REQUEST = ForecastRequest(horizons=(1, 5), coverage=(0.9,), bands=5)


@pytest.fixture(scope="module")
def persons() -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"person_id": f"{i:02d}", "year": year, "birth_year": 1970 + i, "earnings": 2e5 + i}
            for i in range(5)
            for year in (2018, 2019, 2022)
        ]
    )


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    with Client(service.url, retries=ONCE) as opened:
        yield opened


def test_every_kind_of_frame_gets_the_table_of_the_library_in_its_own_kind(
    client: Client, persons: pl.DataFrame, tiny_bundle: Path
) -> None:
    forecaster = Forecaster.load(tiny_bundle, threads=1)
    expected = forecaster.forecast(read_panel(persons), REQUEST, Draws(seed=4)).table
    as_polars = client.forecast(persons, REQUEST, Draws(seed=4))
    assert_frame_equal(as_polars.frame, expected)
    indexed = persons.to_pandas().set_index(pd.Index(range(100, 100 + persons.height)))
    as_pandas = client.forecast(indexed, REQUEST, Draws(seed=4))
    assert isinstance(as_pandas.frame, pd.DataFrame)
    assert_frame_equal(pl.from_pandas(as_pandas.frame), expected, check_dtypes=False)
    as_arrow = client.forecast(persons.to_arrow(), REQUEST, Draws(seed=4))
    assert isinstance(as_arrow.frame, pa.Table)
    assert_frame_equal(pl.DataFrame(as_arrow.frame), expected)
    assert as_polars.provenance["bundle"] == client.model()["bundle"]
    for answer in (as_polars, as_pandas, as_arrow):
        assert repr(answer) == f"<Answer: rows {len(expected):,}>"
        assert all(warning["message"] in str(answer) for warning in answer.warnings)
    with pytest.raises(UsageError, match="list"):
        client.forecast([1, 2])


@pytest.mark.thorough
def test_the_python_of_the_page_runs_as_it_is_printed(
    start: Start, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block has what it needs but the persons, the service and its key."""
    page = (ROOT / "docs" / "how-to" / "client.md").read_text(encoding="utf-8")
    printed = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page.partition("## R\n")[0], re.M)
    blocks = [textwrap.dedent(block) for block in printed if "pip install" not in block]
    assert len(blocks) == 4
    panel = pl.DataFrame(
        [
            {"person_id": f"{i:02d}", "year": year, "birth_year": 1970 + i, "earnings": 2e5 + i}
            | {"sex": ("female", "male")[i % 2]}
            for i in range(24)
            for year in (2018, 2019, 2022)
        ]
    )
    panel.write_parquet(tmp_path / "panel.parquet")
    monkeypatch.chdir(tmp_path)
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=tmp_path / "jobs")
    with start(settings) as service, Client(service.url) as client:
        names = {"persons": panel, "KEY": None, "client": client}
        for block in blocks:
            exec(block.replace("https://saga.example.org", service.url), dict(names))
    assert pl.read_parquet(tmp_path / "result.parquet")["person_id"].n_unique() == 24


def test_groups_are_the_table_of_the_library(client: Client, tiny_bundle: Path) -> None:
    """With weights, which are an own column; tests/test_doors.py asks without them."""
    rows = [
        {"person_id": f"{i:02d}", "year": year, "birth_year": 1970 + i % 9, "earnings": 2e5 + i}
        | {"sex": ("female", "male")[i % 2], "extra_w": 2.0 + i}
        for i in range(30)
        for year in (2018, 2022)
    ]
    persons, draws = pl.DataFrame(rows), Draws(n_paths=20, seed=3)
    request = PopulationRequest(("sex",), ("male/female",), ("total all 2025 > 6e6",), until=2026)
    weights = persons.select("person_id", weight="extra_w").unique()
    answer = client.population(persons, request, draws, weights="w")
    panel = read_panel(persons.drop("extra_w"))
    forecaster = Forecaster.load(tiny_bundle, threads=1)
    expected = forecast_groups(forecaster, panel, request, draws, weights=weights).table
    assert_frame_equal(answer.frame, expected)


def test_a_problem_document_becomes_an_exception_with_its_entries(
    client: Client, persons: pl.DataFrame
) -> None:
    broken = persons.with_columns(earnings=pl.lit(-731_642.5))
    with pytest.raises(RefusedError) as caught:
        client.forecast(broken)
    error = caught.value
    assert (error.status, error.kind) == (422, "input")
    assert {problem.column for problem in error.problems} == {"earnings"}
    assert error.problems[0].fix in str(error)
    assert "731" not in str(error)
    assert error.instance is not None
    with pytest.raises(UsageError, match="scenario"):
        client.forecast(persons, REQUEST, Draws(scenario=[{"year": 2024}]))


def test_a_wrong_key_and_a_service_that_is_not_there(
    start: Start, tiny_bundle: Path, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    secret, key = new_key("one", scopes=("forecast",))
    add_key(tmp_path / "keys", key)
    with start(Settings(bundle=tiny_bundle, keys=tmp_path / "keys", threads=1)) as service:
        with Client(service.url, secret) as allowed:
            assert allowed.model()["bundle"]
            with pytest.raises(AuthorisationError) as caught:
                allowed.call("GET", "/metrics")
            assert caught.value.status == 403
        with (
            Client(service.url, "wrong") as refused,
            pytest.raises(AuthorisationError, match="key"),
        ):
            refused.model()
    with (
        Client(f"http://127.0.0.1:{free_port()}", retries=ONCE) as lost,
        pytest.raises(UnreachableError, match="ConnectError"),
    ):
        lost.model()


@dataclass
class Script:
    """A server that gives prepared answers in turn, and notes the headers of the calls."""

    answers: list[Answered]
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def _script(*answers: Answered) -> Iterator[Script]:
    script = Script(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            script.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, headers, body = script.answers.pop(0)
            if status == 0:  # the connection breaks
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815  # the names that the server calls

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        script.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Clock:
    """Time that passes only while somebody sleeps."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def retries(self, seconds: float = 100.0, *, share: float = 1.0) -> Retries:
        return Retries(seconds, sleep=self.sleep, clock=lambda: self.now, random=lambda: share)


def problem(status: int, kind: str, **headers: str) -> Answered:
    document = {"type": f"urn:saga:problem:{kind}", "title": kind, "status": status}
    return (
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        json.dumps(document).encode(),
    )


BROKEN: Answered = (0, {}, b"")
MODEL: Answered = (200, {}, b'{"bundle": "x"}')


@pytest.mark.parametrize(
    ("answers", "slept", "error"),
    [
        # What Retry-After says and a quarter more; the fourth attempt after a break of its own.
        (
            [problem(503, "a", Retry_After="4"), problem(429, "b", Retry_After="8"), BROKEN, MODEL],
            [5, 10, 2],
            None,
        ),
        ([problem(503, "busy")] * 50, [0.5, 1, 2, 4, 8, 16, 20], BusyError),
        ([(422, {}, b"<html>")], [], RefusedError),
        ([problem(409, "no-result")], [], RefusedError),
        ([problem(403, "scope")], [], AuthorisationError),
        # Outcomes contradicted too often get 429 without Retry-After: only a correction helps.
        ([problem(429, "conflict-limit")], [], BusyError),
    ],
)
def test_what_may_pass_is_tried_again_and_a_refusal_for_good_is_not(
    answers: list[Answered], slept: list[float], error: type[ServiceError] | None
) -> None:
    clock = Clock()
    expected = nullcontext() if error is None else pytest.raises(error)
    with (
        _script(*answers) as script,
        Client(script.url, retries=clock.retries(60.0)) as client,
        expected,
    ):
        client.model()
    assert clock.slept == slept
    assert len(script.headers) == len(slept) + 1


def test_a_wait_is_random_or_until_a_date() -> None:
    waits = [Clock().retries(share=share).wait(3, None) for share in (0.0, 0.5, 1.0)]
    assert waits == [0.1, 2.0, 4.0]
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    seconds = retry_after(httpx.Response(503, headers={"Retry-After": moment}))
    assert seconds is not None
    assert 40 < seconds <= 50


@pytest.mark.parametrize(
    "stated",
    [
        "0",
        "-5",
        "nan",
        "inf",
        "1e400",
        "soon",
        "",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 -0000",
        "Wed Oct 21 07:28:00 2015",
        "Fri, 31 Dec 9999 23:59:59",
        "Wed, 21 Oct 2015 07:28:00 +9999",
        "99 Foo 99999999999 99:99:99 GMT",
        "1e300",
    ],
)
def test_no_retry_after_makes_a_client_fast_or_wait_for_ever(stated: str) -> None:
    clock = Clock()
    answers = [problem(503, "busy", Retry_After=stated)] * 60
    with (
        _script(*answers) as script,
        Client(script.url, retries=clock.retries(60.0)) as client,
        pytest.raises(BusyError),
    ):
        client.model()
    assert len(script.headers) <= 9
    assert clock.now <= 60


def _chain(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_call_that_cannot_pass_is_not_repeated() -> None:
    clock = Clock()
    with _script() as script:
        secure = script.url.replace("http://", "https://user:PASSWORD@")
        with (
            Client(secure, "saga_SECRET", retries=clock.retries()) as client,
            pytest.raises(UnreachableError, match="ConnectError") as caught,
        ):
            client.model()
        with (
            Client(script.url, "saga_SECRET", retries=clock.retries()) as client,
            pytest.raises(UnreachableError, match="LocalProtocolError") as wrong,
        ):
            client.call("GET", "/v1/model", headers={"Idempotency-Key": "a\nb"})
    assert clock.slept == []
    for shown in map(_chain, (caught.value, wrong.value)):
        assert "SECRET" not in shown
        assert "PASSWORD" not in shown


def test_a_download_that_is_tried_again_takes_no_further_connection(tmp_path: Path) -> None:
    clock = Clock()
    with (
        _script(*[problem(503, "busy")] * 50) as script,
        Client(script.url, retries=clock.retries(60.0)) as client,
    ):
        pool = httpx.HTTPTransport(limits=httpx.Limits(max_connections=1))
        client.http._mounts, client.http._transport = {}, pool
        client.http.timeout = httpx.Timeout(5.0)
        with pytest.raises(BusyError):
            client.job("a" * 32).save(tmp_path / "result.parquet")


def test_threads_that_outlive_python_have_no_bytes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's threads abort a process that ends before they have freed Python's bytes."""
    content, opened = io.BytesIO(), pq.ParquetFile
    pq.write_table(pa.table({"a": [1]}, metadata={"saga": "{}"}), content)
    sent, addresses = content.getvalue(), []

    def open_file(source: Any) -> pq.ParquetFile:
        addresses.append(source.address)
        return opened(source)

    monkeypatch.setattr(pq, "ParquetFile", open_file)
    assert read_answer(sent, pa.table({})).frame == pa.table({"a": [1]})
    assert addresses[0] != pa.py_buffer(sent).address


def test_a_table_that_is_damaged_inside_is_a_service_error() -> None:
    content = io.BytesIO()
    pl.DataFrame({"a": range(5_000)}).write_parquet(content, compression="zstd")
    damaged = bytearray(content.getvalue())
    damaged[4:24] = b"\xff" * 20
    with pytest.raises(ServiceError, match="not a table"):
        read_answer(bytes(damaged), pa.table({}))


PAGE: Answered = (200, {"Content-Type": "text/html"}, b"<html>Log in</html>")


FOREIGN_ENTRIES: list[Any] = [
    None,
    "text",
    5,
    {},
    [None],
    ["text"],
    [{}],
    [{"rule": 1, "count": "x"}],
]


OF_A_JOB = {"id": "a", "state": "failed", "persons": 1, "persons_done": 0, "totals": None}


def of_job(**entries: Any) -> Answered:
    view = {**OF_A_JOB, "problem": None, "links": {"result": None}, **entries}
    return (200, {"Content-Type": "application/json"}, json.dumps(view).encode())


@pytest.mark.parametrize(
    "answer",
    [
        of_job(),
        of_job(problem={"title": "No"}),
        of_job(problem={}),
        of_job(problem={"title": None}),
        of_job(problem=7),
        of_job(problem="text"),
        of_job(state=5),
        of_job(state=None),
        of_job(links=None),
        of_job(links=[]),
    ],
    ids=repr,
)
def test_whatever_is_said_of_a_job_that_failed_is_a_service_error(answer: Answered) -> None:
    with (
        _script(answer) as script,
        Client(script.url, retries=ONCE) as client,
        pytest.raises(ServiceError),
    ):
        client.job("a" * 32).wait()


def connect(url: Any = "http://127.0.0.1:1", key: Any = None, **options: Any) -> Client:
    return Client(url, key, **options)


@pytest.mark.parametrize(
    ("make", "arguments", "error", "words"),
    [
        *(
            (connect, {"key": key}, AuthorisationError, "character that no key has")
            for key in (
                *("saga_SECRET\n", "saga_SECRET ", " saga_SECRET", "saga_S\u00c9CRET", "", "\0"),
                b"saga_SECRET",
            )
        ),
        *(
            (connect, {"url": url}, UnreachableError, "begins with http://")
            for url in (
                *("127.0.0.1:8000", "localhost", "ftp://host", "http://", "", "http://a:b", None),
                f"http://{'a' * 64}.com",
                "http://127.0.0.1:99999",
            )
        ),
        (connect, {"retries": None}, UsageError, "retries is of type Retries"),
        (connect, {"seconds": "5"}, UsageError, "a number of seconds"),
        (connect, {"tls": "root.crt"}, UsageError, "cafile="),
        (Retries, {"seconds": None}, UsageError, "a number of seconds"),
        (Retries, {"longest_seconds": -1.0}, UsageError, "a number of seconds"),
        (Sending, {"key": "\u00e4"}, UsageError, "delivery-"),
    ],
)
def test_wrong_settings_are_refused_at_once_and_keys_are_not_shown(
    make: Callable[..., object],
    arguments: dict[str, Any],
    error: type[ServiceError | UsageError],
    words: str,
) -> None:
    with pytest.raises(error, match=re.escape(words)) as caught:
        make(**arguments)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "arguments", "words"),
    [
        ("forecast", {"request": None}, "request is of type ForecastRequest"),
        ("forecast", {"request": LifetimeRequest()}, "request is of type ForecastRequest"),
        ("lifetime", {"request": {"rate": 0.02}}, "request is of type LifetimeRequest"),
        ("population", {"request": 5}, "request is of type PopulationRequest"),
        ("forecast", {"draws": 5}, "draws is of type Draws"),
        ("submit", {"request": "lifetimes"}, "ForecastRequest, LifetimeRequest"),
        ("submit", {"sending": None}, "sending is of type Sending"),
        ("submit_file", {"path": "none.parquet"}, "no .parquet or .csv file"),
        ("submit_file", {"path": "tests"}, "no .parquet or .csv file"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_sent(
    persons: pl.DataFrame, call: str, arguments: dict[str, Any], words: str
) -> None:
    sent = {} if "path" in arguments else {"persons": persons}
    with (
        Client("http://127.0.0.1:1", retries=ONCE) as client,
        pytest.raises(UsageError, match=re.escape(words)),
    ):
        getattr(client, call)(**sent, **arguments)


def test_a_table_of_others_is_no_answer_and_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "mine.parquet"
    pl.DataFrame({"person_id": ["a"], "mean": [1.0]}).write_parquet(mine)
    with pytest.raises(ServiceError, match="not a table of a SAGA service"):
        read_answer(mine.read_bytes(), pa.table({}))
    before = mine.read_bytes()
    (tmp_path / "text.parquet").write_text("mine")
    with Client("http://127.0.0.1:1", retries=ONCE) as client:
        for target in (mine, tmp_path / "text.parquet", tmp_path):
            with pytest.raises(UsageError, match="is not replaced"):
                client.job("a" * 32).save(target)
    assert (mine.read_bytes(), (tmp_path / "text.parquet").read_text()) == (before, "mine")


def foreign(problems: Any) -> Answered:
    return (422, {}, json.dumps({"title": "No", "detail": None, "problems": problems}).encode())


@pytest.mark.parametrize(
    "answer",
    [
        PAGE,
        (200, {}, b""),
        (200, {}, b"[]"),
        (200, {}, b"null"),
        (200, {}, b"{}"),
        (200, {}, b'{"id": 1, "state": null, "bundle": {"name": "x"}}'),
        (200, {"Content-Encoding": "gzip"}, b"x"),
        (502, {"Retry-After": "1e9"}, b"<html>"),
        (308, {"Location": "/"}, b""),
        (413, {}, b""),
        (500, {}, b'{"title": null}'),
        (200, {}, b"[" * 100_000),
        (500, {}, b"[" * 100_000),
        *list(map(foreign, FOREIGN_ENTRIES)),
    ],
    ids=lambda answer: repr(answer)[:80],
)
def test_every_answer_of_something_else_is_a_service_error(
    answer: Answered, persons: pl.DataFrame, tmp_path: Path
) -> None:
    calls: list[Callable[[Client], object]] = [
        lambda client: client.forecast(persons),
        lambda client: client.model(),
        lambda client: client.submit(persons),
        lambda client: client.job("a" * 32).state(),
        lambda client: client.job("a" * 32).result(),
        lambda client: client.job("a" * 32).save(tmp_path / "result.parquet"),
    ]
    for call in calls:
        with (
            _script(answer) as script,
            Client(script.url, retries=ONCE) as client,
            pytest.raises(ServiceError) as caught,
        ):
            call(client)
        assert str(caught.value) not in ("", "None")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resumes", [True, False])
def test_a_download_that_breaks_is_continued_or_is_a_service_error(
    tmp_path: Path, *, resumes: bool
) -> None:
    """The server sends 400 bytes a call of 1,000; one that has no ranges never comes further."""
    content, clock = bytes(range(250)) * 4, Clock()

    def part(start: int) -> Answered:
        headers = {"Content-Type": "application/vnd.apache.parquet", "ETag": '"one"'}
        headers |= {"Content-Length": str(len(content) - start)}
        return (206 if start else 200, headers, content[start : start + 400])

    answers = [part(start) for start in (0, 400, 800)] if resumes else [part(0)] * 60
    with _script(*answers) as script, Client(script.url, retries=clock.retries(30.0)) as client:
        job = client.job("a" * 32)
        if resumes:
            assert job.save(tmp_path / "result.parquet").read_bytes() == content
            sent = [(call.get("range"), call.get("if-range")) for call in script.headers]
            assert sent == [(None, None), ("bytes=400-", '"one"'), ("bytes=800-", '"one"')]
        else:
            with pytest.raises(UnreachableError):
                job.save(tmp_path / "result.parquet")
            assert list(tmp_path.iterdir()) == []
    assert clock.now <= 60


def test_a_job_that_is_sent_again_has_the_same_idempotency_key(persons: pl.DataFrame) -> None:
    job: Answered = (202, {}, json.dumps({"id": "a" * 32}).encode())
    retries = Clock().retries()
    with _script(BROKEN, job) as script, Client(script.url, retries=retries) as client:
        assert client.submit(persons).id == "a" * 32
    assert len({headers["idempotency-key"] for headers in script.headers}) == 1


def test_waiting_for_a_job_pauses_between_its_looks() -> None:
    clock = Clock()
    answers = [of_job(state="running")] * 3 + [of_job(state="succeeded")]
    with _script(*answers) as script, Client(script.url, retries=clock.retries()) as client:
        assert client.job("a" * 32).wait().state == "succeeded"
    assert clock.slept == [1, 1, 1]


@pytest.mark.thorough
def test_a_job_gives_the_rows_of_a_forecast_and_tells_its_progress(
    start: Start, tiny_bundle: Path, persons: pl.DataFrame, tmp_path: Path
) -> None:
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=tmp_path / "jobs")
    with start(settings) as service, Client(service.url) as client:
        expected = client.forecast(persons, REQUEST).frame
        seen: list[JobState] = []
        assert_frame_equal(client.score(persons, REQUEST, progress=seen.append).frame, expected)
        assert seen[-1].state == "succeeded"
        assert [state.persons_done for state in seen] == sorted(s.persons_done for s in seen)
        persons.write_csv(tmp_path / "panel.csv")
        job = client.submit_file(tmp_path / "panel.csv", REQUEST, sending=Sending(key="panel"))
        assert (
            client.submit_file(tmp_path / "panel.csv", REQUEST, sending=Sending(key="panel")).id
            == job.id
        )
        assert client.job(job.id).wait().persons == 5
        saved = pl.read_parquet(job.save(tmp_path / "result.parquet"))
        assert_frame_equal(saved, expected)
        assert isinstance(job.result().frame, pa.Table)
        job.cancel()
        with pytest.raises(MissingError):
            job.state()
        with pytest.raises(JobError, match="earnings"):
            client.score(persons.drop("earnings"), REQUEST)
