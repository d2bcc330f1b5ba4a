"""`saga audit`: all attacks on a bundle, the canaries, and the verdict in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from saga.evaluation.audit.audit_signals import Queries
from saga.evaluation.audit.bundle_scan import Finding, scan_bundle
from saga.evaluation.audit.canaries import Canary, plant_canaries
from saga.evaluation.audit.membership import Result, attack_numbers, judge, pooled
from saga.evaluation.audit.record_inference import (
    Difference,
    extract_rare_codes,
    extract_top_earnings,
    infer_attributes,
    top_earners,
)
from saga.evaluation.audit.shadow_models import SHARES, Recipe, train_shadows
from saga.training.harness import RunFolder

from saga.arrays import Bools
from saga.bundle import Bundle, write_bundle
from saga.data.origins import cut
from saga.data.panel import Panel
from saga.data.split import persons_of, shares_of, units_of
from saga.errors import InputError, Problem, UsageError
from saga.files.atomic import commit_json, new_files
from saga.files.bundle_folder import AUDIT
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.pages.layout import render_page, write_page
from saga.schema import CATEGORICAL
from saga.version import current_version

PAGE = "audit.html"
_HEADING = "## Audit"
# An area below .55 leaves an attacker who guesses "member" or not right in at most 53 to 54 of 100
# cases (of normal scores), where a coin is right in 50; above it the leak is called one.
LARGEST_AREA = 0.55
# True positives among 1 % false ones: a guess has 1 %, and three times that would let an attacker
# be right of three in four persons whom he names, where members and others are equally many.
LARGEST_RATE = 0.03
RARE_PERSONS, LONG_SPELL = 50, 5  # persons who have a rare code; years without earnings in a row
# Some fifty intervals are computed: with two standard errors one would be beyond by chance.
_CERTAIN = 3.0


@dataclass(frozen=True)
class AuditOptions:
    """How an audit is made.

    Attributes:
        shadows: Number of shadow models.
        persons: Largest number of persons of the panel that take part, chosen by key; None: all.
        source: Bundle that training started from; None: the prior, if the bundle says so.
        seed: Key of the shadows, queries and intervals.
        canaries: Whether leaks are planted in copies.
    """

    shadows: int = 16
    persons: int | None = None
    source: Path | None = None
    seed: int = 0
    canaries: bool = True


def audit_bundle(
    bundle: Bundle,
    panel: Panel,
    folder: Path,
    options: AuditOptions = AuditOptions(),
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Attack a bundle; the figures as plain values, for audit.json.

    Args:
        bundle: The bundle.
        panel: The panel on which it was trained, with the salt of its split.
        folder: Where shadows and scores are kept; an interrupted audit continues from it.
        options: Numbers of shadows and persons.
        report: Receives a line of text after each step.

    Raises:
        InputError: If members or persons who took no part are too few.
        UsageError: If the panel is not split as the bundle was, or the folder has another audit.
    """
    panel = cut(bundle.salted(panel), bundle.training_records.last_year)
    if options.persons is not None:
        panel = panel.only(sample_persons(panel.persons(), options.persons, "audit", options.seed))
    persons = np.array(panel.persons())
    shares = shares_of(bundle.split)
    is_member, is_other, calibrates = (
        np.isin(persons, persons_of(panel, part, shares))
        for part in ("train", "test", "calibration")
    )
    if min(is_member.sum(), is_other.sum()) < 30:
        fix = "Give the panel of the training, and more persons with --persons."
        few = Problem("too-few-persons", "Fewer than 30 members or test persons", fix)
        raise InputError("There is nobody to compare.", [few])
    run = RunFolder(
        folder,
        {
            "bundle": bundle.digest,
            "panel": panel.digest,
            "seed": options.seed,
            "persons": len(persons),
            "code": current_version(),
        },
    )
    if run.differing_settings():
        run.begin()
    recipe = Recipe(bundle, round(SHARES["train"] * len(persons)), options.source)
    queries = Queries.of(panel, options.seed)
    report(f"Shadows: {recipe.text}.")
    shadows, parts = train_shadows(
        recipe,
        panel,
        folder,
        number=options.shadows,
        seed=options.seed,
        score=lambda shadow: queries.scores(Forecaster(shadow)),
        report=report,
    )
    forecaster = Forecaster(bundle)
    scores = queries.scores(forecaster)
    groups, units = groups_of(panel), np.unique(units_of(panel), return_inverse=True)[1]
    numbers = attack_numbers(scores, shadows, parts)
    results = judge(numbers, is_member, is_other, groups, units, "bundle", options.seed)
    calibrated = {"calibration tables": numbers["forecast, threshold"]}
    results += judge(
        calibrated, calibrates, is_other, {"all": groups["all"]}, units, "bundle", options.seed
    )
    of_shadows, inside, outside, person = pooled(shadows, parts)
    repeated = {name: mask[person] for name, mask in groups.items()}
    results += judge(of_shadows, inside, outside, repeated, units[person], "shadows", options.seed)
    report("Attributes and amounts.")
    members = panel.only(persons[is_member].tolist())
    differences = [
        *infer_attributes(forecaster, panel, is_member, is_other, options.seed),
        *extract_top_earnings(forecaster, queries, is_member, is_other),
    ]
    probes, recognised = extract_rare_codes(forecaster, bundle, queries, members)
    findings = scan_bundle(bundle, panel, members)
    canaries = []
    if options.canaries:
        report("Canaries.")
        canaries = plant_canaries(recipe, bundle, queries, (shadows, parts), folder, options.seed)
    verdict = judge_audit(results, differences, findings, canaries, recognised)
    return {
        "bundle": bundle.digest,
        "model": bundle.model_digest,
        "simulated": bundle.simulated,
        "persons": {"members": int(is_member.sum()), "others": int(is_other.sum())},
        "shadows": {"number": options.shadows, "recipe": recipe.text},
        "seed": options.seed,
        "verdict": verdict,
        "membership": [result.as_dict() for result in results],
        "differences": [difference.as_dict() for difference in differences],
        "rare_codes": {"probes": probes, "recognised": recognised},
        "findings": [finding.as_dict() for finding in findings],
        "canaries": [canary.as_dict() for canary in canaries],
    }


