"""Hostile bodies: small to send, large to decode, or wrong in one of many ways."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from saga.api.codecs import ARROW_STREAM, JSON, PARQUET

from tests.encoded import encoded

MB = 2**20


_parquet = partial(encoded, compression="zstd")
_stream = partial(encoded, kind="ipc_stream", compression="zstd")


def table_bombs() -> Iterator[tuple[str, str, bytes]]:
    """Name, media type and bytes of tables that unfold to much more than they are."""
    for size in (1, 5, 20, 100):
        frame = pl.DataFrame({"person_id": ["x" * (size * MB)], "year": [2020], "earnings": [1.0]})
        yield f"id of {size} MB, Parquet", PARQUET, _parquet(frame)
        yield f"id of {size} MB, Arrow", ARROW_STREAM, _stream(frame)
    repeated = pa.DictionaryArray.from_arrays(
        pa.array([0] * 90_000, pa.int32()), pa.array(["y" * MB])
    )
    dictionary = pa.table({"person_id": repeated, "year": pa.array([2020] * 90_000)})
    buffer = io.BytesIO()
    pq.write_table(dictionary, buffer, compression="zstd")
    yield "dictionary of 90 GB, Parquet", PARQUET, buffer.getvalue()
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, dictionary.schema) as writer:
        writer.write_table(dictionary)
    yield "dictionary of 90 GB, Arrow", ARROW_STREAM, buffer.getvalue()
    zeros = pl.DataFrame({"earnings": pl.zeros(100_000_000, dtype=pl.Float64, eager=True)})
    yield "zstd of 800 MB, Parquet", PARQUET, _parquet(zeros)
    yield "zstd of 800 MB, Arrow", ARROW_STREAM, _stream(zeros)
    columns = pl.DataFrame({f"column{i}": [1.0] for i in range(20_000)})
    yield "20,000 columns", PARQUET, _parquet(columns)
    frame = pl.DataFrame({"person_id": ["x" * (20 * MB)], "year": [2020], "earnings": [1.0]})
    yield "a size in the footer that is not true", PARQUET, _with_small_sizes(_parquet(frame))


def _with_small_sizes(content: bytes) -> bytes:
    """The Parquet file with sizes in its footer that say a few bytes instead of 20 MB.

    Sizes are varints of 4 bytes; a varint of 4 bytes that says 1 has the same length.
    """
    footer = int.from_bytes(content[-8:-4], "little") + 8
    head, tail = content[:-footer], content[-footer:]
    for size in range(20 * MB, 20 * MB + 400):
        varint, value = bytearray(), size << 1
        while value:
            varint.append((value & 0x7F) | (0x80 if value >> 7 else 0))
            value >>= 7
        tail = tail.replace(bytes(varint), b"\x82\x80\x80\x80\x00"[-len(varint) :])
    return head + tail


def json_bombs() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of JSON that costs much to decode or to refuse."""
    yield "10^6 unknown keys", b"{" + b",".join(b'"k%d":1' % i for i in range(10**6)) + b"}"
    yield "32 MB of []", b"[" + b"[]," * (10 * MB) + b"1]"
    yield "deep nesting", b"[" * 10**6
    yield (
        "100,000 keys in a row",
        json.dumps(
            {"persons": [{"person_id": "A", "history": [{f"k{i}": 1 for i in range(100_000)}]}]}
        ).encode(),
    )
    yield "a number of 10^6 digits", b'{"persons":' + b"9" * 10**6 + b"}"
    yield "a text of 30 MB", b'{"persons":"' + b"x" * (30 * MB) + b'"}'


def wrong_bodies(valid: dict[str, Any], n: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Media type and bytes of `n` bodies, each a valid one with one or more random changes."""
    rng = random.Random(seed)
    texts: list[Any] = [
        None, True, [], {}, "", "x", -1, 1e308, 10**30, 0.5, "\x00", "../../etc/passwd", "é" * 70,
        [[]], [{}], {"a": {"b": []}}, "1984", float("inf"), "NaN", 2**63, -(2**31) - 1,
    ]  # fmt: skip
    for i in range(n):
        body = json.loads(json.dumps(valid))
        for _ in range(rng.randint(1, 3)):
            _change(rng, body, texts)
        content = json.dumps(body).encode()
        match i % 8:
            case 5:
                cut = rng.randrange(len(content))
                content = content[:cut] + rng.randbytes(3) + content[cut + 3 :]
            case 6:
                content = content[: rng.randrange(len(content))]
            case 7:
                content = rng.choice([PARQUET, ARROW_STREAM]).encode() + rng.randbytes(200)
                yield rng.choice([PARQUET, ARROW_STREAM]), content
                continue
        yield JSON, content


def damaged_tables(n: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Media type and bytes of `n` tables with a few wrong bytes."""
    rng = random.Random(seed)
    frame = pl.DataFrame(
        {
            "person_id": ["A", "A", "B"],
            "year": [2019, 2020, 2020],
            "birth_year": [1980, 1980, 1981],
            "earnings": [1e5, 2e5, None],
        }
    )
    sources = [(PARQUET, _parquet(frame)), (ARROW_STREAM, _stream(frame))]
    for _ in range(n):
        kind, content = rng.choice(sources)
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        yield kind, bytes(damaged)


def _change(rng: random.Random, body: Any, values: list[Any]) -> None:
    """Replace, remove or add one entry at a random depth."""
    place = body
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        deeper = place[key]
        if isinstance(deeper, dict | list) and deeper and rng.random() < 0.7:
            place = deeper
            continue
        action = rng.random()
        if action < 0.6:
            place[key] = rng.choice(values)
        elif action < 0.8:
            del place[key]
        elif isinstance(place, dict):
            place[rng.choice(["x", "persons", "year", "earnings", "seed"])] = rng.choice(values)
        else:
            place.append(rng.choice(values))
        return
