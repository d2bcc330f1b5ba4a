"""Files of pages and pictures: only those of SAGA are replaced."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import altair as alt
import pytest

from saga.errors import UsageError
from saga.pages.layout import MARK, check_page, write_page
from saga.pages.theme import chart_png, chart_svg, svg_pdf


def _content(suffix: str) -> bytes:
    chart = alt.Chart({"values": [{"x": 1}]}).mark_point().encode(x="x:Q")
    if suffix == ".docx":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr("word/document.xml", "<w/>")
        return buffer.getvalue()
    if suffix == ".png":
        return chart_png(chart)
    return svg_pdf(chart_svg(chart)) if suffix == ".pdf" else chart_svg(chart).encode()


@pytest.mark.parametrize("suffix", [".html", ".md", ".svg", ".png", ".pdf", ".docx", ".SVG"])
def test_only_a_file_of_saga_is_replaced(tmp_path: Path, suffix: str) -> None:
    """Also once it was copied; the mark breaks no format."""
    out, foreign, content = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", _content(suffix)
    foreign.write_bytes(content)
    with pytest.raises(UsageError, match="SAGA did not write it, so it is not replaced"):
        check_page(foreign, "picture", (suffix.lower(),))
    for _ in range(2):
        write_page(check_page(out, "picture", (suffix.lower(),)), content)
    written = out.read_bytes()
    assert written.count(MARK.encode()) == 1
    if suffix == ".docx":
        assert zipfile.ZipFile(out).testzip() is None
    if suffix == ".png":
        at, kinds = 8, []
        while at < len(written):
            size, kind = struct.unpack(">I4s", written[at : at + 8])
            text = written[at + 4 : at + 8 + size]
            assert (
                zlib.crc32(text) == struct.unpack(">I", written[at + 8 + size : at + 12 + size])[0]
            )
            kinds.append(kind)
            at += size + 12
        assert kinds[-2:] == [b"tEXt", b"IEND"]
