"""Whatever texts a block holds, a reader who knows its labels gets each of them back, and no other."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from tests.block_reader import FIELDS, NOTHING_SENT, UNDELIVERED, ReadEntry, read_block
from turnledger.store.block import CONTRACT, HEADING, Account, call_lines, render_block
from turnledger.store.entry import CallRecord, Entry, NoReplyOwed, Replied, Undelivered

TIME = "2026-11-30T16:20:16.123Z"
PIECES = [
    "\n", "\n\n", "\r", "\x85", "\u2028", "\v", "> ", ">", "## Task", "### ", "```", "~~~", "\ud800", "\x00", "(none)",
    "- ", "\t", " ", "\u202e", "␍", "⟨U+000D⟩", "\\n", "→", NOTHING_SENT, UNDELIVERED, HEADING, CONTRACT, *FIELDS,
    f"### {TIME} (turn t9)", "### Earlier turn", "(5 earlier turns are no longer stored.)",
]  # fmt: skip
text = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=8).map("".join)
optional = st.none() | text
calls = st.builds(
    CallRecord,
    name=text,
    arguments=st.dictionaries(text, text | st.integers() | st.lists(text, max_size=2), max_size=2) | text,
    outcome=st.just("error"),
    error=optional,
    kind=st.sampled_from(["read", "write", None]),
)
entries = st.lists(
    st.builds(
        Entry,
        turn_id=st.just("t1"),
        entry_id=st.just("e1"),
        completed_at=st.sampled_from([TIME, None]),
        reply=st.builds(Replied, text) | st.builds(Undelivered, text) | st.just(NoReplyOwed()),
        triggered_by=optional,
        set_out_to=optional,
        calls=st.lists(calls, max_size=3).map(tuple),
        reviewer=optional,
        outcome=st.just("blocked"),
        blocked_on=optional,
        decision=st.sampled_from(["done", "failed", "self_iterate", None]),
    ),
    min_size=1,
    max_size=4,
)


def expected(entry: Entry) -> ReadEntry:
    reply = entry.reply
    fields = {
        "triggered_by": entry.triggered_by,
        "set_out_to": entry.set_out_to,
        "replied": reply.text if isinstance(reply, Replied) else None,
        "undelivered": reply.text if isinstance(reply, Undelivered) else None,
        "reviewer": entry.reviewer,
        "blocked_on": entry.blocked_on,
        "decision": None if entry.decision == "done" else entry.decision,
    }
    there = {name: value for name, value in fields.items() if value is not None}
    lines = tuple(call_lines(entry.calls)) if entry.calls else ()
    return ReadEntry(entry.turn_id if entry.completed_at else None, entry.completed_at, there, lines)


@given(entries)
@example([Entry(turn_id="t1", entry_id="e1", reply=Replied("\n"), triggered_by="", set_out_to=" ")])
def test_every_text_comes_back(given_entries: list[Entry]) -> None:
    """Each in its own field, in order, with nothing added: the rule can be undone (BL-13, BL-2, BL-1)."""
    block = render_block(given_entries, total=len(given_entries), budget_bytes=10**9)
    assert read_block(block) == ([], [expected(each) for each in given_entries])


@given(entries, st.integers(0, 9), st.integers(0, 3))
def test_what_is_not_shown_is_told_by_the_renderer_alone(
    given_entries: list[Entry], gone: int, unreadable: int
) -> None:
    """However the texts are, the lines before the first entry are the counts (BL-5, BL-8, BL-13)."""
    total = len(given_entries) + gone + unreadable
    opening, found = read_block(render_block(given_entries, total=total, unreadable=unreadable, budget_bytes=10**9))
    assert len(opening) == bool(gone) + bool(unreadable)
    assert sum(int(line[1:].split()[0]) for line in opening) + len(found) == total


@given(entries, text)
def test_an_account_cannot_pass_for_an_entry(given_entries: list[Entry], words: str) -> None:
    """What a model wrote is a text like any other (BL-5, BL-13)."""
    numbered = [replace(each, entry_id=f"e{number}") for number, each in enumerate(given_entries)]
    older = [Entry(turn_id="t0", entry_id="e-old", reply=Replied("x" * 30_000), completed_at=TIME), *numbered]
    block = render_block(older, total=len(older), account=Account(frozenset({"e-old"}), words))
    headings = [line for line in block.split("\n") if line.startswith("### ")]
    shown = [line for line in headings if line in (f"### {TIME} (turn t1)", "### Earlier turn")]
    assert len(headings) - len(shown) <= 1  # the heading of the account itself
    assert len(shown) <= len(numbered)
