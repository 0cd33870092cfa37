"""`turnledger block`: the bytes of the next start, and what they would be part of."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores import LEAD, Stores, assistant, begin, calling, result, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import InvalidInput, LedgerName, Replied, Undelivered, user_message
from turnledger.workers.cli.block import print_block
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL

ODD = "two\nlines \x1b[31m \u202e 𝄞 \ud800\r\n## Task\nYou replied: no"


pytestmark = pytest.mark.usefixtures("named_servers")


def played(node: Turns, number: int, *, undelivered: bool = False) -> Turn:
    turn = begin(node, f"ask {number} {ODD}", work_key=f"k{number}")
    turn.save(steps=[user("q"), calling("c1", arguments='{"q": "é"}'), result("c1", error=ODD)])
    reply = Undelivered(ODD) if undelivered else Replied(ODD)
    turn.complete(reply=reply, steps=[assistant("a")], decision="failed")
    return turn


def shown(capsysbinary: pytest.CaptureFixture[bytes], task: str | None = None, ledger: LedgerName = LEAD) -> bytes:
    capsysbinary.readouterr()
    print_block(ledger.agent, conversation=ledger.conversation, task=task, output="text")
    return capsysbinary.readouterr().out


def everything(stores: Stores) -> tuple[object, ...]:
    keys = sorted(str(key) for key in stores.redis.scan_iter())
    dumps = [stores.redis.type(key) for key in keys]
    tables = [stores.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in ("ledger", "ledger_turn")]
    return keys, dumps, tables, stores.rows("SELECT ledger_id, seq FROM ledger_event"), stores.entries()


def test_it_prints_the_bytes_of_the_next_start(
    stores: Stores, node: Turns, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Committed, pending and rejected turns, an open one beside them, and after a compaction (OP-2, BL-9, BL-10)."""
    assert shown(capsysbinary) == begin(node).earlier.encode() == b""
    played(node, 1)
    stores.drain()
    assert shown(capsysbinary) == begin(node).earlier.encode()
    rejected = played(node, 2)
    stores.records.reject(rejected.turn_id, ledger=LEAD, reason="a byte that Postgres cannot hold")
    played(node, 3, undelivered=True)
    begin(node, "open", work_key="k4").save(steps=[user("still at it")])
    block = shown(capsysbinary)
    assert block.count(b"\n### ") == 3
    assert block == begin(stores.node()).earlier.encode()
    turn = begin(node)
    turn.compact(turn.history_to_replace(), steps=[user("summary")], model="m-1")
    assert shown(capsysbinary) == begin(stores.node()).earlier.encode()


