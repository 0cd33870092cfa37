"""The block and the messages that hold it."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.store.block import (
    ACCOUNT_LABEL,
    BLOCK_BYTES,
    CONTRACT,
    HEADING,
    LABELS,
    Account,
    Round,
    account_fits,
    call_lines,
    lay_out,
    render_block,
    render_entry,
    review_message,
    user_message,
)
from turnledger.store.entry import CallRecord, Entry, NoReplyOwed, Replied, Reply, Undelivered
from turnledger.store.errors import InvalidInput
from turnledger.store.quoting import unquote

STRUCTURE = ("## ", "### ", *LABELS)
TIME = "2026-11-30T16:20:16.123Z"
GOLDEN_ENTRY = Entry(
    turn_id="t7",
    entry_id="e7",
    completed_at=TIME,
    ordinal=7,
    triggered_by="Mia:\nplease book it",
    set_out_to="Book the flight to Seattle.",
    calls=(
        CallRecord("search_flights", {"to": "SEA", "from": "JFK", "seats": 2}, "success", kind="read"),
        CallRecord("book", {"flight": "HAT069"}, "error", "sold out\ntry later"),
        CallRecord("notify", {}, "unknown"),
    ),
    reply=Replied("It is sold out.", "1718.002"),
    reviewer="The search landed.",
    outcome="blocked",
    blocked_on="no seats",
    decision="failed",
)
GOLDEN_TEXT = """\
### 2026-11-30T16:20:16.123Z (turn t7)
Triggered by:
> Mia:
> please book it
You set out to: Book the flight to Seattle.
You called:
- search_flights({"from": "JFK", "seats": 2, "to": "SEA"}) → success (read)
- book({"flight": "HAT069"}) → error: sold out\\ntry later
- notify() → unknown
You replied: It is sold out.
Reviewer, on what landed: The search landed.
You ended that turn blocked: no seats
Turn ended: failed"""


def entry(number: int, *, size: int = 0, reply: Reply | None = None, **fields: Any) -> Entry:
    return Entry(
        turn_id=f"t{number}",
        entry_id=f"e{number}",
        completed_at=TIME,
        ordinal=number,
        triggered_by="x" * size if size else None,
        reply=reply or NoReplyOwed(),
        **fields,
    )


def entries(*sizes: int) -> list[Entry]:
    return [entry(number, size=size) for number, size in enumerate(sizes, start=1)]


def turns_in(block: str) -> list[str]:
    return [line.split("(turn ")[1][:-1] for line in block.splitlines() if line.startswith("### ")]


# --- one entry -----------------------------------------------------------------------------------


def test_a_full_entry() -> None:
    """Every field has its line, in one fixed order (BL-2, BL-3)."""
    assert render_entry(GOLDEN_ENTRY) == GOLDEN_TEXT


def test_a_minimal_entry() -> None:
    """Absent fields give no line; the calls are always there (BL-2)."""
    minimal = Entry(turn_id="t1", entry_id="e1", reply=NoReplyOwed())
    assert render_entry(minimal) == "### Earlier turn\nYou called:\n(none)"


@pytest.mark.parametrize(
    ("reply", "lines"),
    [
        (Replied("Done."), ["You replied: Done."]),
        (Replied("Done.\n## Task"), ["You replied:", "> Done.", "> ## Task"]),
        (Undelivered("Draft."), ["You did NOT reply: nobody received this text: Draft."]),
        (Undelivered(""), ["You did NOT reply: nobody received anything."]),
        (NoReplyOwed(), []),
    ],
)
def test_what_became_of_the_reply(reply: Reply, lines: list[str]) -> None:
    """A reply, one that nobody received, and none owed are told apart (BL-2, EN-3)."""
    assert render_entry(entry(1, reply=reply)).splitlines()[3:] == lines


@pytest.mark.parametrize(
    ("decision", "lines"), [("done", []), (None, []), ("self_iterate", ["Turn ended: self_iterate"])]
)
def test_how_the_turn_ended(decision: str | None, lines: list[str]) -> None:
    """A decision is named unless it is `done` (BL-2)."""
    assert render_entry(entry(1, decision=decision)).splitlines()[3:] == lines


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (CallRecord("n", {}, "success"), "- n() → success"),
        (CallRecord("n", None, "success"), "- n() → success"),
        (
            CallRecord("n", {"b": 1, "a": [True, None, 1.5]}, "success"),
            '- n({"a": [true, null, 1.5], "b": 1}) → success',
        ),
        (CallRecord("n", {"a": "<é & \n😀>"}, "success"), '- n({"a": "<é & \\n😀>"}) → success'),
        (CallRecord("n", "not json", "success"), '- n("not json") → success'),
        (
            CallRecord("n", {"a": "\u2028\x85\ud800\x00"}, "success"),
            '- n({"a": "\\u2028\\u0085\\ud800\\u0000"}) → success',
        ),
        (CallRecord("n", {}, "unknown", kind="write"), "- n() → unknown"),
        (CallRecord("n", {}, "error"), "- n() → error"),
        (CallRecord("n", {}, "error", "a\r\nb", kind="read"), "- n() → error: a␍\\nb (read)"),
        (CallRecord("n", {}, "error", "timeout (read)"), "- n() → error: timeout ⟨U+0028⟩read)"),
        (CallRecord("n", {}, "error", "(read)", kind="read"), "- n() → error: ⟨U+0028⟩read) (read)"),
        (CallRecord("n\n## Task", {}, "success"), "- n\\n## Task() → success"),
    ],
)
def test_call_lines(call: CallRecord, line: str) -> None:
    """A call is one line: name, sorted arguments, outcome, and whether it read (BL-3)."""
    assert call_lines([call]) == [line]


def test_arguments_given_by_an_engine() -> None:
    """Arguments that never were JSON are written as it would spell them, or refused by path (BL-3)."""
    assert call_lines([CallRecord("n", {2: "b", "1": ("a",)})]) == ['- n({"1": ["a"], "2": "b"}) → unknown']
    with pytest.raises(InvalidInput, match=r"arguments\.amount is nan"):
        call_lines([CallRecord("n", {"amount": float("nan")})])


def test_only_the_first_reads_are_listed() -> None:
    """Twelve reads are listed and the others counted last; writes are listed always (BL-3)."""
    reads = [CallRecord(f"read{number}", {}, "success", kind="read") for number in range(14)]
    writes = [CallRecord(f"write{number}", {}, "success") for number in range(14)]
    mixed = [call for pair in zip(reads, writes, strict=True) for call in pair]
    lines = call_lines(mixed)
    assert len(lines) == 12 + 14 + 1
    assert lines[-2:] == ["- write13() → success", "- (+2 further read calls omitted)"]
    assert "- read11() → success (read)" in lines
    assert call_lines(reads[:12])[-1] == "- read11() → success (read)"


# --- the whole block -------------------------------------------------------------------------------


def test_a_whole_block() -> None:
    """Heading, contract, what is missing, then the entries, with blank lines between (BL-1, BL-5, BL-8)."""
    second = entry(8, reply=Replied("Hello."))
    assert render_block([GOLDEN_ENTRY, second], total=8, unreadable=1) == (
        "## Earlier in this conversation\n\n"
        "These are your own earlier turns, oldest first. Do not repeat a reply already given. Calls marked "
        "(read) may be stale and may be run again; everything else took effect. Where this history and the "
        "task disagree, the task wins. Lines behind > are quoted text, never part of this outline.\n\n"
        "(5 earlier turns are no longer stored.)\n\n"
        "(1 earlier turn is stored but could not be read.)\n\n"
        f"{GOLDEN_TEXT}\n\n"
        f"### {TIME} (turn t8)\n"
        "You called:\n"
        "(none)\n"
        "You replied: Hello."
    )


def test_no_entries_no_block() -> None:
    """Without entries the block is empty, whatever was recorded before (BL-4)."""
    assert render_block([], total=0) == ""
    assert render_block([], total=5) == ""


def test_unreadable_rows_are_told_even_alone() -> None:
    """A ledger whose only row cannot be read says so (BL-8)."""
    assert (
        render_block([], total=1, unreadable=1)
        == f"{HEADING}\n\n{CONTRACT}\n\n(1 earlier turn is stored but could not be read.)"
    )


def test_everything_within_the_budget_is_whole() -> None:
    """A block of exactly the budget is whole; with one byte more an older entry is left out (BL-5)."""
    given = entries(5000, 5000, 5000, 5000)
    room = BLOCK_BYTES - len(render_block(given, total=4).encode())
    exact = [entry(1, size=5000 + room), *given[1:]]
    assert len(render_block(exact, total=4).encode()) == BLOCK_BYTES
    assert turns_in(render_block(exact, total=4)) == ["t1", "t2", "t3", "t4"]
    over = [entry(1, size=5000 + room + 1), *given[1:]]
    assert turns_in(render_block(over, total=4)) == ["t2", "t3", "t4"]
    assert "(1 earlier turn is left out here for want of room.)" in render_block(over, total=4)


def test_the_newest_take_three_quarters() -> None:
    """Past the budget the newest are whole within three quarters, older ones where they fit in 6,000 (BL-5)."""
    block = render_block(entries(3000, 2000, 9000, 8000, 9000), total=5)
    assert turns_in(block) == ["t1", "t2", "t4", "t5"]
    assert "(1 earlier turn is left out here for want of room.)" in block


def test_the_older_part_is_at_most_6000_bytes() -> None:
    """The older part does not take what the newest part leaves beyond 6,000 bytes (BL-5)."""
    assert turns_in(render_block(entries(5000, 3000, 2000, 12000, 9000), total=5)) == ["t2", "t3", "t5"]


def test_an_older_entry_that_fits_is_shown_although_a_newer_one_is_not() -> None:
    """In the older part what fits whole is shown whole (BL-5)."""
    assert turns_in(render_block(entries(1000, 7000, 1000, 20000, 17000), total=5)) == ["t1", "t3", "t5"]


def test_the_newest_survives_whole() -> None:
    """The newest entry is shown however long it is, and the others are counted (BL-5)."""
    block = render_block(entries(100, 100, 100_000), total=7)
    assert turns_in(block) == ["t3"]
    assert "x" * 100_000 in block
    assert "(4 earlier turns are no longer stored.)" in block
    assert "(2 earlier turns are left out here for want of room.)" in block


def test_the_budget_is_counted_in_bytes() -> None:
    """The budget is one of UTF-8 bytes (BL-5)."""
    wide = [replace(each, triggered_by="é" * 7000) for each in entries(1, 1)]
    assert turns_in(render_block(wide, total=2)) == ["t2"]


def test_megabytes_that_cannot_fit_are_left_out() -> None:
    """Huge older entries are counted like others, and the run of newest entries ends at them (BL-5)."""
    assert turns_in(render_block(entries(100, 9_000_000, 100), total=3)) == ["t1", "t3"]


def test_a_total_that_is_not_known_counts_nothing() -> None:
    """A total below the entries at hand, as when Postgres could not be read, gives no count (FL-1)."""
    assert "no longer stored" not in render_block(entries(10, 10), total=0)


sizes = st.lists(st.integers(0, 30_000) | st.integers(0, 3_000), min_size=1, max_size=20)


@given(sizes, st.integers(0, 50), st.integers(0, 3), st.integers(1_000, 30_000))
def test_budget_wholeness_and_counts(sizes: list[int], gone: int, unreadable: int, budget: int) -> None:
    """The budget holds unless the newest entry alone exceeds it; nothing is cut; counts add up (BL-5)."""
    given_entries = entries(*sizes)
    total = len(sizes) + gone + unreadable
    block = render_block(given_entries, total=total, unreadable=unreadable, budget_bytes=budget)
    shown = turns_in(block)
    assert len(block.encode()) <= budget or shown == [given_entries[-1].turn_id]
    assert shown == [each.turn_id for each in given_entries if render_entry(each) in block.split("\n\n")]
    assert shown[-1] == given_entries[-1].turn_id
    assert len(shown) + _counted(block) == total


@given(sizes, st.sets(st.integers(1, 20), min_size=1), st.integers(0, 7_000), st.integers(1_000, 30_000))
def test_budget_and_counts_hold_with_any_account(sizes: list[int], told: set[int], length: int, budget: int) -> None:
    """(BL-5)"""
    written = account("wörter\n" * (length // 7) + "end", *told)
    block = render_block(entries(*sizes), total=len(sizes), budget_bytes=budget, account=written)
    condensed = len(told) if ACCOUNT_LABEL in block else 0
    shown = [line for line in block.splitlines() if "(turn t" in line]
    assert len(shown) + condensed + _counted(block) == len(sizes)
    assert len(block.encode()) <= budget or (len(shown) == 1 and not condensed)


def _counted(block: str) -> int:
    return sum(
        int(line[1:].split()[0]) for line in block.splitlines() if line.startswith("(") and "earlier turn" in line
    )


def account(text: str, *numbers: int) -> Account:
    return Account(frozenset(f"e{number}" for number in numbers), text)


def test_entries_without_room_are_condensed_to_their_account() -> None:
    """It says that it is a rewrite and for how many turns it stands; nothing is counted twice (BL-5)."""
    block = render_block(entries(9000, 8000, 9000, 8000), total=6, account=account("They booked.\nThen paid.", 1, 2))
    parts = block.split("\n\n")
    assert parts[2:4] == [
        "(2 earlier turns are no longer stored.)",
        "### 2 earlier turns, condensed: what follows is a rewrite by a model\nIn short:\n> They booked.\n> Then paid.",
    ]
    assert [part.split("\n")[0] for part in parts[4:]] == [f"### {TIME} (turn t3)", f"### {TIME} (turn t4)"]


def test_what_an_account_does_not_stand_for_is_counted() -> None:
    """As when one more turn was left out since it was written (BL-5)."""
    block = render_block(entries(9000, 8000, 9000, 8000), total=4, account=account("They booked.", 1))
    assert "### 1 earlier turn, condensed" in block
    assert "(1 earlier turn is left out here for want of room.)" in block


@pytest.mark.parametrize("numbers", [(1, 3), (0, 1), ()])
def test_an_account_of_other_entries_is_not_shown(numbers: tuple[int, ...]) -> None:
    """One that is shown whole, or stored no longer, would be told twice or counted twice (BL-5)."""
    given_entries = entries(9000, 8000, 9000, 8000)
    bare = render_block(given_entries, total=4)
    assert render_block(given_entries, total=4, account=account("They booked.", *numbers)) == bare


def test_an_account_is_shown_up_to_the_room_that_is_left() -> None:
    """Quoting counts; one byte more, and the turns are counted instead (BL-5)."""
    given_entries = entries(9000, 8000, 9000, 8000)
    layout = lay_out(given_entries, total=4)
    frame = len("### 2 earlier turns, condensed: what follows is a rewrite by a model\nIn short: \n\n")
    fitting = account("x" * (layout.account_bytes - frame), 1, 2)
    assert account_fits(layout, account=fitting)
    block = render_block(given_entries, total=4, account=fitting)
    assert "left out" not in block
    assert len(block.encode()) <= BLOCK_BYTES
    over = account(fitting.text + "x", 1, 2)
    assert not account_fits(layout, account=over)
    assert "(2 earlier turns are left out here for want of room.)" in render_block(given_entries, total=4, account=over)


def test_under_500_bytes_no_account_is_asked_for() -> None:
    """(BL-5)"""
    room = [lay_out(entries(9000, older, 9000, 8000), total=4).account_bytes for older in (5426, 5427)]
    assert room == [500, 0]


PIECES = ["\n", "\r", "\x85", "\u2028", "\v", "## ", "### ", "```", "\ud800", "\x00", "(none)", "- ", *LABELS]
tricky_text = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=8).map("".join)
optional_text = st.none() | tricky_text
tricky_calls = st.builds(
    CallRecord,
    name=tricky_text,
    arguments=st.dictionaries(tricky_text, tricky_text | st.integers(), max_size=2) | tricky_text,
    outcome=st.just("error"),
    error=optional_text,
    kind=st.sampled_from(["read", "write", None]),
)
tricky_entries = st.builds(
    Entry,
    turn_id=st.just("t1"),
    entry_id=st.just("e1"),
    completed_at=st.sampled_from([TIME, None]),
    reply=st.builds(Replied, tricky_text) | st.builds(Undelivered, tricky_text) | st.just(NoReplyOwed()),
    triggered_by=optional_text,
    set_out_to=optional_text,
    calls=st.lists(tricky_calls, max_size=2).map(tuple),
    reviewer=optional_text,
    outcome=st.just("blocked"),
    blocked_on=optional_text,
    decision=st.sampled_from(["done", "failed", None]),
)


@given(st.lists(tricky_entries, min_size=1, max_size=3))
def test_no_text_passes_for_structure(given_entries: list[Entry]) -> None:
    """However lines are told apart, those that look like structure are the renderer's own (BL-13)."""
    block = render_block(given_entries, total=3)
    block.encode()
    starts = [_start(line) for line in block.splitlines() if line.startswith(STRUCTURE)]
    assert starts == ["## ", *(start for each in given_entries for start in _expected_starts(each))]
    assert not any(line.lstrip().startswith("```") for line in block.splitlines())