def groups_of(panel: Panel) -> dict[str, Bools]:
    """The persons (n,) of each group that is judged apart, in the order of `Panel.persons`."""
    frame, n = panel.frame, panel.n_persons
    rare = np.zeros(n, dtype=bool)
    for name in (*CATEGORICAL, *panel.meta.extra_names("category")):
        holders = frame.drop_nulls(name).group_by(name).agg(pl.col("person_id").unique())
        few = holders.filter(pl.col("person_id").list.len() < RARE_PERSONS)
        ids = few["person_id"].explode().drop_nulls().to_list()
        rare |= np.isin(panel.persons(), ids)
    spell = (pl.col("earnings") == 0).fill_null(value=False)
    runs = frame.with_columns(spell=spell, run=spell.rle_id().over("person_id"))
    lengths = runs.filter("spell").group_by("person_id", "run").len()
    long = lengths.filter(pl.col("len") >= LONG_SPELL)["person_id"].to_list()
    units = units_of(panel)
    _, unit, size = np.unique(units, return_inverse=True, return_counts=True)
    return {
        "all": np.ones(n, dtype=bool),
        "top 1 %": top_earners(panel),
        "rare codes": rare,
        f"{LONG_SPELL} years without earnings": np.isin(panel.persons(), long),
        "families": size[unit] > 1,
    }


def judge_audit(
    results: Sequence[Result],
    differences: Sequence[Difference],
    findings: Sequence[Finding],
    canaries: Sequence[Canary],
    recognised: int,
) -> dict[str, Any]:
    """The verdict ("no leak found", "unclear", "leak" or "no power"), its reasons and advice."""
    leaks = [f"{r.attack}, {r.group} ({r.target})" for r in results if _is_leak(r)]
    unclear = [
        f"{r.attack}, {r.group} ({r.target})"
        for r in results
        if r.upper > LARGEST_AREA and not _is_leak(r)
    ]
    leaks += [d.what for d in differences if _is_above(d.difference, d.lower, 0.0)]
    leaks += [f"rare codes: {recognised} recognised"] if recognised else []
    faults = [f"{f.check}: {f.result}" for f in findings if f.passed is False]
    missed = [c.name for c in canaries if c.must and not c.caught]
    of_shadows = bool(leaks) and all("(shadows)" in leak for leak in leaks)
    if missed:
        word = "no power"
    elif leaks or faults:
        word = "leak"
    else:
        of_all = [name for name in unclear if ", all (" in name]
        word = "unclear" if of_all or not canaries else "no leak found"
    return {
        "word": word,
        "leaks": leaks,
        "faults": faults,
        "unclear": unclear,
        "missed": missed,
        "advice": _ADVICE[word] + _OF_SHADOWS * (word == "leak" and of_shadows),
    }


