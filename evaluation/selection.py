"""Selection of baselines, the clairvoyant and tables by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from saga.evaluation.baselines import BASELINES
from saga.evaluation.contestants import Clairvoyant, LazyContestant
from saga.evaluation.protocol import Baseline
from saga.evaluation.scoring.gap import CLAIRVOYANT
from saga.register.oracle import Oracle, is_full

from saga.errors import Problem, UsageError
from saga.files.atomic import digest_json

TABLES = ("lifetimes", "placebos", "hindsight")  # each needs further paths
Notice = Callable[[str], None]


def select_baselines(names: Sequence[str], notice: Notice | None = None) -> list[Baseline]:
    """Unfitted baselines by name; `["all"]` means every baseline whose library is installed.

    `notice` receives a message about each baseline that "all" leaves out. Raises UsageError if a
    name is unknown or its library is not installed.
    """
    every = list(names) == ["all"]
    selected = list(BASELINES) if every else list(dict.fromkeys(names))
    unknown = [name for name in selected if name not in BASELINES]
    if unknown:
        fix = "Choose from " + ", ".join([*BASELINES, CLAIRVOYANT]) + ", or all."
        problem = Problem("baseline", f"{unknown[0]} is not a baseline", fix)
        raise UsageError("A baseline is unknown", [problem])
    baselines = []
    for name in selected:
        try:
            baselines.append(BASELINES[name]())
        except ModuleNotFoundError as error:
            if not every:
                problem = Problem(
                    "baseline",
                    f"{name} needs a library that is not installed: {error}",
                    "Install it, or leave the baseline out.",
                )
                raise UsageError("A baseline cannot run", [problem]) from error
            if notice:
                notice(f"{name} is left out: {error}")
    return baselines


def select_clairvoyant(
    names: Sequence[str], register: Path | None, workers: int = 1
) -> list[LazyContestant]:
    """The clairvoyant of `register`, if `names` contains it; otherwise an empty list.

    `["all"]` contains it if the register has the full process.

    Raises UsageError if it is named without a register, InputError if this code did not generate
    the register.
    """
    if CLAIRVOYANT in names and register is None:
        problem = Problem(
            "baseline",
            "the clairvoyant works with generated registers only",
            "Give the register's directory as the panel.",
        )
        raise UsageError("The clairvoyant needs a register", [problem])
    takes_part = CLAIRVOYANT in names or (
        list(names) == ["all"] and register is not None and is_full(register)
    )
    if not takes_part or register is None:
        return []
    oracle = Oracle.open(register, workers=workers)
    record = (register / "register.json").read_text(encoding="utf-8")
    key = digest_json([Clairvoyant.version, record])
    return [LazyContestant(CLAIRVOYANT, key, lambda: Clairvoyant(oracle))]


def select_tables(
    names: Sequence[str], *, has_futures: bool, notice: Notice | None = None
) -> set[str]:
    """The tables of TABLES to make; `["all"]` means all tables that can be made.

    Raises UsageError if a table is unknown, or if lifetimes are named without drawn futures.
    """
    every = list(names) == ["all"]
    unknown = [] if every else sorted(set(names) - {*TABLES, "accuracy"})
    if unknown:
        fix = f"Choose from accuracy (always made), {', '.join(TABLES)}, or all."
        problem = Problem("tables", f"{unknown[0]} is not a table", fix)
        raise UsageError("A table is unknown", [problem])
    selected = set(TABLES if every else names)
    if "lifetimes" in selected and not has_futures:
        message = "lifetimes need futures drawn after the last year that the bundle was trained on"
        if not every:
            fix = "Generate the register with --future-to and --future-draws."
            problem = Problem("tables", message, fix)
            raise UsageError("There are no lifetimes to compare with", [problem])
        selected.remove("lifetimes")
        if notice:
            notice(f"Left out: {message}.")
    return selected