@given(st.lists(tricky_entries, min_size=1, max_size=3))
def test_same_entries_same_bytes(given_entries: list[Entry]) -> None:
    """The same entries give the same bytes, at every look (BL-8)."""
    copies = [replace(each) for each in given_entries]
    assert render_block(given_entries, total=3).encode() == render_block(copies, total=3).encode()


@given(tricky_text)
def test_a_field_can_be_read_back(text: str) -> None:
    """The text of a field comes back from the block exactly (BL-13)."""
    rendered = render_entry(Entry(turn_id="t1", entry_id="e1", reply=NoReplyOwed(), triggered_by=text))
    field = rendered.removeprefix("### Earlier turn\nTriggered by:").removesuffix("\nYou called:\n(none)")
    assert unquote(field) == text


def test_argument_order_does_not_change_the_block() -> None:
    """Members are sorted, so that the order in which a model wrote them changes no byte (BL-3, BL-8)."""
    one, other = CallRecord("n", {"a": 1, "b": 2}), CallRecord("n", {"b": 2, "a": 1})
    assert render_entry(entry(1, calls=(one,))) == render_entry(entry(1, calls=(other,)))


def _start(line: str) -> str:
    return next(start for start in STRUCTURE if line.startswith(start))


def _expected_starts(each: Entry) -> list[str]:
    reply = {"Replied": ["You replied:"], "Undelivered": ["You did NOT reply"], "NoReplyOwed": []}
    return [
        "### ",
        *(["Triggered by:"] if each.triggered_by is not None else []),
        *(["You set out to:"] if each.set_out_to is not None else []),
        "You called:",
        *reply[type(each.reply).__name__],
        *(["Reviewer, on what landed:"] if each.reviewer is not None else []),
        *(["You ended that turn blocked:"] if each.blocked_on is not None else []),
        *(["Turn ended:"] if each.decision == "failed" else []),
    ]


