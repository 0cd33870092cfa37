"""The records and their scripts, over a real Redis; and what only a real one can show."""

import re
from collections.abc import Iterator

import pytest
from redis import Redis

pytest.register_assert_rewrite("tests.records_contract")

from tests.records_contract import *  # noqa: E402, F403  # the same tests over another Redis
from tests.records_contract import LEAD, ODD, completed, whole_life, with_settings  # noqa: E402
from turnledger.checkpoint import CheckpointMisconfigured  # noqa: E402

# What a script may touch beside the keys that it is given, as its head says.
BESIDE_ITS_KEYS = {
    "look": r"turn:[^:]+",
    "open": r"turn:[^:]+",
    "complete": r"turn:[^:]+",
    "window": r"turn:[^:]+",
    "front": r"turn:[^:]+|ledger:.+:pending",
    "finish": r"turn:[^:]+(:steps)?|ledger:.+:(pending|rejected|completions)|rq:(job|results|executions):.+",
    "restore": r"turn:[^:]+",
    "stand": r"turn:[^:]+",
    "overdue": r"turn:[^:]+",
    "prune": r"turn:[^:]+",
}


@pytest.fixture
def redis(redis_url: str) -> Iterator["Redis"]:
    """A real Redis with nothing in it."""
    with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def watched(redis: "Redis", redis_url: str) -> list[list[str]]:
    """Every command that a life of turns gives Redis, those from inside scripts marked by a leading ``lua``."""
    records = with_settings(redis, prefix="ours", rq_prefix="rq")
    seen: list[list[str]] = []
    with (
        Redis.from_url(redis_url, decode_responses=True, encoding_errors="replace") as other,
        other.monitor() as monitor,
    ):
        for number, ledger in enumerate([LEAD, *ODD]):
            whole_life(records, ledger, f"life{number}")
        redis.echo("the end")
        for command in monitor.listen():
            if "the end" in command["command"]:
                return seen
            words = command["command"].split(" ")
            seen.append(["lua", *words] if command["client_type"] == "lua" else words)
    raise AssertionError("the monitor ended")


def test_scripts_touch_the_keys_they_are_given_and_those_their_heads_name(redis: "Redis", redis_url: str) -> None:
    """Seen from inside Redis, command by command (CK-14)."""
    records = with_settings(redis, prefix="ours")
    names = {str(script.sha): name for name, script in records._scripts.items()}
    run: set[str] = set()
    name, given = "", set[str]()
    for words in watched(redis, redis_url):
        if words[0].upper() == "EVALSHA":
            name, given = names[words[1]], set(words[3 : 3 + int(words[2])])
            run.add(name)
        elif words[0] == "lua" and words[1].upper() != "TIME":
            keys = words[2:] if words[1].upper() in ("EXISTS", "DEL") else words[2:3]
            beside = [key.removeprefix("ours:") for key in keys if key not in given]
            assert [key for key in beside if not re.fullmatch(BESIDE_ITS_KEYS.get(name, "none"), key)] == [], name
    assert run == set(names.values())


def test_a_user_who_may_touch_the_two_prefixes_alone_is_enough(redis: "Redis", redis_url: str) -> None:
    """And another key is out of his reach (CK-14)."""
    redis.acl_setuser(
        "engine", enabled=True, passwords=["+secret"], keys=["{ours}:*", "theirs:*"], commands=["+@all", "-@dangerous"]
    )
    try:
        url = redis_url.replace("redis://", "redis://engine:secret@")
        with Redis.from_url(url, decode_responses=True) as restricted:
            records = with_settings(restricted, prefix="{ours}", rq_prefix="theirs")
            for number, ledger in enumerate(ODD):
                whole_life(records, ledger, f"life{number}")
            completed(records, "t1")
            assert records.stand("t1", ledger=LEAD) == (0, "")
            with pytest.raises(CheckpointMisconfigured, match="refuse"):
                completed(with_settings(restricted, prefix="{another}"), "t1")
    finally:
        redis.acl_deluser("engine")


def test_every_script_runs_after_redis_forgot_them(redis: "Redis") -> None:
    """A restart or SCRIPT FLUSH: they are loaded again by themselves (QU-7)."""
    records = with_settings(redis)
    whole_life(records, LEAD, "before")
    redis.script_flush()
    whole_life(records, LEAD, "after")
