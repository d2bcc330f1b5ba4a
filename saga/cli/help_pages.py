"""Help pages: options in groups, and examples."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

_PANELS = {
    "Persons": (
        "panel", "mapping", "prices", "facts", "origin", "on_error", "rejected", "until", "split",
        "shares", "sample", "target", "target_by",
    ),
    "Forecast": (
        "product", "horizons", "coverage", "quantiles", "rate", "to_age", "from_age", "tax",
        "scenario", "limits", "bands", "circumstances",
    ),
    "Result": ("unrounded", "as_json"),
    "Computation": (
        "paths", "seed", "rollout", "precision", "threads", "workers", "processes", "devices",
        "engine", "address", "shard", "merge", "persons_per_partition", "cache", "resume",
    ),
    "Ledger of intervals": (
        "database", "database_key", "holder", "record", "since", "spans",
    ),
}  # fmt: skip
PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
_COMMAND_PANELS = {
    "Forecast": ("forecast", "lifetime", "score", "plot", "explain", "tables", "align"),
    "Judge": ("report", "evaluate"),
    "Data": ("register", "facts"),
    "Make a bundle": ("train", "calibrate", "circumstances", "deliver", "bundle"),
    "Service": ("serve", "work", "keys"),
}
COMMAND_PANEL_OF = {name: panel for panel, names in _COMMAND_PANELS.items() for name in names}
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "saga": (
        ("forecast examples/people.csv --out forecast.csv", "yearly earnings, 1 to 30 years ahead"),
        ("report --out report.html", "whether the forecasts can be trusted"),
        ("serve", "the same over HTTP, with a page for the browser"),
    ),
    "forecast": (
        ("forecast people.csv --out forecast.csv", "with the shipped bundle"),
        ("forecast lisa/ --mapping lisa --out forecast.parquet", "a folder of LISA tables"),
        ("forecast people.csv --origin 2015 --out test.csv", "as if made in 2015"),
        ("forecast - --out - --horizons 1,5,10", "from and to a pipe, as CSV"),
    ),
    "lifetime": (
        ("lifetime people.csv --tax se-2022 --out lifetimes.xlsx", "after tax, for Excel"),
        ("lifetime people.csv --from-age 20 --rate 0.03 --out whole.csv", "whole working lives"),
    ),
    "score": (
        ("score register/ out --workers 8", "forecasts; the same command continues"),
        ("score people.csv paths --product paths --circumstances", "for microsimulation"),
        ("score register/ out --shard 0/7", "on several machines; at the end --merge out"),
    ),
    "tables": (
        ("tables paths --by sex,age --panel register/ --out tables", "statistics to publish"),
    ),
    "align": (
        ("align paths --targets totals.csv --panel register/ --out aligned", "official totals"),
    ),
    "train": (
        ("train --panel register/ --out bundles/ours", "a bundle of your own"),
        ("train --panel panel.csv --folds 5 --out bundles/ours", "from few persons"),
    ),
    "calibrate": (
        ("calibrate bundles/ours --panel register/", "fit the intervals of a bundle"),
    ),
    "deliver": (
        ("deliver bundles/ours --panel delivery-2023/ --out deliveries", "a new year of outcomes"),
    ),
    "evaluate": (
        ("evaluate bundles/ours --panel register/ --out results", "against every baseline"),
        ("evaluate bundles/ours --panel register/ --baselines gbt --out trees", "against trees"),
        ("evaluate --folds 5 --panel panel.csv --out results", "every person judged once"),
    ),
    "report": (
        ("report --out report.html", "the results in the shipped bundle"),
        ("report bundles/ours --panel register/ --out report.html", "judge it on a panel"),
    ),
    "plot": (
        ("plot people.csv --person 0001 --out forecast.svg", "a picture"),
        ("plot people.csv --person 0001 --horizons 1-10 --out forecast.html", "a page"),
    ),
    "explain": (("explain people.csv --person 0001 --out explanation.html", "one person"),),
    "serve": (
        ("serve --port 9000", "on this machine"),
        ("serve --host 0.0.0.0 --keys keys.txt", "for others, with bearer keys"),
    ),
    "circumstances": (("circumstances bundles/ours --panel register/", "states for paths"),),
}  # fmt: skip


def _epilog(name: str) -> str | None:
    """The examples of a command as the last part of its help; None without examples."""
    examples = EXAMPLES.get(name)
    if not examples:
        return None
    lines = [text for line, about in examples for text in (f"# {about}", f"saga {line}")]
    return "\n".join(["Examples:", *lines])


def _without_bool(parameters: list[Any]) -> list[Any]:
    """The parameters; a flag is shown without the word `<bool>`, because it takes no value."""
    for parameter in parameters:
        if isinstance(parameter, TyperOption) and parameter.is_flag:
            parameter.metavar = ""
    return parameters


class HelpfulCommand(TyperCommand):
    """A command whose help has groups of options and examples."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.epilog = _epilog(name or "")
        self.rich_help_panel = COMMAND_PANEL_OF.get(name or "")
        for parameter in self.params:
            if isinstance(parameter, TyperOption):
                parameter.rich_help_panel = PANEL_OF.get(parameter.name or "")

    def get_params(self, ctx: Any) -> list[Any]:
        """Arguments and options, with --help."""
        return _without_bool(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Words of the usage line; a required argument has no braces."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


class HelpfulGroup(TyperGroup):
    """A group of commands whose help has examples."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.epilog = _epilog(self.name or "")
        self.rich_help_panel = COMMAND_PANEL_OF.get(self.name or "")

    def get_params(self, ctx: Any) -> list[Any]:
        """Arguments and options, with --help."""
        return _without_bool(super().get_params(ctx))
