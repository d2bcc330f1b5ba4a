"""The key file: holders, scopes and expiry of bearer keys, and the caller that a key stands for.

The file has only the hashes of the keys.

One key a line: `NAME sha256:HEX holder=HOLDER scopes=SCOPE,SCOPE`, and if it expires
`expires=TIME`. `revoked=TIME` ends a key and leaves its line for the record.

A key has 256 random bits and cannot be guessed, so one round of SHA-256 is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self, get_args

from saga.calibration.adaptive.ledger_tables import COMMON

from saga.errors import Problem, UsageError
from saga.files.atomic import check_regular

if sys.platform != "win32":
    import fcntl

Scope = Literal["forecast", "record", "outcomes", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LINE = re.compile(rf"(?P<name>{_NAME.pattern})\s+sha256:(?P<digest>[0-9a-f]{{64}})(?P<rest>.*)")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_FIX = "Make one with `saga keys create NAME`"


@dataclass(frozen=True)
class Caller:
    """Who makes a call: the holder and the name of the key, and the key's scopes."""

    holder: str
    key: str | None
    scopes: tuple[Scope, ...]


# Without a key file every caller is the operator.
OPERATOR = Caller(COMMON, None, SCOPES)


@dataclass(frozen=True)
class BearerKey:
    """One key: who holds it, what it may do, and until when.

    Keys of one holder share one part of the ledger. `digest` is the SHA-256 of the key.
    """

    name: str
    digest: str = field(repr=False)
    holder: str
    scopes: tuple[Scope, ...] = SCOPES
    expires: datetime | None = None
    revoked: datetime | None = None

    def __post_init__(self) -> None:
        for text, what in ((self.name, "name of the key"), (self.holder, "holder of the key")):
            if not _NAME.fullmatch(text):
                raise UsageError(
                    f"The {what} cannot be written to the key file",
                    [
                        Problem(
                            "key-name",
                            "Not a name",
                            "Use 1 to 64 letters, digits, dots, dashes or underscores",
                        )
                    ],
                )
        if not self.scopes or not set(self.scopes) <= set(SCOPES):
            raise UsageError(
                "A key needs scopes",
                [Problem("key-scope", "Not a scope", f"Give one or more of {', '.join(SCOPES)}")],
            )

    @classmethod
    def parse(cls, line: str) -> Self:
        """The key of a line. Raises ValueError or UsageError if it is malformed."""
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError
        pairs = [entry.split("=", 1) for entry in match["rest"].split()]
        entries = dict(pairs)
        expires, revoked = entries.pop("expires", None), entries.pop("revoked", None)
        holder = entries.pop("holder", "")
        scopes = entries.pop("scopes", "").split(",")
        if entries or len({name for name, _ in pairs}) < len(pairs):
            raise ValueError
        return cls(
            match["name"],
            match["digest"],
            holder,
            tuple(scope for scope in SCOPES if scope in scopes) if set(scopes) <= {*SCOPES} else (),
            None if expires is None else _parse_time(expires),
            None if revoked is None else _parse_time(revoked),
        )

    @property
    def line(self) -> str:
        """The line of the key file."""
        entries = [f"{self.name} sha256:{self.digest}", f"holder={self.holder}"]
        entries.append(f"scopes={','.join(self.scopes)}")
        entries += [f"expires={self.expires.strftime(_TIME)}"] if self.expires else []
        entries += [f"revoked={self.revoked.strftime(_TIME)}"] if self.revoked else []
        return " ".join(entries)

    def status(self, now: datetime) -> Literal["active", "expired", "revoked"]:
        """Whether the key is accepted at this time."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "active"


def find_key(keys: Sequence[BearerKey], secret: str) -> BearerKey | None:
    """The entry of this key, or None.

    Every entry is compared, so the time does not reveal which one matched.
    """
    digest = _digest(secret)
    matches = [key for key in keys if hmac.compare_digest(digest, key.digest)]
    return matches[0] if matches else None


def new_key(
    name: str,
    *,
    holder: str | None = None,
    scopes: Sequence[Scope] = SCOPES,
    expires: datetime | None = None,
) -> tuple[str, BearerKey]:
    """Make a key: the key itself, which is stored nowhere, and its entry for the key file.

    Raises UsageError unless names are 1 to 64 letters, digits, dots, dashes or underscores, and if
    the holder is the common one, whom outcomes concern that move everybody's thresholds, unstated.
    """
    if name == COMMON and holder is None:
        fix = f"Add --holder {COMMON} if that is what you want, or take another name"
        message = f"Outcomes of the holder {COMMON} move the thresholds of all holders"
        raise UsageError("State the holder of this key", [Problem("key-common", message, fix)])
    secret = f"saga_{secrets.token_urlsafe(32)}"
    ordered = tuple(scope for scope in SCOPES if scope in scopes)
    return secret, BearerKey(name, _digest(secret), holder or name, ordered, expires)


def parse_keys(text: str) -> tuple[BearerKey, ...]:
    """The keys of a file's text. Blank lines and # lines are skipped.

    Raises UsageError if there is no key or a malformed line. The error names the line and never
    repeats its text.
    """
    keys: dict[str, BearerKey] = {}
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            key = BearerKey.parse(stripped)
        except (ValueError, UsageError):
            problems.append(Problem("key-line", f"Line {number} is not a key", _FIX))
            continue
        if key.name in keys:
            message = f"Line {number} repeats a name"
            problems.append(Problem("key-twice", message, "Give each key its own name"))
        if any(key.digest == other.digest for other in keys.values()):
            message = f"Line {number} repeats a hash, so that key would have two names"
            problems.append(Problem("key-hash-twice", message, "Keep one of the lines"))
        keys[key.name] = key
    if not keys and not problems:
        problems.append(Problem("key-none", "The file has no key", _FIX))
    if problems:
        raise UsageError("The key file is not valid", problems)
    return tuple(keys.values())


def read_keys(path: Path) -> tuple[BearerKey, ...]:
    """The keys of a file. Raises UsageError as `parse_keys`, or if the file cannot be read."""
    return parse_keys(read_key_text(path))


def read_key_text(path: Path) -> str:
    """The text of a key file. Raises UsageError if it cannot be read."""
    return _text_of(path, path.read_bytes)


def _text_of(path: Path, read: Callable[[], bytes]) -> str:
    """The text of the bytes of a key file, which an editor may begin with a mark of UTF-8."""
    try:
        check_regular(path)
        return read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "not UTF-8 text"
        raise UsageError(
            f"The key file {path} cannot be read",
            [Problem("key-file", why, "Give a readable UTF-8 file")],
        ) from None


def add_key(path: Path, key: BearerKey) -> None:
    """Append a key to the file, which is made if it is missing, readable by its owner only.

    Raises UsageError if the file has a key of this name or hash, or is not valid.
    """

    def append(text: str) -> str:
        if text.strip() and any(key.name == other.name for other in parse_keys(text)):
            raise UsageError(
                "The key file has a key of this name",
                [Problem("key-twice", "Each key has its own name", "Take another name")],
            )
        longer = f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{key.line}\n"
        parse_keys(longer)
        return longer

    _change(path, append)


def revoke_key(path: Path, name: str, now: datetime) -> BearerKey:
    """Mark a key as revoked; a service that uses the file refuses it within seconds.

    Raises UsageError if the file has no such key.
    """
    revoked: list[BearerKey] = []

    def mark(text: str) -> str:
        lines = text.split("\n")
        for key in parse_keys(text):
            if key.name == name:
                line = next(i for i, line in enumerate(lines) if line.split()[:1] == [name])
                revoked.append(key if key.revoked else replace(key, revoked=now))
                lines[line] = revoked[0].line
                return "\n".join(lines)
        fix = "`saga keys list --file FILE` shows the names"
        raise UsageError(
            "There is no key of this name", [Problem("key-unknown", "Not in the file", fix)]
        )

    _change(path, mark, create=False)
    return revoked[0]


def _change(path: Path, edit: Callable[[str], str], *, create: bool = True) -> None:
    """Change the file in place: a mount of a single file, as in a container, follows the change.

    A lock keeps other commands out from the reading to the end of the writing. A service that reads
    a half-written file keeps the keys that it has, and reads again.
    """
    flags = os.O_RDWR | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise UsageError(
            f"The key file {path} cannot be changed",
            [Problem("key-file", error.strerror or "", "Give a file that can be written")],
        ) from None
    with os.fdopen(descriptor, "r+b") as handle:
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_EX)
        text = edit(_text_of(path, handle.read))
        handle.seek(0)
        handle.write(text.encode())
        handle.truncate()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _parse_time(text: str) -> datetime:
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
