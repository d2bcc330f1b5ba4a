"""YAML as it is written: the one reader of mappings, rules, reforms and configurations.

YAML 1.1 has words and numbers with a second meaning: `no` is false, `010` is eight and `7:30` is
450. Here a key is the text that is written, and only `true`, `false`, `null` and decimal numbers
without leading zeros are other values than texts. What hides or multiplies content is refused: a
key that stands twice, names of other parts, tags, and many brackets inside each other. So is a part
without content, which would do nothing without a word.
"""

from __future__ import annotations

import re
from typing import Any, TypeGuard

import yaml

from saga.errors import UsageError

_DIGITS = r"[-+]?(?:0|[1-9][0-9]*)"
_SCALARS = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", _DIGITS, "-+0123456789"),
    (
        "float",
        rf"(?:{_DIGITS}(?:\.[0-9]*)?|[-+]?\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf",
        "-+.0123456789",
    ),
)
_MAX_DEPTH = 20  # Python's own limit would be an error without a line
_MAX_DIGITS = 100  # of a number: Python turns no longer ones than some thousand into text
_JOIN = "Join the two entries, or remove one."
_PLAIN = "Write the content itself there."
_FILL = "Write its content (null, where it has a meaning), or remove the key."
_POINT = "If it is a decimal or thousand, write 8.07 or 8070."


class _Refused(yaml.MarkedYAMLError):
    """Content that is YAML, and is refused; with its line and the remedy."""

    def __init__(self, why: str, mark: yaml.Mark, fix: str) -> None:
        super().__init__(problem=why, problem_mark=mark)
        self.fix = fix


class _Loader(yaml.SafeLoader):
    """YAML without second meanings, names of other parts, two entries of one key, empty parts."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML reads the class)
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next part; raises a YAMLError if it is another's name, tagged, too deep or empty."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise _Refused(f"*{event.anchor} stands for another part", mark, _PLAIN)
        if event.tag is not None:
            raise _Refused(f"{event.tag} is a tag", mark, _PLAIN)
        is_plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
        if is_plain and len(event.value) > _MAX_DIGITS and event.value.lstrip("-+").isdigit():
            raise _Refused("a number is too long", mark, "Write it shorter, or in quotes.")
        if self._depth > _MAX_DEPTH:
            raise _Refused("there are too many levels", mark, "Write fewer inside each other.")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        # An empty list has a meaning: a column that the panel does not get.
        is_table = isinstance(node, yaml.MappingNode) and not node.value
        if is_table or (is_plain and not event.value and parent is not None):
            named = index.value if isinstance(index, yaml.ScalarNode) else "a part"
            fix = _POINT if named.isdigit() else _FILL  # {ceiling: 8,07}
            raise _Refused(f"{named} has no content", mark, fix)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The entries of a table; raises a YAMLError with the line of a second one."""
        result: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in result:
                why = "a key is no text" if key.id != "scalar" else f"{key.value} stands twice"
                raise _Refused(why, key.start_mark, _JOIN)
            result[key.value] = self.construct_object(value, deep=deep)
        return result


for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}",
        re.compile(f"^(?:{_pattern})$"),
        ["" if letter == "\0" else letter for letter in _first],
    )


def read_yaml(text: str, title: str, rule: str, column: str | None = None) -> Any:
    """The content of a YAML text: mappings by text, lists, texts, numbers, flags and None.

    Raises UsageError `title`, whose problem of `rule` names the line, if the text is not YAML or
    has what this reader refuses.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        before = getattr(error, "position", 0)  # of a character that YAML does not allow
        line = mark.line if mark is not None else text.count("\n", 0, before)
        why, fix = f"line {line + 1} is not YAML", "Correct the syntax."
        if isinstance(error, _Refused):
            why, fix = f"line {line + 1}: {error.problem}", error.fix
        elif "\t" in "".join(text.splitlines()[line : line + 1]):
            why, fix = f"{why}: it contains a tab", "Indent with blanks."
    raise UsageError.of(title, rule, why, fix, column=column)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number, not a flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)
