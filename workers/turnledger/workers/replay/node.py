"""One engine-node process of a replay: plays its share of a file and reports each completed turn, a JSON line each.

The lines on its standard output: ``{"ready": true}`` once it could begin; it begins when a line comes in on its
standard input. ``{"key": ..., "turn_id": ..., "problem": ...}`` for a completed turn.
"""

import sys
from itertools import islice
from pathlib import Path

from turnledger.checkpoint import Turns
from turnledger.store import StoreSettings, check_revision, read_settings
from turnledger.store.json_text import encode_json
from turnledger.store.live_config import LiveConfig
from turnledger.workers.cli.servers import the_database
from turnledger.workers.replay.plan import performances
from turnledger.workers.replay.player import play


def play_share(file: Path, *, run: str, rounds: int, share: str) -> None:
    """Play every conversation of a share such as ``0/2``: the first of two.

    Raises:
        TurnledgerError: the share could not be played to its end.
    """
    number, _, of = share.partition("/")
    _warm_up()
    turns = Turns.from_settings()
    most_entries = LiveConfig(read_settings(StoreSettings).config).current().max_entries
    _report({"ready": True})
    sys.stdin.readline()
    for run_of_round, conversation in islice(performances(file, run=run, rounds=rounds), int(number), None, int(of)):
        for played in play(conversation, run=run_of_round, turns=turns, most_entries=most_entries):
            key = conversation.key(run_of_round)
            _report({"key": key, "turn_id": played.turn_id, "problem": played.problem})
    turns.close()


def _warm_up() -> None:
    """What only the first turn of a process would pay for."""
    with the_database() as database:
        check_revision(database)


def _report(line: dict[str, object]) -> None:
    sys.stdout.write(encode_json(line) + "\n")
    sys.stdout.flush()