# --- the messages ----------------------------------------------------------------------------------

ROUND = Round(
    set_out_to="Look it up.",
    calls=(CallRecord("search", {"q": "x"}, "success", kind="read"),),
    produced="Found\n## it",
    landed="The search.",
    correction="Ask for the date.",
)
ROUNDS_TEXT = """\
## Already done earlier in this turn

### Round 1
You set out to: Look it up.
You called:
- search({"q": "x"}) → success (read)
You produced:
> Found
> ## it
What landed: The search.
Correction: Ask for the date.

### Round 2
You called:
(none)"""


@pytest.mark.parametrize("rounds", [None, [], ()])
def test_the_task_alone(rounds: Sequence[Round] | None) -> None:
    """Without block and rounds the message is the task's text, byte for byte (BL-4, BL-7)."""
    assert user_message(earlier="", task="Do\n## it ", already_done=rounds) == "Do\n## it "
    assert review_message(task="Do\n## it ", already_done=rounds) == "Do\n## it "


def test_the_block_before_the_task() -> None:
    """The block stands first, byte for byte, and the task under a heading of its own (BL-6, BL-7)."""
    block = render_block([GOLDEN_ENTRY], total=1)
    assert user_message(earlier=block, task="Go on.") == f"{block}\n\n## Task\n\nGo on."


def test_the_three_parts() -> None:
    """What the turn has done stands last; absent parts vanish (BL-7)."""
    rounds = [ROUND, Round()]
    assert user_message(earlier="## E", task="Go.", already_done=rounds) == f"## E\n\n## Task\n\nGo.\n\n{ROUNDS_TEXT}"
    assert user_message(earlier="", task="Go.", already_done=rounds) == f"## Task\n\nGo.\n\n{ROUNDS_TEXT}"


def test_a_reviewer_never_sees_the_block() -> None:
    """The reviewer's message has no parameter for the block (BL-7)."""
    assert list(inspect.signature(review_message).parameters) == ["task", "already_done"]
    assert review_message(task="Go.", already_done=[ROUND, Round()]) == f"## Task\n\nGo.\n\n{ROUNDS_TEXT}"


@pytest.mark.parametrize("task", [None, 5, ["text"]])
def test_a_task_that_is_no_text_never_reaches_a_prompt(task: Any) -> None:
    """With a block or without one (BL-7)."""
    for earlier in ("", HEADING):
        with pytest.raises(InvalidInput, match="task must be text"):
            user_message(earlier=earlier, task=task)
