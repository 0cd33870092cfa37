"""Which exit code an error gives, and what is printed of it."""

import pytest

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointUnavailable, OversizedPayload, TurnNotFound
from turnledger.store import (
    InvalidInput,
    SchemaMismatch,
    StoreBusy,
    StoreMisconfigured,
    StoreUnavailable,
    TurnledgerError,
)
from turnledger.workers.cli.exits import AWAY, INVALID, NEEDS_A_PERSON, NotThere, exit_code_of
from turnledger.workers.cli.output import complain, many, print_json, visible, visible_lines


@pytest.mark.parametrize("kind", [InvalidInput, OversizedPayload, NotThere, TurnNotFound])
def test_what_the_user_got_wrong_ends_in_2(kind: type[TurnledgerError]) -> None:
    assert exit_code_of(kind()) == INVALID == 2


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreBusy, CheckpointUnavailable])
def test_a_server_that_is_away_ends_in_3(kind: type[TurnledgerError]) -> None:
    assert exit_code_of(kind()) == AWAY == 3


@pytest.mark.parametrize("kind", [StoreMisconfigured, SchemaMismatch, CheckpointMisconfigured])
def test_what_a_person_has_to_repair_ends_in_1(kind: type[TurnledgerError]) -> None:
    assert exit_code_of(kind()) == NEEDS_A_PERSON == 1


def test_a_complaint_is_one_line_whatever_the_message_holds(capsys: pytest.CaptureFixture[str]) -> None:
    complain("first\nsecond \x1b[31m\x07\r third")
    assert capsys.readouterr().err == "turnledger: first second \\x1b[31m\\x07 third\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünï and 日本 👍", "plain, ünï and 日本 👍"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("nul \x00, csi \x9b", "nul \\x00, csi \\x9b"),
        ("lone \ud800", "lone \\ud800"),
        ("right to left \u202e", "right to left \\u202e"),
        ("new\u2028line", "new\\u2028line"),
    ],
)
def test_content_cannot_steer_the_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_stay_lines() -> None:
    assert visible_lines("a\r\nb\x1b") == "a\\x0d\nb\\x1b"


def test_json_is_one_line_of_any_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": "ü \ud800\n"})
    assert capsys.readouterr().out == '{"text":"ü \\ud800\\n"}\n'


def test_numbers_of_things_read_well() -> None:
    assert [many(0, "turn"), many(1, "turn"), many(1490, "turn")] == ["0 turns", "1 turn", "1,490 turns"]
