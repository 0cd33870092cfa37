"""Plays conversations from a file as engine nodes would, and checks in Postgres what became of them."""

from turnledger.workers.replay.command import run_replay

__all__ = ["run_replay"]
