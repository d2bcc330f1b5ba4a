"""Draws docs/pictures/architecture.svg.

The picture shows the rooms of `saga` on the layers that the import contract in pyproject.toml
declares; an arrow goes from a room to a room that it imports. Imports that a longer way implies are
left out. `--check` exits 1 if the picture is not what the code gives. `make lint` makes the folder
build/names.

Usage: PYTHONPATH=build/names python docs/pictures/architecture.py [--check]
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/pictures/architecture.svg"
CONTRACT = "Layers"
WIDTH, ROW, HEIGHT = 900, 84, 42  # of the picture, of a layer, of a room; pixels
MARGIN, GAP = 20, 130
SWEEPS = 8  # times that the rooms of all rows are put in order


def layers() -> list[list[str]]:
    """Names of rooms, top layer first, as the contract declares them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in contracts["tool"]["importlinter"]["contracts"]:
        if contract["name"].startswith(CONTRACT):
            return [
                [room.strip("() ") for room in layer.split("|")] for layer in contract["layers"]
            ]
    raise SystemExit(f"pyproject.toml has no import contract {CONTRACT!r}")


def room_of(module: str) -> str:
    """The room of a module: the part of its name after `saga.`."""
    return module.split(".")[1] if "." in module else ""


def imports_between(rooms: set[str]) -> set[tuple[str, str]]:
    """Pairs (room, imported room)."""
    graph = grimp.build_graph("saga", exclude_type_checking_imports=True, cache_dir=None)
    pairs = {
        (room_of(module), room_of(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    return {(a, b) for a, b in pairs if a != b and a in rooms and b in rooms}


def draw() -> str:
    """The picture as SVG text; the same code gives the same bytes."""
    rows = layers()
    arrows = direct(imports_between({room for row in rows for room in row}))
    boxes = place(rows, arrows)
    level = {room: i for i, row in enumerate(rows) for room in row}
    height = 2 * MARGIN + (len(rows) - 1) * ROW + HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="14" role="img">',
        "<title>Rooms of saga and the imports between them</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#567"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for a, b in sorted(arrows):
        upwards = level[b] <= level[a]
        parts.append(arrow(boxes[a], boxes[b], "#c33" if upwards else "#8aa0b4"))
    for room, (left, top, width) in boxes.items():
        x = left + width / 2
        parts += [
            f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}" rx="7" '
            'fill="#eaf1f8" stroke="#123a66"/>',
            f'<text x="{x:.1f}" y="{top + 27}" text-anchor="middle" fill="#123a66">'
            f"{escape(room)}</text>",
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


Box = tuple[float, float, float]  # left, top, width


def place(rows: list[list[str]], arrows: set[tuple[str, str]]) -> dict[str, Box]:
    """The box of each room; in a row, rooms stand in the order of the rooms that they import.

    A row that is too wide has smaller gaps.
    """
    boxes = place_in_order(rows)
    for _ in range(SWEEPS):
        centre = {room: left + width / 2 for room, (left, _, width) in boxes.items()}

        def mean_neighbour(room: str, centre: dict[str, float] = centre) -> float:
            joined = [centre[b if a == room else a] for a, b in arrows if room in (a, b)]
            return sum(joined) / len(joined) if joined else centre[room]

        boxes = place_in_order([sorted(row, key=mean_neighbour) for row in rows])
    return boxes


def place_in_order(rows: list[list[str]]) -> dict[str, Box]:
    """The box of each room, in the given order, centred in its row."""
    boxes: dict[str, Box] = {}
    for i, row in enumerate(rows):
        widths = [max(84.0, 30 + 8.6 * len(room)) for room in row]
        free = WIDTH - 2 * MARGIN - sum(widths)
        gap = min(GAP, free / max(1, len(row) - 1))
        left = (WIDTH - sum(widths) - gap * (len(row) - 1)) / 2
        for room, width in zip(row, widths, strict=True):
            boxes[room] = (left, MARGIN + i * ROW, width)
            left += width + gap
    return boxes


def direct(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The imports that no longer way through other rooms implies; the picture shows only these."""
    below: dict[str, set[str]] = {}
    for a, b in pairs:
        below.setdefault(a, set()).add(b)

    def reachable(room: str, target: str, seen: set[str]) -> bool:
        for other in below.get(room, set()) - seen:
            seen.add(other)
            if other == target or reachable(other, target, seen):
                return True
        return False

    return {
        (a, b)
        for a, b in pairs
        if not any(reachable(other, b, {a, other}) for other in below[a] - {b})
    }


def arrow(start: Box, end: Box, colour: str) -> str:
    """A line from the lower edge of one box to the upper edge of another."""
    x1, y1 = start[0] + start[2] / 2, start[1] + HEIGHT
    x2, y2 = end[0] + end[2] / 2, end[1]
    bend = (y2 - y1) / 2
    return (
        f'<path d="M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} '
        f'{x2:.1f} {y2:.1f}" fill="none" stroke="{colour}" marker-end="url(#head)"/>'
    )


def main() -> None:
    """Write the picture, or compare it."""
    text = draw()
    if sys.argv[1:] != ["--check"]:
        PICTURE.write_text(text, encoding="utf-8")
    elif not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PICTURE.relative_to(ROOT)} is stale: see the usage of {Path(__file__).name}")


if __name__ == "__main__":
    main()
