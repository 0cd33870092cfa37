"""The scripts of the folder `scripts`, made ready to run."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from redis import Redis
from redis.commands.core import Script


def load_script(redis: Redis, name: str, *, helpers: Sequence[str] = ("_shared",)) -> Script:
    """The named script behind its helpers; nothing is sent before it runs."""
    return redis.register_script(script_text(name, helpers=helpers))


def script_text(name: str, *, helpers: Sequence[str] = ("_shared",)) -> str:
    """The whole text of a script, as Redis gets it."""
    folder = files("turnledger.checkpoint").joinpath("scripts")
    parts = [folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in (*helpers, name)]
    return "\n".join(parts)


def flat(fields: Mapping[str, Any]) -> list[Any]:
    """Fields and values in one list, as scripts take them."""
    return [item for pair in fields.items() for item in pair]
