"""saga bundle: show a bundle, or check every byte of it."""

from __future__ import annotations

from typing import Annotated

import typer

from saga.cli import console, options
from saga.errors import BundleError


def inspect(directory: options.Bundle, as_json: options.Json = False) -> None:
    """Show what a bundle is and where it comes from."""
    from saga.bundle import Bundle
    from saga.conformal.calibration_table import calibration_method

    bundle = Bundle.load(directory)
    report = {
        "path": bundle.path,
        "digest": bundle.digest,
        "model": bundle.model_digest,
        "calibration": bundle.calibration_digest,
        "method": calibration_method(bundle.calibration),
        "parameters": bundle.parameters,
        "weights": {name: list(tensor.shape) for name, tensor in bundle.weights.items()},
        **{
            key: bundle.manifest[key]
            for key in ("code_version", "seed", "command", "parents", "files")
        },
        "config": bundle.config,
        "split": bundle.split,
        "metrics": bundle.metrics,
    }
    lines = [bundle.card.strip(), ""]
    lines += [
        f"{key:<12} {report[key]}"
        for key in (
            "digest",
            "model",
            "calibration",
            "method",
            "parameters",
            "code_version",
            "seed",
            "command",
        )
    ]
    lines += [
        f"{'parents':<12} {', '.join(bundle.manifest['parents']) or 'none'}",
        f"{'files':<12} {', '.join(sorted(bundle.manifest['files']))}",
    ]
    console.result("\n".join(lines), report, as_json=as_json)


def verify(
    directory: options.Bundle,
    digest: Annotated[
        str | None,
        typer.Option(metavar="SHA", help="The digest that whoever made the bundle told you."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check every byte of a bundle; exit code 2 if a file is missing, unknown or changed.

    The seal has no key: it shows damage, but whoever changes a bundle can seal it again. With
    --digest a bundle that somebody else sealed is refused, too.
    """
    from saga.bundle import Bundle

    bundle = Bundle.load(directory)
    if digest is not None and digest != bundle.digest:
        raise BundleError(
            f"{directory} is another bundle: its digest is {bundle.digest}. Get it from its source "
            "again, and the digest by another way."
        )
    report = {
        "path": bundle.path,
        "intact": True,
        "digest": bundle.digest,
        "as_stated": digest is not None,
        "files": len(bundle.manifest["files"]),
    }
    console.result(
        f"{directory} is intact: {report['files']} files, digest {bundle.digest}"
        + (", as stated." if digest else ". Who made it, only --digest shows."),
        report,
        as_json=as_json,
    )
