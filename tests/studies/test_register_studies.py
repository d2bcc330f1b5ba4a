"""The study of mechanisms: targets without a value count as lost."""

from __future__ import annotations

import polars as pl

from studies.register_mechanisms import compare


def test_a_target_that_holds_only_with_the_mechanism_is_lost() -> None:
    columns = ["key", "value", "se", "holds", "enforced"]
    full = [
        ("small", 1.0, 0.1, True, True),
        ("exact", 1.0, 0.0, True, True),
        ("unmeasured", 1.0, 0.1, True, True),
        ("new", None, None, None, True),
    ]
    reduced = [
        ("small", 1.5, 0.1, False, True),
        ("exact", 2.0, 0.0, False, True),
        ("unmeasured", None, None, None, True),
        ("new", 1.0, 0.1, True, True),
    ]
    tables = (pl.DataFrame(rows, schema=columns, orient="row") for rows in (full, reduced))
    row = compare("leaving_work", *tables)
    assert row == ("leaving work", "3", "0", "1", "`small`", "1.0000", "1.5000", "+4")
