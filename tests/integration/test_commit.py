"""The commit point in Postgres: all or nothing, once, in order."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.stores import LEAD, NOTHING, Stores
from turnledger.store import CorruptData, LedgerName, Message, NoReplyOwed, StoreRefused, Undelivered
from turnledger.store.commit import CompletedTurn, TurnOutcome, commit_turns
from turnledger.store.entry import CallRecord, Entry, decode_entry, encode_entry
from turnledger.store.events import handled_event, message_event
from turnledger.store.history import replay
from turnledger.store.ledger import create_ledgers, lock_free_ledgers
from turnledger.store.steps import Answer, Call, Step, Usage, encode_step

OTHER = LedgerName("reviewer", "jira:POC-7")
STARTED, COMPLETED = "2026-11-30T16:00:00.000Z", "2026-11-30T16:20:16.123Z"
TORTURE = [
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "x\udfffy",
    "\u202eright to left\u202c",
    "𝄞 four bytes",
    "\\u0000 spelled out",
    "\x1a0000",
    "\x1a\x1a",
    'quote " backslash \\ tab \t line\nfeed\r\x0b\x7f\x85\u2028',
    "\\N",
    "\\.",
    "{}[],:",
]
CONTENTS = [
    '{"b":1,"a":1.0,"n":[1e400,-0.0,0.10,12345678901234567890,1E5,1e-7],"a":2}',
    ' { "spaces" : [ 1 , 2 ] }\n',
    '"\\u0000\\ud800\\udc00\\/\\u00e9"',
    '{"\\u0000":null,"\\ud800":true,"":false}',
    "\t[]",
    '"tab \\t back \\\\ line \\n"',
]


def a_turn(turn_id: str, *, ledger: LedgerName = LEAD, **given: Any) -> CompletedTurn:
    entry_id = f"00000000-0000-4000-8000-{abs(hash(turn_id)) % 10**12:012}"
    entry = Entry(turn_id=turn_id, entry_id=entry_id, reply=NoReplyOwed(), triggered_by=f"Ask of {turn_id}")
    return CompletedTurn(
        **{
            "turn_id": turn_id,
            "ledger": ledger,
            "work_key": "",
            "epoch": 1,
            "started_at": STARTED,
            "completed_at": COMPLETED,
            "entry_id": entry_id,
            "entry": encode_entry(entry),
            "decision": "done",
            **given,
        }
    )


def commit(stores: Stores, *turns: CompletedTurn, most_entries: int = 20) -> list[TurnOutcome]:
    names = list({turn.ledger for turn in turns})
    create_ledgers(stores.database, names)
    with stores.database.transaction() as connection:
        heads = lock_free_ledgers(connection, names)
        return commit_turns(connection, heads=heads, turns=turns, most_entries=most_entries)


def step(content: str, **given: Any) -> str:
    return encode_step(Step.raw(**{"role": "user", "content": content, **given}))


def test_a_group_of_turns_is_committed_in_its_order(stores: Stores) -> None:
    """Entries, events, runs and heads of several ledgers in one transaction (QU-3, QU-5, EV-13)."""
    turns = [
        a_turn("t1", steps=(step("1"), step("2"))),
        a_turn("o1", ledger=OTHER),
        a_turn(
            "t2", before=(message_event(Message("m1", "Hello"), now=STARTED),), events=(handled_event("m1", now=""),)
        ),
    ]
    assert commit(stores, *turns) == [
        TurnOutcome("t1", "committed", 1),
        TurnOutcome("o1", "committed", 1),
        TurnOutcome("t2", "committed", 2),
    ]
    assert [(event.seq, event.turn_id, event.type) for event in stores.events()] == [
        (0, "t1", "agent_step"),
        (1, "t1", "agent_step"),
        (2, "t1", "turn_completed"),
        (3, "t2", "message"),
        (4, "t2", "message_handled"),
        (5, "t2", "turn_completed"),
    ]
    assert (
        stores.rows("SELECT ordinal, turn_id FROM ledger_entry ORDER BY ledger_id, ordinal")
        == [
            (1, "t1"),
            (2, "t2"),
            (1, "o1"),
        ]
        or stores.head(OTHER).ledger_id < stores.head().ledger_id
    )
    assert (stores.head().next_seq, stores.head().turn_count, stores.head(OTHER).turn_count) == (6, 2, 1)
    assert stores.rows("SELECT turn_id, outcome, epoch FROM ledger_turn ORDER BY turn_id") == [
        ("o1", "completed", 1),
        ("t1", "completed", 1),
        ("t2", "completed", 1),
    ]


def test_the_terminal_names_the_entry_that_was_written_with_it(stores: Stores) -> None:
    """One entry and one turn_completed for each recorded turn (EV-13)."""
    commit(stores, a_turn("t1"), a_turn("t2", decision=None))
    ends = [event.payload for event in stores.events() if event.type == "turn_completed"]
    rows = stores.rows("SELECT entry_id::text, ordinal FROM ledger_entry ORDER BY ordinal")
    assert [(end.entry_id, end.ordinal) for end in ends] == rows
    assert [end.decision for end in ends] == ["done", None]


def test_times_are_those_of_the_turn(stores: Stores) -> None:
    """Not those of the commit (EN-1)."""
    commit(stores, a_turn("t1"))
    moment = datetime(2026, 11, 30, 16, 20, 16, 123_000, tzinfo=UTC)
    assert stores.rows("SELECT completed_at FROM ledger_entry") == [(moment,)]
    assert stores.rows("SELECT occurred_at, recorded_at > '2026-01-01' FROM ledger_event") == [(moment, True)]
    assert stores.rows("SELECT started_at, ended_at FROM ledger_turn") == [
        (datetime(2026, 11, 30, 16, tzinfo=UTC), moment)
    ]


BAD: dict[str, dict[str, Any]] = {
    "an entry that is no JSON": {"entry": "{"},
    "a step that is no JSON": {"steps": ("{}\n[]\nnot json",)},
    "a step whose payload is no JSON": {"steps": ("{\n[]\n1",)},
    "an entry_id that is none": {"entry_id": "nonsense"},
    "a payload that jsonb cannot hold": {"steps": ('{"role":"\\u0000"}\n[]\n1',)},
    "a time that is none": {"completed_at": "a while ago"},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_of_a_group_with_a_bad_turn_nothing_is_written(stores: Stores, bad: dict[str, Any]) -> None:
    """All or nothing; the error says that this data will be refused again (QU-5, QU-6)."""
    create_ledgers(stores.database, [LEAD, OTHER])
    before = stores.rows("SELECT * FROM ledger ORDER BY ledger_id")
    with pytest.raises(StoreRefused) as refused:
        commit(stores, a_turn("t1", steps=(step("1"),)), a_turn("bad", **bad), a_turn("o1", ledger=OTHER))
    assert str(refused.value.sqlstate)[:2] in ("22", "23", "54")
    assert stores.rows("SELECT * FROM ledger ORDER BY ledger_id") == before
    assert stores.written() == {**NOTHING, "ledger": 2}
    commit(stores, a_turn("t1", steps=(step("1"),)), a_turn("o1", ledger=OTHER))
    assert stores.head().next_seq == 2


def test_a_turn_committed_again_is_told_so(stores: Stores) -> None:
    """Nothing is written a second time, activity included (QU-4)."""
    turn = a_turn("t1", work_key="k", steps=(step("1"),))
    commit(stores, turn)
    before = stores.rows("SELECT * FROM ledger, ledger_event, ledger_entry, ledger_turn")
    time.sleep(0.002)
    assert commit(stores, turn) == [TurnOutcome("t1", "already")]
    assert commit(stores, turn, turn) == [TurnOutcome("t1", "already")] * 2
    assert stores.rows("SELECT * FROM ledger, ledger_event, ledger_entry, ledger_turn") == before


def test_two_committers_of_the_same_turns_write_them_once(stores: Stores) -> None:
    """The row lock decides; the other finds them committed, or the ledger held (QU-4)."""
    turns = [a_turn(f"t{number}", work_key=f"k{number % 7}", steps=(step("1"),)) for number in range(20)]
    create_ledgers(stores.database, [LEAD])
    outcomes: list[TurnOutcome] = []

    def work(part: Sequence[CompletedTurn]) -> None:
        for turn in part:
            with stores.database.transaction() as connection:
                heads = lock_free_ledgers(connection, [LEAD])
                if heads:
                    outcomes.extend(commit_turns(connection, heads=heads, turns=[turn], most_entries=20))

    threads = [threading.Thread(target=work, args=[part]) for part in (turns, turns[::-1], turns, turns[5:])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work(turns)
    committed = [(outcome.turn_id,) for outcome in outcomes if outcome.verdict == "committed"]
    assert sorted(committed) == stores.rows("SELECT turn_id FROM ledger_entry ORDER BY turn_id")
    assert stores.head().turn_count == 7
    assert [event.seq for event in stores.events()] == list(range(stores.head().next_seq))
    assert stores.rows("SELECT outcome, count(*) FROM ledger_turn GROUP BY 1 ORDER BY 1") == [
        ("completed", 7),
        ("duplicate", 13),
    ]


def test_a_duplicate_names_the_first_also_when_its_entry_is_gone(stores: Stores) -> None:
    """The memory of a work key outlives the entry (RT-5, ST-5)."""
    commit(stores, a_turn("t1", work_key="k"))
    commit(stores, a_turn("t2"), most_entries=1)
    assert commit(stores, a_turn("t3", work_key="k", steps=(step("1"),))) == [
        TurnOutcome("t3", "duplicate", first="t1")
    ]
    assert stores.types("t3") == ["turn_duplicate"]
    assert commit(stores, a_turn("t3", work_key="k")) == [TurnOutcome("t3", "already", first="t1")]


def test_any_other_clash_is_an_error(stores: Stores) -> None:
    """Only a work key makes a duplicate; two turns never share an entry_id (QU-11)."""
    commit(stores, a_turn("t1"))
    with pytest.raises(StoreRefused) as refused:
        commit(stores, replace(a_turn("t2"), entry_id=a_turn("t1").entry_id))
    assert (refused.value.sqlstate, refused.value.constraint) == ("23505", "ledger_entry_id")
    assert stores.head().turn_count == 1


@pytest.mark.parametrize(
    ("most", "kept"), [(1, [6]), (3, [4, 5, 6]), (6, [1, 2, 3, 4, 5, 6]), (20, [1, 2, 3, 4, 5, 6])]
)
def test_a_commit_trims_its_ledgers_to_the_newest_entries(stores: Stores, most: int, kept: list[int]) -> None:
    """By ordinal, whatever the times say; other ledgers keep theirs (RT-3)."""
    commit(stores, *(a_turn(f"o{number}", ledger=OTHER) for number in range(4)))
    times = ["2026-11-30T16:20:16.123Z", "2020-01-01T00:00:00.000Z", "2030-01-01T00:00:00.000Z"]
    for number in range(6):
        commit(stores, a_turn(f"t{number}", completed_at=times[number % 3]), most_entries=most)
    ledger_id = stores.head().ledger_id
    assert stores.rows("SELECT ordinal FROM ledger_entry WHERE ledger_id = %s ORDER BY 1", ledger_id) == [
        (ordinal,) for ordinal in kept
    ]
    assert stores.rows("SELECT count(*) FROM ledger_entry WHERE ledger_id <> %s", ledger_id) == [(4,)]
    assert stores.head().turn_count == 6


def test_a_trim_catches_up_after_the_number_was_lowered(stores: Stores) -> None:
    """With the next commit of the ledger, in one transaction with it (RT-3)."""
    commit(stores, *(a_turn(f"t{number}") for number in range(5)))
    commit(stores, a_turn("t5"), most_entries=2)
    assert stores.rows("SELECT ordinal FROM ledger_entry ORDER BY 1") == [(5,), (6,)]


@pytest.mark.parametrize("text", TORTURE, ids=ascii)
def test_any_text_comes_back_exactly(stores: Stores, text: str) -> None:
    """In messages, entries, steps, and the names of JSON members (EV-10, EN-8)."""
    entry = Entry(
        turn_id="t1",
        entry_id=a_turn("t1").entry_id,
        reply=Undelivered(text),
        triggered_by=text,
        set_out_to=text,
        reviewer=text,
        outcome="blocked",
        blocked_on=text,
        calls=(CallRecord(text, {text: [text]}, "error", text, call_id=text),),
    )
    saved = Step.of(
        role="assistant" + text,
        content={text: [text]},
        calls=[Call(text, text, json.dumps({text: text}), "read")],
        answers=[Answer(text, "error", text)],
        backend=text,
        model=text,
        tools_digest=text,
        usage=Usage(1, 2, 3),
    )
    messages = (message_event(Message("m" + text, text, text, "user" + text), now=STARTED),)
    commit(stores, a_turn("t1", entry=encode_entry(entry), steps=(encode_step(saved),), before=messages))
    ((stored,),) = stores.rows("SELECT entry::text FROM ledger_entry")
    assert decode_entry(stored, ordinal=None) == entry
    message, agent_step, _ = stores.events()
    assert (message.payload.message_id, message.text, message.payload.sender, message.payload.role) == (
        "m" + text,
        text,
        text,
        "user" + text,
    )
    assert agent_step.content == saved.content
    (replayed,) = replay_all(stores)
    assert replace(replayed, source=None) == replace(saved, calls=(Call(text, text, "", "read"),))


def replay_all(stores: Stores) -> list[Step]:
    with stores.database.transaction() as connection:
        return replay(connection, stores.head())


@pytest.mark.parametrize("content", CONTENTS)
def test_vendor_content_keeps_every_byte(stores: Stores, content: str) -> None:
    """Member order, doubled members, spelling of numbers, spacing, escapes (EV-10, CK-6)."""
    commit(stores, a_turn("t1", steps=(step(content),)))
    assert [each.content for each in replay_all(stores)] == [content]
    assert stores.rows("SELECT convert_to(content::text, 'UTF8') FROM ledger_event WHERE seq = 0") == [
        (content.encode(),)
    ]


def test_content_nested_too_deeply_for_postgres_is_refused_for_good(stores: Stores) -> None:
    """A program limit, class 54 (QU-7)."""
    deep = "{}\n[]\n" + "[" * 500_000 + "]" * 500_000
    with pytest.raises(StoreRefused) as refused:
        commit(stores, a_turn("t1", steps=(deep,)))
    assert refused.value.sqlstate == "54001"
    assert stores.written() == {**NOTHING, "ledger": 1}


def test_a_message_of_five_megabytes_of_distinct_words_is_kept_and_found(stores: Stores) -> None:
    """Its beginning is searched, all of it is kept (EV-2, PR-1)."""
    text = " ".join(f"word{number}" for number in range(500_000))
    commit(stores, a_turn("t1", before=(message_event(Message("m1", text), now=STARTED),)))
    assert len(text) > 5_000_000
    assert stores.texts() == [text]
    found = "SELECT seq FROM ledger_event WHERE type = 'message' AND to_tsvector('simple', search_text) @@ %s::tsquery"
    assert stores.rows(found, "word1000") == [(0,)]
    assert stores.rows(found, "word499999") == []


@pytest.mark.parametrize("separator", ["-", "/", " ", ".", "_", "@"])
@pytest.mark.parametrize("letters", [(0x20000, 0x2A6DF), (0x4E00, 0x9FFF), (0x400, 0x4FF), (0x61, 0x7A)], ids=str)
def test_no_text_is_too_much_for_the_search_index(stores: Stores, letters: tuple[int, int], separator: str) -> None:
    """A tsvector holds at most 1 MiB, whatever it is made from (PR-1, DESIGN 4)."""
    alphabet = [chr(code) for code in range(*letters)]
    size = len(alphabet)
    words = (
        alphabet[n % size] + alphabet[n // size % size] + separator + alphabet[n * 7 % size] + alphabet[n // 3 % size]
        for n in range(40_000)
    )
    text = " ".join(words)
    commit(stores, a_turn("t1", before=(message_event(Message("m1", text), now=STARTED),)))
    assert stores.texts() == [text]


def test_a_corrupt_spelling_of_an_entry_is_told_from_a_missing_one(stores: Stores) -> None:
    """What is stored and no entry reads as an error, not as nothing (BL-8)."""
    commit(stores, a_turn("t1", entry='{"turn_id": "t1"}'))
    ((stored,),) = stores.rows("SELECT entry::text FROM ledger_entry")
    with pytest.raises(CorruptData, match="entry_id"):
        decode_entry(stored, ordinal=1)


def test_a_reply_under_the_id_of_another_message_is_reported(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first text stays, and the conflict is in the log, without the texts (EV-5, EV-2)."""
    first = (message_event(Message("r1", "First secret"), now=STARTED),)
    commit(stores, a_turn("t1", before=first, events=(handled_event("r1", now=""),)))
    commit(stores, a_turn("t2", before=first, events=(handled_event("r1", now=""),)))
    assert "event_key_conflict" not in capsys.readouterr().err
    commit(stores, a_turn("t3", events=(message_event(Message("r1", "Second secret", role="assistant"), now=""),)))
    printed = capsys.readouterr().err
    assert printed.count("event_key_conflict") == 1
    assert "message:r1" in printed
    assert "secret" not in printed
    assert stores.texts() == ["First secret"]
