"""Older entries that a block has no room for: their account, from the commit to the next start."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.configuring import write_config
from tests.endpoint import Asked, Endpoint, computing, raw, saying
from tests.engine import Engine
from turnledger.checkpoint import Turn
from turnledger.checkpoint.budgets import Budgets
from turnledger.checkpoint.keys import encode_ledger
from turnledger.store import Database, LedgerName, Replied, StoreSettings
from turnledger.store.accounts import find_account
from turnledger.store.block import Account
from turnledger.store.ledger import read_head
from turnledger.store.rewriting import Rewriter
from turnledger.workers.rewriting import Condenser, OpenAIRewriter, RewriteSettings
from turnledger.workers.rewriting.time_left import TimeLeft

LEDGER = LedgerName("lead", "jira:POC-1")
LONG = "A long answer. " * 550  # 8,250 bytes: two of them fill a block


@pytest.fixture
def endpoint(endpoint: Endpoint) -> Endpoint:
    endpoint.says(saying("They asked, and were answered."))
    return endpoint


@pytest.fixture
def engine_settings() -> dict[str, Any]:
    """A deployment that rewrites."""
    return {"rewriting": "on"}


def converse(engine: Engine, turns: int, *, reply: str = LONG, conversation: str = LEDGER.conversation) -> list[Turn]:
    made = []
    for _ in range(turns):
        turn = engine.start(conversation)
        turn.complete(reply=Replied(reply))
        made.append(turn)
    engine.commit_all()
    return made


def condenser(engine: Engine, endpoint: Endpoint | None, *, database: Database | None = None) -> Condenser:
    settings = endpoint and RewriteSettings(
        rewrite_base_url=endpoint.url, rewrite_model="small", rewrite_key=SecretStr("sk-1"), rewrite_call_s=5.0
    )
    return Condenser(
        database=database or engine.database,
        records=engine.records,
        rewriter=OpenAIRewriter(settings).within if settings else None,
        within_s=20.0,
        stopped=lambda: False,
    )


def stored(engine: Engine) -> Account | None:
    with engine.database.transaction() as connection:
        head = read_head(connection, LEDGER)
        return find_account(connection, head.ledger_id) if head else None


def queued(engine: Engine) -> list[str]:
    """The ledgers whose account is asked for, as the jobs name them."""
    jobs = engine.redis.lrange(engine.keys.rewrites, 0, -1)
    return [job for job in jobs if job.startswith("condense-")]


def test_a_commit_that_outgrows_the_block_asks_for_one_account(engine: Engine) -> None:
    """However often it happens before a worker gets to it; short conversations ask for none (BL-8)."""
    converse(engine, 1)
    assert queued(engine) == []
    converse(engine, 3)
    converse(engine, 1)
    converse(engine, 5, reply="Short", conversation="jira:POC-2")
    assert len(queued(engine)) == 1


def test_the_account_is_in_the_next_block_and_no_start_calls_a_model(engine: Engine, endpoint: Endpoint) -> None:
    """The model sees the entries that have no room, whole, and nothing else (BL-5, BL-8)."""
    turns = converse(engine, 4)
    assert condenser(engine, endpoint).condense(LEDGER) == "written"
    asked = endpoint.texts
    block = engine.start().earlier
    assert "### 2 earlier turns, condensed" in block
    assert "In short: They asked, and were answered." in block
    assert endpoint.texts == asked
    assert [turn.turn_id in asked[0] for turn in turns] == [True, True, False, False]
    assert asked[0].count(LONG.strip()) == 2


def test_an_account_that_is_there_is_not_asked_for_again(engine: Engine, endpoint: Endpoint) -> None:
    """It is keyed by the entries that it stands for (BL-8)."""
    converse(engine, 4)
    assert [condenser(engine, endpoint).condense(LEDGER) for _ in range(2)] == ["written", "current"]
    assert len(endpoint.texts) == 1
    converse(engine, 1)
    assert condenser(engine, endpoint).condense(LEDGER) == "written"
    account = stored(engine)
    assert account is not None
    assert len(account.entry_ids) == 3


def test_entries_that_come_while_the_model_writes_are_not_forgotten(engine: Engine, endpoint: Endpoint) -> None:
    """(BL-8)"""
    converse(engine, 4)

    def meanwhile(_: Asked) -> str:
        if len(endpoint.texts) == 1:
            converse(engine, 1)
        return "They asked."

    endpoint.says(computing(meanwhile))
    assert condenser(engine, endpoint).condense(LEDGER) == "written"
    account = stored(engine)
    assert account is not None
    assert len(account.entry_ids) == 3


@pytest.mark.parametrize("trouble", ["no model", "fails", "blank", "too long", "no budget"])
def test_without_an_account_the_turns_are_counted(engine: Engine, endpoint: Endpoint, trouble: str) -> None:
    """Whatever is wrong with the model, nothing waits for it and nothing is cut (BL-5, RW-4)."""
    converse(engine, 4)
    answers = {"fails": raw(b"no such thing", status=500), "blank": saying("  "), "too long": saying("x" * 7_000)}
    endpoint.says(answers.get(trouble, saying("They asked.")))
    if trouble == "no budget":
        Budgets(engine.records).set_limit(0, agent="lead")
    assert condenser(engine, None if trouble == "no model" else endpoint).condense(LEDGER) == "unavailable"
    assert "(2 earlier turns are left out here for want of room.)" in engine.start().earlier
    assert len(endpoint.texts) == {"no model": 0, "no budget": 0, "too long": 2}.get(trouble, 1)


def test_a_rewriter_that_cannot_be_made_leaves_the_count(engine: Engine) -> None:
    """As where its client is not installed (BL-5)."""
    converse(engine, 4)

    def broken(_: TimeLeft) -> AbstractContextManager[Rewriter]:
        raise ImportError

    made = Condenser(
        database=engine.database, records=engine.records, rewriter=broken, within_s=20.0, stopped=lambda: False
    )
    assert made.condense(LEDGER) == "unavailable"


def test_what_an_account_costs_counts_against_the_budgets(engine: Engine, endpoint: Endpoint) -> None:
    """(RW-4)"""
    converse(engine, 4)
    endpoint.says(saying("They asked.", tokens=321))
    condenser(engine, endpoint).condense(LEDGER)
    assert Budgets(engine.records).balances().deployment.spent == 321


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_ledger_within_its_budget_needs_no_account(engine: Engine, endpoint: Endpoint, turns: int) -> None:
    """(BL-8)"""
    converse(engine, turns)
    assert condenser(engine, endpoint).condense(LEDGER) == "not needed"
    assert endpoint.texts == []


def test_while_the_feature_is_off_no_model_is_asked(engine: Engine, endpoint: Endpoint, tmp_path: Path) -> None:
    """(RT-2)"""
    converse(engine, 4)
    off = Database(StoreSettings(database_url=engine.database_url, config=write_config(tmp_path, enabled=False)))
    assert condenser(engine, endpoint, database=off).condense(LEDGER) == "not needed"
    assert endpoint.texts == []
    off.close()


def test_a_job_of_another_queue_may_be_run_by_the_allow_list(engine: Engine) -> None:
    """Its only argument is the ledger's name as keys have it (QU-2)."""
    converse(engine, 4)
    (job,) = queued(engine)
    found = engine.redis.hget(f"rq:job:{job}", "description")
    assert found == job
    assert encode_ledger(LEDGER) not in job