def _is_leak(result: Result) -> bool:
    rate = result.rates.get("0.01", 0.0)
    lower = rate - 1.96 * (rate * (1 - rate) / result.members) ** 0.5
    often = rate > LARGEST_RATE and _is_above(rate, lower, 0.01)
    return often or (result.auc > LARGEST_AREA and _is_above(result.auc, result.lower, 0.5))


def _is_above(value: float, lower: float, limit: float) -> bool:
    """Whether a value lies _CERTAIN standard errors above the limit; `lower` is 1.96 below it."""
    return value - _CERTAIN * (value - lower) / 1.96 > limit


_ADVICE: Mapping[str, str] = {
    "no leak found": "The bundle may be proposed for release. What remains: an attacker with other "
    "shadows, more of them, or knowledge of a person's relatives; and a leak smaller than the "
    "intervals on this page.",
    "unclear": "Too few persons or shadows to tell. Audit with more of them before a release.",
    "leak": "Do not release. Train with more persons, from the prior, with fewer steps or without "
    "trees, remove what the scan names, and audit again.",
    "no power": "The audit missed a planted leak, so its other figures prove nothing. Audit with "
    "more shadows or persons.",
}
_OF_SHADOWS = (
    " All leaks that attacks found are of shadows, models trained in the same way. None is of the "
    "bundle itself; this counts only if it learnt from many more persons than a shadow."
)


def store_audit(bundle: Bundle, audit: Mapping[str, Any], out: Path) -> Bundle:
    """Write `out/audit.json` and `out/audit.html`, and store the audit and its verdict in a bundle.

    Returns the bundle, which replaces the one that was audited. Raises UsageError if another
    process changed that one meanwhile.
    """
    if Bundle.load(bundle.path).digest != bundle.digest:
        raise UsageError(f"{bundle.path} was changed while it was audited. Audit it again.")
    card = f"{bundle.card.split(_HEADING)[0].rstrip()}\n\n{_HEADING}\n\n{_card(audit)}\n"
    stored = write_bundle(
        bundle.path,
        replace(bundle, card=card, audit=dict(audit)),
        seed=bundle.manifest["seed"],
        command="saga audit",
        parents=(*bundle.manifest["parents"], bundle.digest),
    )
    provenance = {
        "digest_before_the_audit": audit["bundle"],
        "digest_that_saga_bundle_verify_prints": stored.digest,
        "model": audit["model"],
        "code_version": stored.manifest["code_version"],
        "seed_of_the_audit": audit["seed"],
    }
    limits = {"largest_area": LARGEST_AREA, "largest_rate": LARGEST_RATE}
    values = {"audit": audit, "provenance": provenance, **limits}
    page = render_page(PAGE, values, "saga.evaluation.audit")
    with new_files(out) as unfinished:
        commit_json(unfinished / AUDIT, audit)
        write_page(unfinished / PAGE, page)
    return stored


def _card(audit: Mapping[str, Any]) -> str:
    """The paragraph of the model card."""
    verdict, worst = audit["verdict"], max(audit["membership"], key=lambda row: row["auc"])
    return (
        f"Verdict: {verdict['word']}. {verdict['advice']} Largest area of an attack: "
        f"{worst['auc']:.3f} ({worst['lower']:.3f} to {worst['upper']:.3f}; {worst['attack']}, "
        f"{worst['group']}, {worst['target']}; .5 is a guess), of {audit['persons']['members']:,} "
        f"members and {audit['persons']['others']:,} others with {audit['shadows']['number']} "
        "shadows. All figures: `audit.json`."
    )
