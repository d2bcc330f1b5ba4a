"""A calibration report on one page, as PDF or Word, for a policy file."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from saga.pages.layout import write_page
from saga.pages.theme import FONT, GREY, INK, chart_png, sized_svg, svg_pdf
from saga.pages.uses import Use

SUFFIXES = (".pdf", ".docx")
_COLOURS = {"holds": "#14532d", "watch": "#5c3d00", "fails": "#7f1d1d", "unclear": "#3a424c"}
_PAGE, _MARGIN = (595, 842), 51  # of A4, points
_LETTER = 0.5  # mean width of a letter, in sizes of the font
_LINE = 1.3  # distance of lines, in sizes of the font
_PICTURE = 0.8  # width of the picture, as a share of the text's


class _Text(NamedTuple):
    """A paragraph: its style is that of Word, its size in points."""

    text: str
    size: float
    colour: str = INK
    style: str = "Normal"


@dataclass(frozen=True)
class Brief:
    """What the page says, in its order. `chart` is one of Altair, or None."""

    title: str
    about: str  # what was judged, on whom
    uses: Sequence[Use]
    answers: Sequence[str]
    chart: Any
    caption: str
    source: str  # what made the figures

    def write(self, out: Path) -> None:
        """Write the page to a .pdf or .docx file, whole or not at all.

        Word needs python-docx: `pip install 'saga-forecast[brief]'`.
        """
        write_page(out, svg_pdf(self._svg()) if out.suffix.lower() == ".pdf" else self._docx())

    def _before(self) -> Iterator[_Text]:
        """What stands before the picture."""
        yield _Text(self.title, 18, style="Title")
        yield _Text(self.about, 9, GREY)
        for use in self.uses:
            yield _Text(f"{use.question}: {use.answer}", 11, _COLOURS[use.status], "Heading 2")
            yield _Text(use.reason, 9.5)
        for answer in self.answers:
            yield _Text(answer, 9.5, style="List Bullet")

    def _after(self) -> Iterator[_Text]:
        if self.chart is not None:
            yield _Text(self.caption, 8.5, GREY)
        yield _Text(self.source, 7.5, GREY)

    def _svg(self) -> str:
        """The page as a picture, whose texts stay texts in a PDF."""
        width, y, parts = _PAGE[0] - 2 * _MARGIN, float(_MARGIN), list[str]()

        def write(paragraphs: Iterator[_Text]) -> None:
            nonlocal y
            for text, size, colour, style in paragraphs:
                is_head, bullet = style in ("Title", "Heading 2"), style == "List Bullet"
                y += 8 if is_head else 3
                weight = "bold" if is_head else "normal"
                first = "\N{BULLET} " if bullet else ""
                room = int(width / (size * _LETTER * (1.08 if is_head else 1)))
                for line in textwrap.wrap(_joined(text), room, initial_indent=first):
                    y += size * _LINE
                    parts.append(
                        f'<text x="{_MARGIN}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
                        f'font-weight="{weight}">{escape(line)}</text>'
                    )

        write(self._before())
        if self.chart is not None:
            of_chart, height, content = sized_svg(self.chart)
            wide = _PICTURE * width
            high = wide * float(height) / float(of_chart)
            place = f'<svg x="{_MARGIN}" y="{y + 8:.1f}" width="{wide:.1f}" height="{high:.1f}" '
            parts.append(f'{place}viewBox="0 0 {of_chart} {height}">{content}')
            y += high + 8
        write(self._after())
        size = f'width="{_PAGE[0]}" height="{_PAGE[1]}" viewBox="0 0 {_PAGE[0]} {_PAGE[1]}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}">'
        return f"{head}{''.join(parts)}</svg>"

    def _docx(self) -> bytes:
        from docx import Document
        from docx.shared import Pt, RGBColor

        document = Document()
        document.core_properties.title = self.title
        section = document.sections[0]
        section.page_width, section.page_height = map(Pt, _PAGE)
        section.left_margin = section.right_margin = Pt(_MARGIN)
        section.top_margin = section.bottom_margin = Pt(_MARGIN - 10)

        def write(paragraphs: Iterator[_Text]) -> None:
            for text, size, colour, style in paragraphs:
                paragraph = document.add_paragraph(style=style)
                paragraph.paragraph_format.space_after = Pt(2)
                run = paragraph.add_run(_joined(text))
                run.font.size, run.font.name = Pt(size), "Arial"
                run.font.color.rgb = RGBColor.from_string(colour[1:])

        write(self._before())
        if self.chart is not None:
            width = Pt(_PICTURE * (_PAGE[0] - 2 * _MARGIN))
            shape = document.add_picture(io.BytesIO(chart_png(self.chart)), width=width)
            shape._inline.docPr.set("descr", self.caption)  # what a screen reader says
        write(self._after())
        buffer = io.BytesIO()
        document.save(buffer)
        return buffer.getvalue()


def _joined(text: str) -> str:
    """The text with its signs of per cent on the lines of their numbers."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")
