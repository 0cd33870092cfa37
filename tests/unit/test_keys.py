"""Keys in Redis: one place makes them, and no two ledgers share one."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from turnledger.checkpoint.keys import Keys, decode_ledger, encode_ledger, job_id
from turnledger.store import LedgerName

KEYS = Keys("{turnledger}", "rq", "commits")


agents = st.text(st.sampled_from("ab:%{}/ é𝄞*?[]\\"), min_size=1, max_size=8)
conversations = agents.map(lambda text: f"jira:{text}")
ledgers = st.builds(LedgerName, agents, conversations)


def of_ledger(ledger: LedgerName) -> list[str]:
    return [KEYS.open(ledger), KEYS.pending(ledger), KEYS.rejected(ledger), KEYS.completions(ledger)]


@given(ledgers, ledgers)
@example(LedgerName("ceo", "a:b"), LedgerName("ceo:a", "b:b"))
@example(LedgerName("ceo", "a:b:pending"), LedgerName("ceo", "a:b"))
@example(LedgerName("a%3Ab", "c:d"), LedgerName("a:b", "c:d"))
def test_no_two_ledgers_share_a_key(one: LedgerName, other: LedgerName) -> None:
    """("ceo", "a:b") and ("ceo:a", "b") never collide (ID-6)."""
    assert bool(set(of_ledger(one)) & set(of_ledger(other))) == (one == other)
    assert len(set(of_ledger(one))) == 4


@given(ledgers)
def test_a_ledger_is_read_back_from_its_keys(ledger: LedgerName) -> None:
    """Whatever its names hold (ID-6)."""
    assert decode_ledger(encode_ledger(ledger)) == ledger


@given(ledgers)
def test_a_name_can_bring_neither_separator_nor_hash_tag_nor_wildcard_into_a_key(ledger: LedgerName) -> None:
    """The parts of a key are told apart by colons, its slot by braces (ID-6, CK-14)."""
    assert re.fullmatch(r"[A-Za-z0-9%._~-]+:[A-Za-z0-9%._~-]+", encode_ledger(ledger))


def test_the_longest_names_make_a_key_that_redis_takes() -> None:
    """512 and 1,536 bytes of names (ID-1, ID-6)."""
    ledger = LedgerName("𝄞" * 128, "jira:" + "漢" * 507)
    assert max(len(key) for key in of_ledger(ledger)) < 7_000
    assert decode_ledger(encode_ledger(ledger)) == ledger


@given(ledgers, st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_with_one_hash_tag_all_keys_are_in_one_slot(ledger: LedgerName, turn_id: str) -> None:
    """Ours and RQ's (CK-14)."""
    keys = Keys("{x}", "{x}:rq", "commits")
    every = [keys.record(turn_id), keys.steps(turn_id), keys.turns, keys.backlog, keys.queue, keys.queues]
    every += [keys.job(turn_id), keys.failed_registry, *(keys.open(ledger), keys.pending(ledger))]
    every += [keys.rejected(ledger), keys.completions(ledger)]
    assert {key_slot(key.encode()) for key in every} == {key_slot(b"x")}


@pytest.mark.parametrize("turn_id", ["t1", "steps", "turns", "a" * 64])
def test_the_keys_of_a_turn_are_no_other_keys(turn_id: str) -> None:
    """A turn_id holds no colon, so that a record is never another turn's steps (ID-8)."""
    own = {KEYS.record(turn_id), KEYS.steps(turn_id), KEYS.job(turn_id)}
    assert len(own) == 3
    assert not own & {KEYS.turns, KEYS.backlog, KEYS.queue, KEYS.queues, KEYS.failed_registry}
    assert job_id(turn_id) == f"turn-{turn_id}"


def test_the_keys_are_those_that_the_design_names() -> None:
    """What operators and rq-dashboard look for (QU-2)."""
    ledger = LedgerName("lead", "jira:POC-7")
    assert of_ledger(ledger) == [
        "{turnledger}:ledger:lead:jira%3APOC-7:open",
        "{turnledger}:ledger:lead:jira%3APOC-7:pending",
        "{turnledger}:ledger:lead:jira%3APOC-7:rejected",
        "{turnledger}:ledger:lead:jira%3APOC-7:completions",
    ]
    assert (KEYS.record("t"), KEYS.steps("t")) == ("{turnledger}:turn:t", "{turnledger}:turn:t:steps")
    assert (KEYS.job("t"), KEYS.queue, KEYS.queues, KEYS.failed_registry) == (
        "rq:job:turn-t",
        "rq:queue:commits",
        "rq:queues",
        "rq:failed:commits",
    )
