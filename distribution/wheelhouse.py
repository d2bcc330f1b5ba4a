"""Collects the wheels of SAGA and its dependencies for rooms without internet.

For each operating system it writes DIR/SYSTEM/ with the wheels, `requirements.txt` (exact versions
with hashes) and `SHA256SUMS`. Versions are those of requirements.lock; which packages a system
needs follows from the metadata of the installed ones, read for that system. torch may come from
an index of its own; no other package is looked for there. `make wheelhouse` adds the bill of
materials.

Usage: python distribution/wheelhouse.py DIR WHEEL_OF_SAGA ... [--torch-index URL] [SYSTEM ...]
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "3.11"
PROJECT, EVIDENCE = "saga-forecast", "saga-forecast-evidence"
# Needed on Windows alone, so not in the lock, which is resolved on Linux.
WINDOWS_PINS = {"colorama": "0.4.6", "tzdata": "2025.3", "win32-setctime": "1.2.0"}


@dataclass(frozen=True)
class System:
    """An operating system: extras of SAGA that work on it, platform tags, values of markers."""

    name: str
    extras: tuple[str, ...]
    platforms: tuple[str, ...]
    markers: dict[str, str]


SYSTEMS = {
    "linux": System(
        "linux",
        ("train", "serve", "jobs", "privacy"),
        ("linux_x86_64", "manylinux2014_x86_64", *(f"manylinux_2_{k}_x86_64" for k in range(35))),
        {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    ),
    "windows": System(  # the service limits the memory of its processes as Linux alone can
        "windows",
        ("train", "privacy"),
        ("win_amd64",),
        {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
    ),
}


def read_pins(lock: Path) -> dict[str, str]:
    """Name -> version of the lock."""
    lines = (line.strip() for line in lock.read_text(encoding="utf-8").splitlines())
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


def required(system: System, requirements: Sequence[Requirement]) -> set[str]:
    """Names of the distributions that the requirements need on a system, also indirectly."""
    needed: set[str] = set()
    waiting = [(requirement, frozenset[str]()) for requirement in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, of_extras = waiting.pop()
        if not _applies(requirement, of_extras, system):
            continue
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        needed.add(name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another system
            lines = []
        waiting += [(Requirement(line), extras) for line in lines]
    return needed


def _applies(requirement: Requirement, extras: frozenset[str], system: System) -> bool:
    if requirement.marker is None:
        return True
    common = {**system.markers, "python_version": PYTHON, "python_full_version": f"{PYTHON}.0",
              "platform_machine": "x86_64", "implementation_name": "cpython",
              "platform_python_implementation": "CPython"}  # fmt: skip
    return any(requirement.marker.evaluate({**common, "extra": extra}) for extra in extras or {""})


def pinned(system: System, names: set[str], pins: dict[str, str]) -> list[str]:
    """`name==version` of the distributions. SystemExit if one has no version."""
    known = {**WINDOWS_PINS, **pins} if system.name == "windows" else pins
    missing = sorted(names - set(known))
    if missing:
        raise SystemExit(f"requirements.lock has no version of {', '.join(missing)}: make lock")
    return [f"{name}=={known[name]}" for name in sorted(names)]


def download(
    system: System, requirements: Sequence[str], folder: Path, index: str | None = None
) -> None:
    """Download the wheels of the requirements for a system, from `index` alone if there is one."""
    tags = [word for platform in system.platforms for word in ("--platform", platform)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
         "--only-binary", ":all:", "--python-version", PYTHON, "--implementation", "cp",
         *tags, *(["--index-url", index] if index else []),
         "--dest", str(folder), *requirements],
        check=True,
    )  # fmt: skip


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS, and requirements.txt for `pip install --require-hashes`."""
    sums = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.whl"))
    }
    lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    requirements = [
        f"{canonicalize_name(name.split('-')[0])}=={name.split('-')[1]} --hash=sha256:{digest}\n"
        for name, digest in sums.items()
    ]
    (folder / "requirements.txt").write_text("".join(requirements), encoding="utf-8")


def project_requirements(system: System) -> list[Requirement]:
    """What SAGA itself and its evidence need on a system, with the extras that work there."""
    extras = frozenset(system.extras)
    lines = [*(metadata.requires(PROJECT) or []), *(metadata.requires(EVIDENCE) or [])]
    return [
        requirement
        for requirement in map(Requirement, lines)
        if canonicalize_name(requirement.name) not in (PROJECT, EVIDENCE)
        and _applies(requirement, extras | {""}, system)
    ]


def collect(
    systems: Sequence[System], own: Sequence[Path], out: Path, torch_index: str | None = None
) -> None:
    """Write the wheelhouse of each system; `own` are the wheels of SAGA."""
    pins = read_pins(ROOT / "requirements.lock")
    for system in systems:
        direct = project_requirements(system)
        for requirement in direct:
            requirement.marker = None
        folder = out / system.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        names = required(system, direct)
        # The build for processors; that of PyPI for Windows is one.
        index = torch_index if system.name == "linux" else None
        download(system, pinned(system, names & {"torch"}, pins), folder, index)
        download(system, pinned(system, names - {"torch"}, pins), folder)
        for wheel in own:
            shutil.copy2(wheel, folder)
        write_checksums(folder)
        wheels = list(folder.glob("*.whl"))
        megabytes = sum(path.stat().st_size for path in wheels) / 1e6
        sys.stdout.write(f"{folder}: {len(wheels)} wheels, {megabytes:,.0f} MB\n")


def main() -> None:
    """Write the wheelhouses of the systems on the command line, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("words", nargs="*", metavar="WHEEL_OR_SYSTEM", help=", ".join(SYSTEMS))
    parser.add_argument("--torch-index", metavar="URL", help="where pip looks for torch of Linux")
    arguments = parser.parse_intermixed_args()
    own = [Path(word) for word in arguments.words if word.endswith(".whl")]
    names = [word for word in arguments.words if not word.endswith(".whl")]
    unknown = sorted(set(names) - set(SYSTEMS))
    if unknown:
        parser.error(f"no system {', '.join(unknown)}: choose from {', '.join(SYSTEMS)}")
    systems = [SYSTEMS[name] for name in names or SYSTEMS]
    collect(systems, own, arguments.out, arguments.torch_index)


if __name__ == "__main__":
    main()
