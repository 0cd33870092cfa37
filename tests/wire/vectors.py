"""The test vectors of the wire contract, made by the library; `python -m tests.wire` writes their file anew."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.golden import cases
from tests.golden.cases import entry
from turnledger.checkpoint.completion import _digest
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.queue import COMMIT_FUNCTION
from turnledger.checkpoint.record import Cursor
from turnledger.store import Answer, Call, Entry, InvalidInput, LedgerName, Message, Replied, Step, Usage
from turnledger.store.block import BLOCK_BYTES, Account, render_block
from turnledger.store.entry import encode_entry
from turnledger.store.events import handled_event, message_event, started_event
from turnledger.store.fitting import name_payload
from turnledger.store.identity import check_conversation, work_key
from turnledger.store.json_text import encode_jsonb
from turnledger.store.steps import encode_step
from turnledger.store.times import time_text

FILE = Path(__file__).parents[2] / "docs" / "reference" / "wire-vectors.json"

BLOCKS = ("replies", "endings", "absences", "writing_systems", "structure_in_texts", "code_in_texts", "argument_types",
          "twenty_reads_and_twenty_writes", "wide_arguments")  # fmt: skip
EVENT_IDS: tuple[list[str], ...] = (
    [], ["event-1"], ["e5", "e3", "e1", "e4", "e2"], ["b", "a", "b", " a ", ""], ["Ev-10", "Ev-9"],
    ["\uff5e", "\U0001f600"], ["ключ", "鍵"],
)  # fmt: skip
LEDGERS = (
    ("lead", "jira:POC-7"), ("ceo:a", "b:c"), ("a/b c", "slack:C9:1718.001"), ("Zoë", "github:acme/api#42"),
    ("100%", "x:%3A~.-_"), ("\U0001f600", "x:鍵"),
)  # fmt: skip
CONVERSATIONS = (
    "jira:POC-7", "a_b-9:x", "x:a:b", "x: ", "Jira:POC-7", "9x:y", "jira:", ":x", "jira", "x:a\nb", "x:\x85",
    "x:" + "y" * 510, "x:" + "y" * 511,
)  # fmt: skip
TIMES_MS = (0, 999, 1_796_055_616_123, 1_796_055_616_000)
JSONB = ({"text": "a\x00b"}, {"\x1a": ["\x1a", "é", "\U0001f600"]}, {"n": 1, "plain": "\t\\u0000"})
LONG = ("x" * 201, "鍵" * 300, "y" * 1_535, "y" * 1_536, "y" * 2_560, "z" * 1_048_064)
STEPS = (
    Step.of(role="user", content={"role": "user", "content": "Please fix it"}),
    Step.raw(role="assistant", content='{"b": 1.0,\n "a": "é"}', model="m-1", backend="openai", tools_digest="d1",
             usage=Usage(12, 3, 8), calls=[Call("c1", "look", '{"page": 1}', "read"), Call("c2", "note", "no JSON")]),
    Step.of(role="tool", content="x", answers=[Answer("c1"), Answer("c2", "error", "it is\x00locked")]),
)  # fmt: skip


def vectors() -> dict[str, list[Any]]:
    """By what they show; every value is plain JSON."""
    return {
        "work_keys": [{"event_ids": ids, "work_key": work_key(ids)} for ids in EVENT_IDS],
        "ledgers": [{"agent": a, "conversation": c, "in_key": encode_ledger(LedgerName(a, c))} for a, c in LEDGERS],
        "conversation_keys": [{"text": text, "allowed": _allowed(text)} for text in CONVERSATIONS],
        "times": [{"milliseconds": number, "text": time_text(number)} for number in TIMES_MS],
        "jsonb": [{"value": value, "text": encode_jsonb(value)} for value in JSONB],
        "steps": [_step(step) for step in STEPS],
        "names": [{"repeated": text[0], "times": len(text), "name": name_payload(text)} for text in LONG],
        "cursors": [
            {"members": [7, 0, 12, "t1", ["t2"]], "text": Cursor(7, 0, 12, "t1", ("t2",)).encode()},
            {"members": [None, 0, -1, None, []], "text": Cursor(None, 0, -1, None).encode()},
        ],
        "events": [*_events()],
        "digests": [_digest_of(["{}", '{"role":"user"}']), _digest_of(['{"é":1}'])],
        "jobs": [
            {"turn_id": "t1", "function": COMMIT_FUNCTION, "call": json.dumps([COMMIT_FUNCTION, None, ["t1"], {}])}
        ],
        "blocks": [*_golden_blocks(), *_crowded_blocks()],
    }


def as_file() -> str:
    """A line a vector, in ASCII: no editor and no diff changes one unseen."""
    parts = [f'"{name}": [\n{_lines(each)}\n]' for name, each in vectors().items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(found: Sequence[Any]) -> str:
    return ",\n".join(json.dumps(each) for each in found)


def _allowed(text: str) -> bool:
    try:
        check_conversation(text)
    except InvalidInput:
        return False
    return True


def _step(step: Step) -> dict[str, Any]:
    wire = encode_step(step)
    payload, _, content = wire.split("\n", 2)
    plain = json.loads(payload.replace("\\u001a0000", "\\u0000"))
    return {"payload": plain, "arguments": [call.arguments for call in step.calls], "content": content, "wire": wire}


def _events() -> Iterator[dict[str, Any]]:
    now = "2026-11-30T16:20:16.123Z"
    message = {"message_id": "m-1", "text": "Hello\x00 \U0001f600", "role": "user", "occurred_at": now}
    yield {"message": message, "row": list(message_event(Message("m-1", str(message["text"])), now=now))}
    yield {"handled": {"message_id": "m-1"}, "row": list(handled_event("m-1", now=""))}
    started = {"turn_id": "t1", "work_key": "k1", "occurred_at": now}
    yield {"started": started, "row": list(started_event("t1", work_key="k1", now=now))}


def _digest_of(texts: list[str]) -> dict[str, Any]:
    return {"texts": texts, "digest": _digest(texts)}


def _golden_blocks() -> Iterator[dict[str, Any]]:
    """The sets that the golden files are made of, as the renderer is given them."""
    for name in BLOCKS:
        with patch.object(cases, "render_block", side_effect=_vector_of):
            yield json.loads(cases.CASES[name]())


def _crowded_blocks() -> Iterator[dict[str, Any]]:
    """What happens past the budget: with and without an account of what is left out."""
    lengths = (200, 200, 1, 30, 30, 30, 30)
    entries = [
        entry(n, triggered_by=f"Ask {n}", reply=Replied(f"Answer {n}. " * length))
        for n, length in enumerate(lengths, 1)
    ]
    account = Account(frozenset({"e1", "e2"}), "Twice the answer was given,\nat length.")
    yield json.loads(_vector_of(entries, total=11, budget_bytes=3_500))
    yield json.loads(_vector_of(entries, total=7, budget_bytes=3_500, account=account))


def _vector_of(entries: Sequence[Entry], *, total: int, unreadable: int = 0, **more: Any) -> str:
    account: Account | None = more.get("account")
    block = render_block(entries, total=total, unreadable=unreadable, **more)
    vector = {
        "entries": [{"ordinal": each.ordinal, "entry": json.loads(encode_entry(each))} for each in entries],
        "total": total,
        "unreadable": unreadable,
        "budget_bytes": more.get("budget_bytes", BLOCK_BYTES),
        "account": account and {"entry_ids": sorted(account.entry_ids), "text": account.text},
        "block": block,
    }
    return json.dumps(vector)
