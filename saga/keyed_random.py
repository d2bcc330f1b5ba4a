"""Keyed random numbers: each depends on a key alone, not on the order of the draws.

A key is a sequence of ints and strings, for example `("path", seed, person_id, k)`. Its BLAKE2b
digest is the key of a counter-based Philox stream (Salmon et al. 2011). The first n numbers do not
depend on n, on other persons, on the batch or on the worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Part = int | np.integer[Any] | str
Identity = Part | tuple[Part, ...]


def encode(*key: Part) -> bytes:
    """The key as bytes; different keys give different bytes.

    ("ab", "c"), ("a", "bc") and ("abc",) differ, and so do 1 and "1". Each part is a type letter,
    its length in bytes and its bytes. Raises TypeError for parts other than ints and strings.
    """
    pieces = []
    for part in key:
        if isinstance(part, str):
            kind, body = b"s", part.encode()
        elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
            kind, body = b"i", b"%d" % part
        else:
            raise TypeError(f"a key consists of ints and strings, not {type(part).__name__}")
        pieces.append(b"%s%d:%s" % (kind, len(body), body))
    return b"".join(pieces)


def _unit(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    # Midpoints of 2**52 equal intervals: 0 and 1 cannot occur, and each is exact in float64.
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _stream(n: int, key: bytes) -> NDArray[np.float64]:
    digest = hashlib.blake2b(key, digest_size=16).digest()
    return _unit(np.random.Philox(key=np.frombuffer(digest, "<u8")).random_raw(n))


def uniforms(n: int, *key: Part) -> NDArray[np.float64]:
    """The first `n` numbers of the key's stream, shape (n,), strictly inside (0, 1)."""
    return _stream(n, encode(*key))


def uniform_rows(n: int, ids: Iterable[Identity], *key: Part) -> NDArray[np.float64]:
    """One stream for each id, shape (len(ids), n): that of the key followed by the id."""
    prefix = encode(*key)
    rows = [_stream(n, prefix + _encode_identity(identity)) for identity in ids]
    return np.stack(rows) if rows else np.empty((0, n))


def uniform_each(ids: Iterable[Identity], *key: Part) -> NDArray[np.float64]:
    """One number for each id, shape (len(ids),), strictly inside (0, 1).

    It is a hash of the key and the id, and costs about a microsecond. An id is an int, a string or
    a tuple of them.
    """
    base = hashlib.blake2b(encode(*key), digest_size=8)
    digests = []
    for identity in ids:
        hashed = base.copy()
        hashed.update(_encode_identity(identity))
        digests.append(hashed.digest())
    return _unit(np.frombuffer(b"".join(digests), "<u8"))


def sample_rows(ids: Sequence[Identity], count: int | None, *key: Part) -> NDArray[np.int64]:
    """Ascending positions of `count` random ids (None: all).

    These are the ids with the lowest numbers of `uniform_each`. The number of an id does not depend
    on the other ids.
    """
    order = np.argsort(uniform_each(ids, *key), kind="stable")
    return np.sort(order[:count])


def sample_persons(persons: Sequence[str], count: int | None, *key: Part) -> list[str]:
    """`count` of the persons (None: all) by `sample_rows`, sorted."""
    return sorted(persons[i] for i in sample_rows(persons, count, *key))


def _encode_identity(identity: Identity) -> bytes:
    return encode(*identity) if isinstance(identity, tuple) else encode(identity)
