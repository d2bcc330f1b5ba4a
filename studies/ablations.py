r"""What does each part of the network add?

    python -m studies.ablations --panel build/register --out build/ablations
        [--mapping NAME] [--only full no-family] [--until 2012] [--seed 1]
    saga evaluate bundles/small --panel build/register \
        --variants build/ablations/variants.yaml --out build/evaluation

Trains the networks of `evaluation/configs/ablations/`, all with the same small budget. Bundles
stay under --out, so a repeated command trains only those that are missing. `variants.yaml` lists
the trained bundles and their cost; the contest then has a row for each.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from saga.training.train_config import load_config

from saga.bundle import Bundle
from saga.data.reading import read_panel
from saga.files.atomic import commit
from saga.files.bundle_folder import MANIFEST
from saga.files.yaml_text import read_yaml
from studies.study_page import command_line, study_parser
from studies.trained_bundle import path_of, train_or_load


def main() -> int:
    """Train what is missing and write the list of variants."""
    rows = listed_ablations()
    parser = study_parser(__doc__)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--mapping")
    parser.add_argument("--out", type=Path, default=Path("build/ablations"))
    names = [row["name"] for row in rows]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--until", type=int, help="last year that training may see")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    panel = read_panel(args.panel, mapping=args.mapping)
    variants = []
    for row in rows:
        settings = panel, args.out / row["name"], load_config(f"ablations/{row['name']}")
        options = {"seed": args.seed, "until": args.until}
        if row["name"] in args.only:
            bundle = train_or_load(*settings, **options, command=command_line(__file__))
            print(f"{row['name']}: {training_cost(bundle)}", flush=True)
        path = path_of(*settings, **options)
        if (path / MANIFEST).is_file():
            variants.append(variant_row(row, path))
    text = yaml.safe_dump(variants, sort_keys=False, allow_unicode=True, width=140)
    commit(args.out / "variants.yaml", lambda path: path.write_text(text, encoding="utf-8"))
    return 0


def listed_ablations() -> list[dict[str, str]]:
    """The ablations: `name` and `label`."""
    file = files("saga.evaluation") / "ablation_labels.yaml"
    rows: list[dict[str, str]] = read_yaml(file.read_text(encoding="utf-8"), file.name, "ablations")
    return rows


def variant_row(row: dict[str, str], out: Path) -> dict[str, Any]:
    """A row for `saga.evaluation.bundle_variants`."""
    return {
        "name": row["name"],
        "table": "Ablations",
        "label": row["label"],
        "note": training_cost(Bundle.load(out)),
        "bundle": out.name,
    }


def training_cost(bundle: Bundle) -> str:
    """Parameters, steps and seconds of a bundle's training."""
    training = bundle.metrics["training"]
    return (
        f"{training['parameters']:,} parameters, {training['steps']:,} steps, "
        f"{training['seconds']:,.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
