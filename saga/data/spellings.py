"""Spellings of columns, ids and codes, which programs change: which of them mean the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

import polars as pl

from saga.errors import InputError

_DIGITS = "\u0660\u06f0\u0966\u09e6\u0e50"  # each a zero: Arabic, Persian, Hindi, Bengali, Thai
_ALIKE = {  # letters of Cyrillic and Greek that look like those of Latin; digits of other scripts
    **dict(zip("АВЕКМНОРСТХаеорсху", "ABEKMHOPCTXaeopcxy", strict=True)),  # noqa: RUF001
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),  # noqa: RUF001
    **{chr(ord(zero) + digit): str(digit) for zero in _DIGITS for digit in range(10)},
}
_SPELLINGS = (  # of an id, by other programs: patterns and what they are without the difference
    (r"\s+", " "),
    (r"^b'(.*)'$", "${1}"),  # bytes of Python
    (r"^(\d{6}|\d{8})[-+](\d{4})$", "${1}${2}"),  # a Swedish personal identity number
    (r"^(?:1[89]|20)(\d\d(?:0[1-9]|1[0-2])\d{6})$", "${1}"),  # the same with its century
    (r"^\{(.*)\}$", "${1}"),
    (r"^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})$", "$1$2$3$4$5"),
    (r"^=?[\"'\u2019](.*?)[\"'\u2019]?$", "${1}"),  # Excel's signs of a text
    (r"^([+-]?)[.,](\d+)$", "${1}0.${2}"),
    (r"^true$", "1"),
    (r"^false$", "0"),
)
_THOUSANDS = r"^\d{1,3}([,'\u2019\s_]\d{2,3})*[,'\u2019\s_]\d{3}(\.0*)?$"  # also of India: 1,00,000
_DOTS = r"^\d{1,3}(\.\d{3})+(,0*)?$"
_ONE_CODE = "Write codes the same way in all files, or name all spellings in the mapping."
MISFIT = "the mapping does not fit the source"


def find_columns(columns: Iterable[str], names: Sequence[str], *, exact: bool = True) -> list[str]:
    """The source's spelling (one of `names`) of each of `columns` that it has.

    Raises InputError if there are several, and none of them is `exact` or that does not count.
    """
    lower, result = _by_lower_case(tuple(names)), list[str]()
    for name in columns:
        if "*" in name:
            spellings = [
                spelling
                for key, same in lower.items()
                if fnmatchcase(key, name.lower())
                for spelling in same
            ]
        else:
            spellings = [name] if exact and name in names else lower.get(name.lower(), [])
        if len(spellings) > 1:
            raise InputError.of(
                MISFIT,
                "ambiguous-column",
                f"{name} may be {' or '.join(spellings)}",
                "Keep one of them, or write the exact spelling in a mapping.",
            )
        result += spellings
    return list(dict.fromkeys(result))


@lru_cache(maxsize=64)
def _by_lower_case(names: tuple[str, ...]) -> dict[str, list[str]]:
    lower: dict[str, list[str]] = {}
    for name in names:
        lower.setdefault(name.strip().lower(), []).append(name)
    return lower


def folded(name: str) -> str:
    """A name without what may differ between files."""
    return name.strip().lower()


def first_spellings(names: Sequence[str], spellings: dict[str, list[str]]) -> dict[str, str]:
    """Names of a file -> how earlier files spell them; adds to the known spellings.

    A name that may be one of two keeps its spelling.
    """
    renamed, times = {}, Counter(map(folded, names))
    for name in names:
        known = spellings.setdefault(folded(name), [])
        if len(known) == 1 and times[folded(name)] == 1:
            renamed[name] = known[0]
        elif name not in known:
            known.append(name)
    return renamed


def require_one_name(columns: Sequence[str]) -> None:
    """Raise InputError for columns that were chosen, in several files, with two spellings."""
    first: dict[str, str] = {}
    for name in columns:
        if (other := first.setdefault(folded(name), name)) != name:
            raise InputError.of(
                "a column has two spellings",
                "ambiguous-column",
                f"{name} of one file may be {other} of another",
                "Write the names of columns the same way in all files.",
                column=name,
            )


def require_one_spelling(
    texts: pl.DataFrame,
    by_file: Callable[[], Iterable[tuple[object, pl.Series]]],
    column: str = "person_id",
) -> None:
    """Raise InputError for ids or codes that differ between files by what programs change.

    Programs that store ids as numbers lose zeros before and after them, or add `.0`, so `007`, `7`
    and `7.0` of several files may be one person. So may `1.50` and `1.5`, `1e5` and `100000`,
    `1,001`, `1.001` and `1001`, `a7` and `A7`, `true` and `1`. In one file they are two.

    Args:
        texts: The distinct texts as they are `written` in files, and as they are `read`: spellings
            that a mapping makes one are no two.
        by_file: The texts of each file as written, or of parts of it; it is only asked if there
            may be two spellings.
        column: The column of the panel.
    """
    key = _unadorned(texts["written"]).str.to_lowercase()
    for pattern, plain in _SPELLINGS:
        key = key.str.replace_all(pattern, plain)
    number = key.str.replace(r"\.0*$", "").str.replace_all(r"[,'\u2019\s_]", "")
    key = number.zip_with(key.str.contains(_THOUSANDS), key)
    key = key.str.replace_all(r"([-_/: ])0+(\d)", "${1}${2}")  # 12-03 of a household's member
    power = key.str.extract(r"^(\d+(?:\.\d+)?e[+-]?\d{1,2})$").cast(pl.Float64).cast(pl.String)
    key = power.zip_with(power.is_not_null(), key)
    _require_one(texts.with_columns(key=_without_zeros(key)), by_file, column)
    has_dots = key.str.contains(_DOTS)
    if has_dots.any():  # 1.500 may be 1.5, as above, or 1500
        key = (
            key.str.replace(r",0*$", "")
            .str.replace_all(".", "", literal=True)
            .zip_with(has_dots, key)
        )
        _require_one(texts.with_columns(key=_without_zeros(key)), by_file, column)


def require_unlike(ids: pl.Series) -> None:
    """Raise InputError for ids of which only the computer sees that they are two.

    They differ by letters or digits of other scripts, kinds of blanks and dashes, or by whether an
    accent stands apart.
    """
    if not ids.str.contains(r"[^\x00-\x7F]").any():
        return
    table = pl.DataFrame({"written": ids.drop_nulls().unique()})
    table = table.with_columns(key=_unadorned(table["written"]))
    alike = table.filter(pl.col("key").is_duplicated()).sort("key", "written")
    if alike.height:
        raise InputError.of(
            "ids of persons look alike",
            "person-id",
            "two ids differ by characters alone that look alike (letters or digits of another "
            "script, kinds of blanks or dashes, an accent apart), so they may be one person",
            "Write ids the same way in all rows.",
            column="person_id",
            person_id=alike["written"][0],
            count=alike["key"].n_unique(),
        )


def _unadorned(texts: pl.Series) -> pl.Series:
    """Texts in the letters and digits of Latin, where those of other scripts look like them."""
    plain = texts.str.normalize("NFKC").str.replace_all(r"\p{Cf}", "")
    plain = plain.str.replace_all(r"\p{Pd}|\u2212", "-")
    return plain.str.replace_many(list(_ALIKE), list(_ALIKE.values()))


def _without_zeros(key: pl.Series) -> pl.Series:
    """Whole numbers and decimals without zeros before and after them."""
    key = key.str.replace(r"^\+?(-?\d+)(?:[.,](\d*?)0*)?$", "${1}.${2}")
    return key.str.strip_chars_start("0")


def _require_one(
    table: pl.DataFrame, by_file: Callable[[], Iterable[tuple[object, pl.Series]]], column: str
) -> None:
    """Raise InputError for texts of one `key` that differ between files."""
    several = table.filter(pl.col("read").n_unique().over("key") > 1)
    if several.is_empty():
        return
    seen: dict[tuple[object, str], set[str]] = {}
    written = several.select("written", "key").unique()
    for file, of_file in by_file():
        for text, code in written.filter(pl.col("written").is_in(of_file.implode())).iter_rows():
            seen.setdefault((file, code), set()).add(text)
    distinct = {key for (_, key), spellings in seen.items() if len(spellings) > 1}
    unclear = several.filter(~pl.col("key").is_in(list(distinct))).sort("key", "written")
    if unclear.is_empty():
        return
    (file, first), *others = (
        (file, spellings) for (file, code), spellings in seen.items() if code == unclear["key"][0]
    )
    other = next(file for file, spellings in others if spellings != first)
    is_person = column == "person_id"
    what, whose, meant, fix = (
        ("an id", "ids of persons", "person", "Write ids the same way in all files, as text.")
        if is_person
        else ("a code", f"codes of {column}", "code", _ONE_CODE)
    )
    raise InputError.of(
        f"the {whose} differ between files",
        "person-id" if is_person else "code-spelling",
        f"{what} of {file} is written otherwise in {other} (leading zeros, 1.50, an exponent, true "
        "for 1, capital letters, other codes of the same letters, signs of numbers), so it may be "
        f"one {meant}",
        fix,
        column=column,
        person_id=unclear["written"][0] if is_person else None,
        count=unclear["key"].n_unique(),
    )
