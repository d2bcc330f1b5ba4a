"""GluonTS, Darts and utilsforecast read a forecast table: run in an environment that has them.

Usage: python other_libraries.py TABLE.parquet
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

from saga import exchange


def main(path: str) -> None:
    """Convert the table to each format, read numbers with the library, and convert it back."""
    from utilsforecast.losses import quantile_loss

    table = pl.read_parquet(path)
    plain = table.select("person_id", "year", "mean", *exchange._quantiles(table))
    first: dict[str, Any] = plain.row(0, named=True)

    items = exchange.to_gluonts(table)
    assert items[0].item_id == first["person_id"]
    assert items[0].quantile(0.05)[0] == first["q05"]
    assert items[0].mean[0] == first["mean"]
    assert items[0].index[0].year == first["year"]
    assert_frame_equal(exchange.from_gluonts(items).select(plain.columns), plain)

    series = exchange.to_darts(table)
    one = series[first["person_id"]]
    assert one["earnings_q0.950"].first_value() == first["q95"]
    assert one.start_time().year == first["year"]
    assert one.freq_str == "YS-JAN"
    assert_frame_equal(exchange.from_darts(series).select(plain.columns), plain)

    long = exchange.to_long(table).with_columns(y=pl.col("SAGA-q-50") + 10)
    loss = quantile_loss(long, models={"SAGA": "SAGA-q-50"}, q=0.5)
    np.testing.assert_allclose(loss["SAGA"], 5.0)


if __name__ == "__main__":
    main(sys.argv[1])