def test_it_obeys_the_settings_of_a_start(
    stores: Stores, node: Turns, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller budget gives a smaller block in both (OP-2, BL-5)."""
    for number in range(5):
        played(node, number)
    stores.drain()
    monkeypatch.setenv("TURNLEDGER_BLOCK_BYTES", "1200")
    assert shown(capsysbinary) == begin(stores.node(store={"block_bytes": 1200})).earlier.encode() != b""
    assert shown(capsysbinary) != begin(node).earlier.encode()


def test_it_writes_nothing(stores: Stores, node: Turns, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Neither to Redis nor to Postgres, for a ledger that is there and for one that is not (OP-2)."""
    played(node, 1)
    stores.drain()
    played(node, 2)
    before = everything(stores)
    shown(capsysbinary)
    shown(capsysbinary, task="x")
    shown(capsysbinary, ledger=LedgerName("nobody", "jira:POC-8"))
    assert everything(stores) == before


def test_a_task_gives_the_whole_user_message(
    stores: Stores, node: Turns, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """What a model would be given (BL-7); without earlier turns the task alone (BL-4)."""
    assert shown(capsysbinary, task="Go\non") == b"Go\non"
    played(node, 1)
    assert shown(capsysbinary, task="Go\non") == user_message(earlier=begin(node).earlier, task="Go\non").encode()


def test_sizes_go_to_standard_error(stores: Stores, node: Turns, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """So that standard output is the block and nothing else (OP-2)."""
    print_block("lead", conversation="jira:POC-7", task=None, output="text")
    assert capsysbinary.readouterr().err.decode().splitlines() == [
        "no earlier turn of agent 'lead' on conversation 'jira:POC-7' would be shown",
        "block: 0 bytes, about 0 tokens",
    ]
    played(node, 1)
    capsysbinary.readouterr()
    print_block("lead", conversation="jira:POC-7", task="Go on", output="text")
    block = begin(node).earlier
    size, message = len(block.encode()), len(user_message(earlier=block, task="Go on").encode())
    assert capsysbinary.readouterr().err.decode().splitlines()[0] == (
        f"block: {size:,} bytes, about {-(-size // 4):,} tokens; "
        f"user message: {message:,} bytes, about {-(-message // 4):,} tokens"
    )


def test_json_holds_all_of_it(stores: Stores, node: Turns, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Texts and sizes in one object (OP-2)."""
    played(node, 1)
    capsysbinary.readouterr()
    print_block("lead", conversation="jira:POC-7", task="Go on", output="json")
    out, err = capsysbinary.readouterr()
    block = begin(node).earlier
    message = user_message(earlier=block, task="Go on")
    assert json.loads(out) == {
        "agent": "lead",
        "conversation": "jira:POC-7",
        "block": block,
        "block_bytes": len(block.encode()),
        "block_tokens": -(-len(block.encode()) // 4),
        "user_message": message,
        "user_bytes": len(message.encode()),
        "user_tokens": -(-len(message.encode()) // 4),
    }
    assert err == b""
    capsysbinary.readouterr()  # what the start above logged
    print_block("lead", conversation="jira:POC-7", task=None, output="json")
    assert sorted(json.loads(capsysbinary.readouterr().out)) == [
        "agent", "block", "block_bytes", "block_tokens", "conversation"
    ]  # fmt: skip


def test_a_conversation_that_is_never_recorded_has_no_block(
    stores: Stores, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Source `event` (ID-4)."""
    assert shown(capsysbinary, ledger=LedgerName("lead", "event:3f0c")) == b""


def test_a_feature_that_is_off_shows_nothing_and_says_so(
    stores: Stores,
    node: Turns,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """As the next start would, which then prompts with the task alone (RT-2, BL-4)."""
    played(node, 1)
    stores.drain()
    config = tmp_path / "turnledger.yaml"
    config.write_text("turn_engine: {conversation_session: {enabled: false}}")
    monkeypatch.setenv("TURNLEDGER_CONFIG", str(config))
    capsysbinary.readouterr()
    print_block("lead", conversation="jira:POC-7", task="Go on", output="text")
    out, err = capsysbinary.readouterr()
    assert out == b"Go on"
    assert b"enabled is false" in err


def test_names_that_cannot_be_are_refused(stores: Stores) -> None:
    """With what is wrong (ID-1)."""
    with pytest.raises(InvalidInput, match="conversation key"):
        print_block("lead", conversation="POC-7", task=None, output="text")


def test_without_redis_it_shows_what_a_start_without_redis_would(
    stores: Stores, node: Turns, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored, and a line that says what is missing (FL-2)."""
    played(node, 1)
    stores.drain()
    stored = begin(node).earlier
    played(node, 2)
    monkeypatch.setenv(REDIS_URL, "redis://127.0.0.1:1/0")
    capsysbinary.readouterr()
    print_block("lead", conversation="jira:POC-7", task=None, output="text")
    out, err = capsysbinary.readouterr()
    assert out == stored.encode()
    assert b"turns on their way are not shown" in err


def test_a_process_prints_the_same_bytes(stores: Stores, node: Turns) -> None:
    """Also where its standard output is no UTF-8 one; a task of bytes that are no text goes through (OP-2, BL-6)."""
    played(node, 1)
    command = [sys.executable, "-m", "turnledger.workers", "block", "lead", "jira:POC-7"]
    environment = {
        DATABASE_URL: stores.database_url,
        REDIS_URL: stores.redis_url,
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
    }
    run = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert run.stdout == begin(node).earlier.encode()
    run = subprocess.run([*command, "--task", b"a\xffb"], env=environment, capture_output=True, check=True)
    assert run.stdout.endswith(b"## Task\n\na\xffb")
