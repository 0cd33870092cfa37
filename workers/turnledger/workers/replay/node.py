"""One engine-node process of a replay: plays its share of a file and reports each completed turn, a JSON line each.

The lines on its standard output: ``{"ready": true}`` once it could begin; it begins when a line comes in on its
standard input. ``{"key": ..., "turn_id": ..., "problem": ...}`` for a completed turn.
"""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from turnledger.checkpoint import Turns
from turnledger.store import Database, StoreSettings, check_revision, read_settings
from turnledger.store.json_text import encode_json
from turnledger.workers.replay.conversations import Conversation, read_conversations
from turnledger.workers.replay.player import play


def play_share(file: Path, *, run: str, rounds: int, share: str) -> None:
    """Play every conversation of a share such as ``0/2``: the first of two.

    Raises:
        TurnledgerError: the share could not be played to its end.
    """
    number, _, of = share.partition("/")
    _warm_up()
    turns = Turns.from_settings()
    most_entries = read_settings(StoreSettings).max_entries
    _report({"ready": True})
    sys.stdin.readline()
    for run_of_round, conversation in islice(performances(file, run=run, rounds=rounds), int(number), None, int(of)):
        for played in play(conversation, run=run_of_round, turns=turns, most_entries=most_entries):
            key = conversation.key(run_of_round)
            _report({"key": key, "turn_id": played.turn_id, "problem": played.problem})
    turns.close()


def performances(file: Path, *, run: str, rounds: int) -> Iterator[tuple[str, Conversation]]:
    """Each conversation of the file, once a round, with the run that its keys belong to."""
    for number in range(rounds):
        run_of_round = run if rounds == 1 else f"{run}.{number + 1}"
        yield from ((run_of_round, conversation) for conversation in read_conversations(file))


def _warm_up() -> None:
    """What only the first turn of a process would pay for."""
    database = Database.from_settings()
    check_revision(database)
    database.close()


def _report(line: dict[str, object]) -> None:
    sys.stdout.write(encode_json(line) + "\n")
    sys.stdout.flush()
