"""Keyed randomness: every random number is a function of a name, never of the order in which it was asked for.

A key is a sequence of ints and strings, for example `("path", seed, person_id, k)`. Its BLAKE2b digest is the key of a
Philox counter-based stream (Salmon et al. 2011), so the first n numbers do not depend on n, other persons, the batch or the worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Part = int | str
Identity = Part | tuple[Part, ...]


def encode(*key: Part) -> bytes:
    """The key as bytes, unambiguously: ("ab", "c"), ("a", "bc"), ("abc",), and 1 and "1", all differ.

    Each part is a type letter, its length in bytes and its bytes. Raises TypeError for anything but ints and strings.
    """
    pieces = []
    for part in key:
        if isinstance(part, str):
            kind, body = b"s", part.encode()
        elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
            kind, body = b"i", b"%d" % part
        else:
            raise TypeError(f"a key holds ints and strings, not {type(part).__name__}")
        pieces.append(b"%s%d:%s" % (kind, len(body), body))
    return b"".join(pieces)


def _unit(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    # The middle of one of 2**52 equal cells: 0 and 1 cannot occur, and every value is exact in float64.
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _stream(n: int, name: bytes) -> NDArray[np.float64]:
    digest = hashlib.blake2b(name, digest_size=16).digest()
    return _unit(np.random.Philox(key=np.frombuffer(digest, "<u8")).random_raw(n))


def uniforms(n: int, *key: Part) -> NDArray[np.float64]:
    """The first `n` numbers, shape (n,), strictly inside (0, 1), of the stream that `key` names."""
    return _stream(n, encode(*key))


def uniform_rows(n: int, ids: Iterable[Identity], *key: Part) -> NDArray[np.float64]:
    """One stream an id, shape (len(ids), n): row i is `uniforms(n, *key, *ids[i])`."""
    prefix = encode(*key)
    rows = [_stream(n, prefix + _encode_identity(identity)) for identity in ids]
    return np.stack(rows) if rows else np.empty((0, n))


def uniform_each(ids: Iterable[Identity], *key: Part) -> NDArray[np.float64]:
    """One number an id, shape (len(ids),), strictly inside (0, 1): a hash, so it costs about a microsecond an id.

    It depends on the key and on that id alone. An id is an int, a string or a tuple of them.
    """
    base = hashlib.blake2b(encode(*key), digest_size=8)
    digests = []
    for identity in ids:
        hashed = base.copy()
        hashed.update(_encode_identity(identity))
        digests.append(hashed.digest())
    return _unit(np.frombuffer(b"".join(digests), "<u8"))


def sample_rows(ids: Sequence[Identity], count: int | None, *key: Part) -> NDArray[np.int64]:
    """Ascending positions of `count` of the ids (None: all), the same ones whoever else is there.

    These are the ids with the lowest numbers of `uniform_each`.
    """
    order = np.argsort(uniform_each(ids, *key), kind="stable")
    return np.sort(order[:count])


def sample_persons(persons: Sequence[str], count: int | None, *key: Part) -> list[str]:
    """`count` of the persons (None: all) by `sample_rows`, sorted."""
    return sorted(persons[i] for i in sample_rows(persons, count, *key))


def _encode_identity(identity: Identity) -> bytes:
    return encode(*identity) if isinstance(identity, tuple) else encode(identity)
