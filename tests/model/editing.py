"""Breaks the product on purpose, in this process alone: one place of one function, by its text.

An edit whose place is not there is an error: the product has changed, and the variant with it.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True)
class Edit:
    """In the function of this name (`module:Class.method`), other words in one place."""

    function: str
    old: str
    new: str


@dataclass(frozen=True)
class ScriptEdit:
    """In the script of this name, or in what stands before every script (`_shared`), other words in one place."""

    script: str
    old: str
    new: str


_edited: dict[FunctionType, str] = {}


def apply(edit: Edit) -> None:
    """Replace the function, also where other modules hold it by name."""
    module_name, _, path = edit.function.partition(":")
    owner: Any = sys.modules[module_name]
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    before: FunctionType = getattr(owner, name)
    source = _edited.get(before) or textwrap.dedent(inspect.getsource(before))
    source = _replaced(source, edit.old, edit.new, where=edit.function)
    found: dict[str, Any] = {}
    exec(compile(source, edit.function, "exec"), before.__globals__, found)  # the text is the product's own
    after = found[name]
    _edited[after] = source
    setattr(owner, name, after)
    for module in [module for key, module in sys.modules.items() if key.startswith(("turnledger.", "tests.model."))]:
        for held, value in list(vars(module).items()):
            if value is before:
                setattr(module, held, after)


def editor(edits: tuple[ScriptEdit, ...]) -> Callable[[str, str], str]:
    """What changes the text of each script as it is loaded."""
    by_name: Mapping[str, list[ScriptEdit]] = {
        edit.script: [other for other in edits if other.script == edit.script] for edit in edits
    }

    def edited(name: str, text: str) -> str:
        for edit in by_name.get(name, []):
            text = _replaced(text, edit.old, edit.new, where=name)
        return text

    return edited


def _replaced(text: str, old: str, new: str, *, where: str) -> str:
    if text.count(old) != 1:
        raise LookupError(f"{where}: the words to edit stand there {text.count(old)} times, not once: {old!r}")
    return text.replace(old, new)
