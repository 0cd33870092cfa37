"""What all scripts touch, and with which commands: names of ledgers, prefixes, one slot, Redis 6.2."""

import re
from collections.abc import Sequence
from importlib.resources import files

import pytest
from redis import Redis
from redis.crc import key_slot

from tests.records_contract.playing import (
    ODD,
    completed,
    members,
    opened,
    record_of,
    whole_life,
    with_settings,
)
from turnledger.checkpoint.records import Records
from turnledger.store import LedgerName
from turnledger.store.json_text import encode_json

# Commands and forms that Redis 6.2 has; whoever adds one looks up since when it is there.
COMMANDS_OF_REDIS_6_2 = re.compile(
    "DEL|EXISTS|GET|HDEL|HEXISTS|HGET|HGETALL|HINCRBY|HLEN|HMGET|HSET|HSETNX|HSTRLEN|INCR|LINSERT|LLEN|LPOS|LPUSH|LRANGE"
    "|LREM|LTRIM|PERSIST|PEXPIRE|PEXPIREAT|PTTL|RENAME|RPUSH|SADD|SCARD|SET|SISMEMBER|SMEMBERS|SREM|TIME|TYPE|ZADD|ZCARD"
    "|ZRANGEBYSCORE|ZREM|ZSCORE"
)


@pytest.mark.parametrize("ledger", ODD, ids=lambda ledger: ledger.agent)
def test_ledgers_with_odd_names_go_through_every_script(records: Records, ledger: LedgerName) -> None:
    """And meet no other ledger (ID-6)."""
    for other in ODD:
        completed(records, f"other-{ODD.index(other)}", ledger=other)
    before = {other: members(records, records.keys.pending(other)) for other in ODD}
    whole_life(records, ledger, "life")
    assert {other: members(records, records.keys.pending(other)) for other in ODD} == before
    assert [record_of(records, f"life-{name}")["state"] for name in ("done", "broken", "bad")] == [
        "committed",
        "failed",
        "committed",
    ]


def test_all_keys_stand_under_the_two_prefixes(redis: "Redis") -> None:
    """So that an ACL may be restricted to them (CK-14)."""
    records = with_settings(redis, prefix="{ours}", rq_prefix="theirs")
    redis.set("neighbour", "stays")
    for number, ledger in enumerate(ODD):
        whole_life(records, ledger, f"life{number}")
        completed(records, f"pending{number}", ledger=ledger)
    keys = set(redis.scan_iter()) - {"neighbour"}
    assert keys
    assert [key for key in keys if not str(key).startswith(("{ours}:", "theirs:"))] == []
    assert redis.get("neighbour") == "stays"


def test_with_one_hash_tag_all_keys_are_in_one_slot(redis: "Redis") -> None:
    """Ours and RQ's, whatever the names of ledgers hold (CK-14)."""
    records = with_settings(redis, prefix="{ours}", rq_prefix="{ours}:rq")
    for number, ledger in enumerate(ODD):
        whole_life(records, ledger, f"life{number}")
        completed(records, f"pending{number}", ledger=ledger)
    assert {key_slot(str(key).encode()) for key in redis.scan_iter()} == {key_slot(b"ours")}


def scripts() -> Sequence[tuple[str, str]]:
    folder = files("turnledger.checkpoint").joinpath("scripts")
    return [(item.name, item.read_text(encoding="utf-8")) for item in folder.iterdir() if item.name.endswith(".lua")]


@pytest.mark.parametrize(("name", "source"), scripts(), ids=[name for name, _ in scripts()])
def test_a_script_uses_only_what_redis_6_2_has(name: str, source: str) -> None:
    """No newer commands, no server modules, and content is never parsed (CK-14)."""
    code = re.sub(r"--.*", "", source)
    used = re.findall(r"redis\.call\(\s*'([A-Za-z.]+)'", code)
    assert [command for command in used if not COMMANDS_OF_REDIS_6_2.fullmatch(command)] == []
    assert not re.search(r"cjson|cmsgpack|struct\.|loadstring|redis\.pcall|KEYS\b.*(SCAN|'KEYS')", code)


@pytest.mark.parametrize(("name", "source"), scripts(), ids=[name for name, _ in scripts()])
def test_the_head_of_a_script_says_what_it_touches(name: str, source: str) -> None:
    """Every key by its number, every argument that stands for keys (CK-14)."""
    head = "\n".join(line for line in source.splitlines() if line.startswith("--"))
    code = re.sub(r"--.*", "", source)
    used = {int(number) for number in re.findall(r"KEYS\[(\d+)\]", code)}
    listed = re.search(r"KEYS (.*?)(ARGV|Answer)", head.replace("\n--", " "), re.DOTALL)
    numbers = {int(number) for number in re.findall(r"\b(\d+) [a-z]", listed[1])} if listed else set()
    assert used == numbers or name.startswith("_")


def test_a_record_travels_as_texts_that_utf8_can_carry(records: Records) -> None:
    """Whatever was in them: JSON spells the rest (EV-10)."""
    torture = "\x00 \ud800 𝄞 \u202e \\u0000 \x1a"
    claim = opened(records, "t1", triggered_by=encode_json(torture), earlier="𝄞\u202e\x00\x1a")
    records.save(claim, fields={"bootstrap": encode_json({torture: [torture]})}, steps=[f"a\n{encode_json(torture)}"])
    record, steps = records.read("t1")
    assert (record.triggered_by, record.bootstrap, record.earlier) == (torture, {torture: [torture]}, "𝄞\u202e\x00\x1a")
    assert steps == [f"a\n{encode_json(torture)}"]
