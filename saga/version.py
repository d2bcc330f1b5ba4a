"""The version of the installed code."""

from __future__ import annotations

from importlib import metadata


def current_version() -> str:
    """Version of the installed distribution; "0+source" if the code runs without one."""
    try:
        return metadata.version("saga-forecast")
    except metadata.PackageNotFoundError:
        return "0+source"
