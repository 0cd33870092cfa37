"""Files for `TURNLEDGER_CONFIG`, written as an operator's tools write them."""

import os
from pathlib import Path

import yaml

NAME = "engine.yaml"


def config_text(**keys: object) -> str:
    """The section with these keys, between sections of the engine's own."""
    section = {"turn_engine": {"models": ["a"], "conversation_session": keys}}
    return "logging:\n  level: info\n" + yaml.safe_dump(section) + "secrets: !vault {path: x}\n"


def write_config(folder: Path, **keys: object) -> Path:
    """A new version of the file in this folder, put in place in one step."""
    return put_in_place(folder / NAME, config_text(**keys))


def put_in_place(path: Path, text: str) -> Path:
    """Replace the file by a rename: no reader ever sees half of it."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)  # noqa: PTH105  # the call that matters, by its own name
    return path
