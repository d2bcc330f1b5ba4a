"""The explorer's files: policy, licences, what the page loads, and its examples."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from saga.api.key_file import add_key, new_key
from saga.api.settings import Settings

from saga.data.reading import read_panel
from saga.forecast_checks import find_ineligible
from saga.pages import theme
from tests.conftest import Running, Start

WEB = Path(__file__).resolve().parents[2] / "api" / "web"


def test_the_page_has_a_strict_policy_and_loads_its_own_files_alone(service: Running) -> None:
    page = service.client.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; connect-src 'self'" in policy
    assert "unsafe" not in policy
    links = re.findall(r"""(?:src|href)=["']([^"'#]+)["']""", page.text)
    own = [link for link in links if not link.startswith(("data:", "docs", "v1/"))]
    assert len(own) >= 5
    for link in own:
        assert "//" not in link
        answer = service.client.get(f"/{link}")
        assert answer.status_code == 200, link
        assert answer.headers["content-security-policy"] == policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", page.text)


def test_charts_have_the_colours_of_all_other_pictures() -> None:
    """On the page and in what is downloaded, which is light."""
    light, dark, *_ = re.findall(r":root \{(.*?)\}", (WEB / "explorer.css").read_text(), re.DOTALL)
    of_page, of_dark = (dict(re.findall(r"--(\w+): (#\w+)", text)) for text in (light, dark))
    saved = dict(re.findall(r'(\w+): "(#\w+)"', (WEB / "downloads.js").read_text()))
    shown = set(re.findall(r"var\(--(\w+)\)", (WEB / "charts.js").read_text()))
    assert "#" not in "".join(re.findall(r'"#\w+"', (WEB / "charts.js").read_text()))
    assert shown <= of_dark.keys() & saved.keys()
    for name, colour in {
        "ink": theme.INK,
        "soft": theme.GREY,
        "median": theme.MEDIAN,
        "zero": theme.ZERO,
    }.items():
        assert of_page[name] == saved[name] == colour
    assert of_page["set"] == saved["set"]
    assert of_page["other"] == saved["other"]


def test_modules_import_files_that_the_service_has(service: Running) -> None:
    for module in WEB.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', module.read_text(encoding="utf-8")):
            assert service.client.get(f"/explorer/{name}").status_code == 200


def test_the_page_has_the_prices_by_which_the_service_reads(
    start: Start, tiny_bundle: Path, tmp_path: Path
) -> None:
    """Else a chart would have the record in other money than the forecast."""
    own, row = tmp_path / "own.csv", "consumer_price_index,2025,430.0,1980 = 100,V,office"
    own.write_text(f"series,year,value,unit,mark,source\n{row}\n")
    with start(Settings(bundle=tiny_bundle, threads=1, facts=own)) as running:
        prices = running.client.get("/explorer/price_index.json").json()
    assert prices["2025"] == 430.0


@pytest.mark.parametrize("name", ["nothing.js", "..%2f..%2fapp.py", "explorer.html%00", "vendor"])
def test_other_files_are_not_served(service: Running, name: str) -> None:
    answer = service.client.get(f"/explorer/{name}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_policy_allows_exactly_the_style_of_the_chart_library(service: Running) -> None:
    text = (WEB / "vendor" / "plot.umd.min.js").read_text(encoding="utf-8")
    styles = re.findall(r'append\("style"\)\.text\(`([^`]*)`', text)
    (style,) = [style for style in styles if "--plot-background" in style]
    style = re.sub(r"\$\{\w+\}", "saga-plot", style).replace("\\n", "\n")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = service.client.get("/").headers["content-security-policy"]
    assert f"style-src 'self' 'sha256-{digest}';" in policy


def test_libraries_come_with_their_licences(service: Running) -> None:
    for library, words in (
        ("d3", "Permission to use, copy, modify"),
        ("plot", "Permission to use, copy, modify"),
        ("interval-tree-1d", "Copyright (c) 2013 Mikola Lysenko"),
    ):
        assert words in service.client.get(f"/explorer/{library}-licence.txt").text


def test_the_page_needs_no_key_but_its_calls_do(
    start: Callable[[Settings], AbstractContextManager[Running]], tiny_bundle: Path, tmp_path: Path
) -> None:
    add_key(tmp_path / "keys", new_key("analyst")[1])
    with start(Settings(bundle=tiny_bundle, keys=tmp_path / "keys")) as service:
        assert service.client.get("/").status_code == 200
        assert service.client.get("/explorer/explorer.js").status_code == 200
        assert service.client.get("/v1/variables").status_code == 401


def test_every_example_can_be_forecast() -> None:
    panel = read_panel(WEB / "example_people.csv")
    assert len(panel.persons()) == 10
    assert find_ineligible(panel, 64) == {}
