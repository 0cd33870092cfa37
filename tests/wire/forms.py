"""The texts of the wire contract, made by nothing but the page that describes them."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = list[Any]


def json_text(value: object) -> str:
    """JSON on one line, without a space between its parts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def escaped(value: Any) -> Any:
    """The value as jsonb can hold it, names of members included."""
    if isinstance(value, str):
        return "".join(f"\x1a{ord(each):04x}" if each in "\x00\x1a" else each for each in value)
    if isinstance(value, dict):
        return {escaped(name): escaped(member) for name, member in value.items()}
    return [escaped(each) for each in value] if isinstance(value, list) else value


def jsonb_text(value: object) -> str:
    return json_text(escaped(value))


def time_text(milliseconds: int) -> str:
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"


def encoded_ledger(agent: str, conversation: str) -> str:
    return f"{quote(agent, safe='')}:{quote(conversation, safe='')}"


def work_key(event_ids: Iterable[str]) -> str:
    ids = sorted({each.strip() for each in event_ids} - {""})
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:32] if ids else ""


def step_text(step: Mapping[str, Any]) -> str:
    """The wire form of a step given as its payload, the arguments text of each call, and its content as JSON text."""
    return f"{jsonb_text(step['payload'])}\n{json_text(step['arguments'])}\n{step['content']}"


def message_row(message_id: str, text: str, *, role: str, occurred_at: str) -> Row:
    payload = jsonb_text({"message_id": message_id, "role": role})
    shown = text[:200_000].replace("\x00", " ").encode()[:250_000].decode(errors="ignore")
    return ["message", 1, escaped(f"message:{message_id}"), payload, json_text(text), shown, occurred_at]


def handled_row(message_id: str) -> Row:
    key = escaped(f"handled:{message_id}")
    return ["message_handled", 1, key, jsonb_text({"message_id": message_id}), None, None, ""]


def started_row(turn_id: str, *, work_key: str, occurred_at: str) -> Row:
    return ["turn_started", 1, f"started:{turn_id}", jsonb_text({"work_key": work_key}), None, None, occurred_at]


def payload_name(text: str) -> str:
    """What stands for a tool argument or an error of more than 200 characters."""
    data = text.encode()
    return f"({_size(len(data))} not shown, digest {hashlib.sha256(data).hexdigest()[:8]})"


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    kib = round(count / 1024)  # half to even
    return f"{kib} KiB" if kib < 1024 else f"{count / 1024 / 1024:.1f} MiB"


def completion_digest(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(f"{len(data)}\n".encode() + data)
    return digest.hexdigest()


def job_data(function: str, turn_id: str) -> bytes:
    return zlib.compress(json.dumps([function, None, [turn_id], {}]).encode())
