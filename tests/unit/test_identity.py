"""Names: agents, conversation keys, ledgers, turns and work keys."""

import hashlib
from dataclasses import FrozenInstanceError

import pytest

from turnledger.store.errors import InvalidInput
from turnledger.store.identity import (
    ConversationKey,
    LedgerName,
    check_turn_id,
    check_work_key,
    new_entry_id,
    new_turn_id,
    work_key,
)


@pytest.mark.parametrize(
    ("text", "source", "local"),
    [
        ("jira:POC-7", "jira", "POC-7"),
        ("slack:C9:1718.001", "slack", "C9:1718.001"),
        ("a_b-c9:x", "a_b-c9", "x"),
        ("github:acme/api#42", "github", "acme/api#42"),
        ("s:" + "x" * 510, "s", "x" * 510),
        ("s:" + "😀" * 383, "s", "😀" * 383),
    ],
)
def test_conversation_keys_are_taken_apart(text: str, source: str, local: str) -> None:
    """A key is its source, a colon and the rest, up to 512 characters and 1,536 bytes (ID-1)."""
    key = ConversationKey.parse(text)
    assert (key.source, key.local, str(key)) == (source, local, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "jira",
        "jira:",
        ":POC-7",
        "Jira:POC-7",
        "9a:x",
        "_a:x",
        "ji ra:x",
        "jira:a\nb",
        "jira:a\x00",
        "jira:a\x85",
        "jira:a\x7f",
        "jira:\ud800",
        "jira:POC-7\n",
        "s:" + "x" * 511,
        "s:" + "😀" * 384,
        None,
        7,
        b"jira:x",
    ],
)
def test_other_conversation_keys_are_refused(text: object) -> None:
    """Anything else is refused by an error that says what is wrong (ID-1)."""
    with pytest.raises(InvalidInput, match="conversation key") as caught:
        ConversationKey.parse(text)
    assert caught.value.where == "conversation"


@pytest.mark.parametrize("agent", ["lead", "a:b", "x" * 200, "é" * 200, "😀" * 128, "the boss"])
def test_agents(agent: str) -> None:
    """A handle has 1 to 200 characters and at most 512 bytes (ID-6)."""
    assert LedgerName(agent, "jira:POC-7").agent == agent


@pytest.mark.parametrize("agent", ["", "x" * 201, "😀" * 129, "a\nb", "a\x00", "\ud800", "a\x9f", None, 3])
def test_other_agents_are_refused(agent: object) -> None:
    """Control characters, lone surrogates and over-long handles are refused (ID-6)."""
    with pytest.raises(InvalidInput, match="agent") as caught:
        LedgerName(agent, "jira:POC-7")  # type: ignore[arg-type]  # wrong types are tested too
    assert caught.value.where == "agent"


def test_ledger_names_do_not_collide() -> None:
    """The pair is compared, never a joined text (ID-6, ID-7)."""
    names = {LedgerName("ceo", "a:b"), LedgerName("ceo:a", "b:c"), LedgerName("lead", "a:b"), LedgerName("ceo", "a:c")}
    assert len(names) == 4


def test_ledger_names_are_ordered() -> None:
    """Ledgers are sorted by agent and conversation, which is the order in which they are locked."""
    assert sorted([LedgerName("b", "a:1"), LedgerName("a", "b:1"), LedgerName("a", "a:1")]) == [
        LedgerName("a", "a:1"),
        LedgerName("a", "b:1"),
        LedgerName("b", "a:1"),
    ]


def test_ledger_names_are_frozen() -> None:
    """A name that was checked cannot become another one."""
    name = LedgerName("a", "b:1")
    with pytest.raises(FrozenInstanceError):
        name.agent = "c"  # type: ignore[misc]  # the fault that is tested


@pytest.mark.parametrize(
    ("conversation", "recorded"),
    [("event:1", False), ("event:jira:POC-7", False), ("events:1", True), ("jira:event:1", True)],
)
def test_source_event_is_never_recorded(conversation: str, recorded: bool) -> None:  # noqa: FBT001 - parametrized
    """A key of source `event` is not recorded, also when written by hand (ID-4)."""
    assert LedgerName("lead", conversation).recorded is recorded


@pytest.mark.parametrize("text", ["", "a", "x" * 200, "slack:Ev1 + Ev2", "é"])
def test_work_keys_are_used_as_given(text: str) -> None:
    """A work key is empty or has 1 to 200 printable characters (ID-5)."""
    assert check_work_key(text) == text


@pytest.mark.parametrize("text", ["x" * 201, "a\nb", "a\x00", "\ud800", None, 1])
def test_other_work_keys_are_refused(text: object) -> None:
    """Over-long or unprintable work keys are refused (ID-5)."""
    with pytest.raises(InvalidInput, match="work_key"):
        check_work_key(text)


def test_work_key_is_a_digest_of_sorted_ids() -> None:
    """The key is the first half of the SHA-256 of the trimmed, unique, sorted ids (ID-5)."""
    expected = hashlib.sha256(b"Ev1\nEv2").hexdigest()[:32]
    assert work_key(["Ev2", " Ev1\n", "Ev1"]) == expected
    assert work_key(iter(["Ev1", "Ev2"])) == expected
    assert len(expected) == 32


@pytest.mark.parametrize("ids", [[], [""], [" ", "\n"]])
def test_no_ids_give_the_empty_key(ids: list[str]) -> None:
    """Without ids there is no key, and nothing merges (ID-5)."""
    assert work_key(ids) == ""


@pytest.mark.parametrize("ids", ["Ev1", b"Ev1", [1], [None], ["a\nb"], ["\ud800"]])
def test_ids_that_would_mix_up_are_refused(ids: object) -> None:
    """One string is no list of ids, and an id that holds the separator could pass for two (ID-5)."""
    with pytest.raises(InvalidInput, match="event"):
        work_key(ids)  # type: ignore[arg-type]  # wrong types are tested too


@pytest.mark.parametrize("text", ["t", "A-z_09", "x" * 64])
def test_turn_ids(text: str) -> None:
    """A turn id has 1 to 64 of the allowed characters (ID-8)."""
    assert check_turn_id(text) == text


@pytest.mark.parametrize("text", ["", "x" * 65, "a b", "a:b", "é", "a\n", None, 5])
def test_other_turn_ids_are_refused(text: object) -> None:
    """Anything else is refused (ID-8)."""
    with pytest.raises(InvalidInput, match="turn_id"):
        check_turn_id(text)


def test_minted_ids_are_valid_and_unique() -> None:
    """Ids that we mint are valid turn ids and differ each time (ID-8, EN-10)."""
    ids = {check_turn_id(new_turn_id()) for _ in range(100)} | {new_entry_id() for _ in range(100)}
    assert len(ids) == 200


def test_refusals_show_little_of_long_input() -> None:
    """An error about a huge key stays short enough to be logged."""
    with pytest.raises(InvalidInput) as caught:
        ConversationKey.parse("jira:" + "x" * 100_000)
    assert len(str(caught.value)) < 300
