"""The section `turn_engine.conversation_session` of a YAML file: what it may hold, and how it is read.

The file belongs to the engine as much as to us: what stands beside the section is left to its owner, tags and all.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from turnledger.store.errors import InvalidInput

ENGINE, SESSION = "turn_engine", "conversation_session"
SECTION = f"{ENGINE}.{SESSION}"
MOST_ENTRIES = 1_000  # a start reads them all, and no block has room for more
MOST_DAYS = 36_500  # a hundred years: longer is for ever
UNLIMITED = "none"
MISSPELT = 0.92  # how alike two names are: a letter or two apart, and no other word
_SHOWN_CHARACTERS = 40


class ConversationSession(BaseModel):
    """The section; what is not given has its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    enabled: bool = Field(
        default=True,
        description="The kill switch. false: a turn that starts is shown no block and leaves no entry; turns that "
        "began before end as ever, and what is pending is committed.",
    )
    max_entries: int = Field(
        default=20,
        ge=1,
        le=MOST_ENTRIES,
        description="Entries kept a ledger, the newest; the commit trims the others. About what a block of 24,000 "
        "bytes has room for.",
    )
    retention_days: int = Field(
        default=30,
        ge=1,
        le=MOST_DAYS,
        description="Days after the end of its turn at which an entry is deleted. A month: older turns seldom help a "
        "new one, and their text is other people's.",
    )
    event_retention_days: int | None = Field(
        default=None,
        ge=1,
        le=MOST_DAYS,
        description="Days after the end of a turn at which all its events are deleted: messages, steps, what happened. "
        "none: they stay, since replay and search live on them.",
    )

    @field_validator("event_retention_days", mode="before")
    @classmethod
    def _none_by_name(cls, value: object) -> object:
        return None if value == UNLIMITED else value


def read_section(content: bytes) -> ConversationSession:
    """The section in the content of a YAML file; defaults where there is none.

    Raises:
        InvalidInput: the file is no YAML, or the section holds what it may not; names the key by its full path.
    """
    loader = None
    try:
        loader = yaml.SafeLoader(content)
        given = _section(loader, loader.get_single_node())
    except yaml.YAMLError as error:
        raise InvalidInput(f"the file cannot be read as YAML: {_problem(error)}") from None
    except RecursionError:
        raise InvalidInput("the file cannot be read as YAML: it is nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    return _checked(given)


def wanted(name: str) -> str:
    """What may be written for a key, in words."""
    field = ConversationSession.model_fields[name]
    if field.annotation is bool:
        return "true or false"
    least = next(bound.ge for bound in field.metadata if hasattr(bound, "ge"))
    most = next(bound.le for bound in field.metadata if hasattr(bound, "le"))
    number = f"a whole number from {least} to {most}"
    return number if field.annotation is int else f"{number}, or {UNLIMITED}"


def _section(loader: yaml.SafeLoader, root: yaml.Node | None) -> dict[Any, Any]:
    top = _members(loader, root, path="")
    _refuse_misplaced(top, path="")
    _refuse_misspelt(top, wanted=ENGINE, path="")
    engine = _members(loader, top.get(ENGINE), path=ENGINE)
    _refuse_misplaced(engine, path=f"{ENGINE}.")
    _refuse_misspelt(engine, wanted=SESSION, path=f"{ENGINE}.")
    section = engine.get(SESSION)
    _members(loader, section, path=SECTION)
    return loader.construct_mapping(section, deep=True) if isinstance(section, yaml.MappingNode) else {}


def _members(loader: yaml.SafeLoader, node: yaml.Node | None, *, path: str) -> dict[str, yaml.Node]:
    """The members of a mapping by the text of their keys; none of a mapping that is not there or empty."""
    if node is None or _is_empty(node):
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInput(f"{path or 'the file'} must be a section of keys and values, as in `{SECTION}:`", where=path)
    _refuse_repeated(node, path=path)
    loader.flatten_mapping(node)
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _refuse_repeated(node: yaml.MappingNode, *, path: str) -> None:
    """YAML readers let the last one win, which nobody sees who reads the first one."""
    ours = {"": {ENGINE}, ENGINE: {SESSION}, SECTION: set(ConversationSession.model_fields)}[path]
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value not in ours:
            continue
        if key.value in seen:
            full = f"{path}.{key.value}".removeprefix(".")
            raise InvalidInput(f"{full} stands twice (again in line {key.start_mark.line + 1}); keep one", where=full)
        seen.add(key.value)


def _refuse_misplaced(members: dict[str, yaml.Node], *, path: str) -> None:
    """The section's own name at another level is a mistake, and would go unnoticed."""
    for key in members:
        inner = key.removeprefix(f"{ENGINE}.") if not path else key
        if inner.partition(".")[0] == SESSION and not (path and key == SESSION):
            raise InvalidInput(
                f"{path}{key} is not read; write `{ENGINE}:`, below it `{SESSION}:`, and below that its keys",
                where=f"{path}{key}",
            )


def _refuse_misspelt(members: dict[str, yaml.Node], *, wanted: str, path: str) -> None:
    """Where the right name stands too, a name that is like it is somebody else's."""
    for key in members if wanted not in members else ():
        plain = "".join(filter(str.isalnum, key)).lower()
        if get_close_matches(plain, [wanted.replace("_", "")], cutoff=MISSPELT):
            where = f"{path}{key}"
            raise InvalidInput(f"{where} is not known (is {wanted} meant?); what is below it is not read", where=where)


def _checked(given: dict[Any, Any]) -> ConversationSession:
    known = ConversationSession.model_fields
    for key in given:
        if key not in known:
            raise InvalidInput(
                f"{SECTION}.{_shown(key)} is not known{_meant(key)}; its keys are {', '.join(known)}", where=SECTION
            )
    try:
        return ConversationSession.model_validate(given)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
    path, default = f"{SECTION}.{name}", known[name].default
    example = UNLIMITED if default is None else str(default).lower()
    raise InvalidInput(
        f"{path} is {_described(given[name])}; write {wanted(name)}, such as `{name}: {example}`", where=path
    )


def _meant(key: object) -> str:
    close = get_close_matches(str(key), list(ConversationSession.model_fields), n=1)
    return f" (is {close[0]} meant?)" if close else ""


def _described(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return _shown(value)
    return f"the text {_shown(value)!r}" if isinstance(value, str) else f"a {type(value).__name__}"


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _problem(error: yaml.YAMLError) -> str:
    """Without the text around it: the file may hold secrets."""
    return "; ".join(_parts(error)) or "it is not text"


def _parts(error: yaml.YAMLError) -> Iterator[str]:
    if not isinstance(error, yaml.MarkedYAMLError):
        return
    yield str(error.problem or error.context or "")
    mark = error.problem_mark or error.context_mark
    if mark is not None:
        yield f"line {mark.line + 1}, column {mark.column + 1}"
