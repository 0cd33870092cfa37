"""An engine of a few functions that knows turnledger by docs/reference/wire-contract.md alone.

It imports nothing of turnledger, and could be written in any language. What it leaves out, the page says, too.
"""

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.wire.forms import (
    Row,
    completion_digest,
    encoded_ledger,
    handled_row,
    job_data,
    json_text,
    message_row,
    started_row,
    step_text,
    time_text,
)
from tests.wire.servers import Servers

Json = dict[str, Any]
Ledger = tuple[str, str]  # agent and conversation key
UNKNOWN_CURSOR = [None, 0, -1, None]
NO_FIELDS: Mapping[str, str] = {}


class Refused(Exception):
    """What was answered instead of what was asked for: its first word, and what came with it."""


@dataclass(frozen=True)
class View:
    """What Redis knows of a ledger: its completed and uncommitted turns, and its open ones, as `look` answers."""

    now_ms: int
    completions: str
    uncommitted: list[list[str]]
    open: list[list[str]]

    @property
    def ids(self) -> list[str]:
        return [turn[0] for turn in self.uncommitted]

    def handled(self) -> set[str]:
        done = [turn for turn in self.uncommitted if not turn[9]]
        return {message_id for turn in done for message_id in json.loads(turn[7] or "[]")}

    def refuse(self, work_key: str, *, turn_id: str) -> None:
        """Raises Refused where a run of the work key is completed or open."""
        for turn in self.uncommitted:
            if work_key and turn[2] == work_key and not turn[9] and turn[0] != turn_id:
                raise Refused("handled", turn[0], turn[3])
        for other in self.open:
            if work_key and other[2] == work_key and other[0] != turn_id:
                raise Refused("running", other[0], other[1])


@dataclass
class Turn:
    """One turn that this engine holds: its claim, the record's fields, and every step in wire form."""

    turn_id: str
    ledger: Ledger
    fields: dict[str, str]
    steps: list[str] = field(default_factory=list)
    sent: int = 0

    @property
    def owner(self) -> str:
        return self.fields["owner"]

    @property
    def revision(self) -> int:
        return int(self.fields["revision"])

    @property
    def earlier(self) -> str:
        return self.fields["earlier"]

    @property
    def cursor(self) -> list[Any]:
        found: list[Any] = json.loads(self.fields["cursor"])
        return found

    @property
    def unsent(self) -> list[str]:
        return self.steps[self.sent :]


class Engine:
    """Starts, saves, parks, resumes, completes and fails turns; `block` is asked for a ledger's block."""

    def __init__(self, servers: Servers, *, block: Callable[[str, str], str]) -> None:
        self._servers = servers
        self._block = block
        found = servers.postgres.execute("SELECT version_num FROM alembic_version").fetchall()
        if found != [(servers.contract["schema_revision"],)]:
            raise Refused("schema", found)
        ((self._deployment,),) = servers.query("read_deployment")

    # a start

    def start(self, ledger: Ledger, *, ask: str, work_key: str = "", messages: Mapping[str, str] | None = None) -> Turn:
        """Begin a run: when this returns, messages and start are in Postgres and the record is in Redis."""
        turn_id, view = str(uuid.uuid4()), self._look(ledger)
        view.refuse(work_key, turn_id=turn_id)
        sent, rows = messages or {}, _inbound(turn_id, work_key, now_ms=view.now_ms, messages=messages or {})
        head, known = self._begin(ledger, turn_id, work_key=work_key, rows=rows, sent=list(sent))
        fields = {
            **self._first_fields(ledger, view, ask=ask, work_key=work_key, sent=list(sent)),
            "handled": json_text([each for each in sent if each in known or each in view.handled()]),
            "cursor": json_text([head[0], head[1], head[2] - 1, turn_id, view.ids]),
            "earlier": self._block(*ledger),
        }
        turn = Turn(turn_id, ledger, fields)
        if self._open(turn) != view.completions and work_key:
            self._refuse_overtaken(turn, ledger_id=head[0])
        return turn

    def start_unannounced(self, ledger: Ledger, *, ask: str, messages: Mapping[str, str]) -> Turn:
        """Begin a run while Postgres is away: what it should have been told travels with the completion."""
        turn_id, view = str(uuid.uuid4()), self._look(ledger)
        rows = _inbound(turn_id, "", now_ms=view.now_ms, messages=messages)
        fields = {
            **self._first_fields(ledger, view, ask=ask, work_key="", sent=list(messages)),
            "cursor": json_text([*UNKNOWN_CURSOR, view.ids]),
            "handled": "[]",
            "earlier": "",
            "before": json_text(rows),
        }
        turn = Turn(turn_id, ledger, fields)
        self._open(turn)
        return turn

    def start_unrecorded(self, ledger: Ledger, *, ask: str) -> Turn:
        """Begin a run of which nothing goes to Postgres."""
        turn_id, view = str(uuid.uuid4()), self._look(ledger)
        first = self._first_fields(ledger, view, ask=ask, work_key="", sent=[])
        nothing = {"recorded": "0", "cursor": json_text([*UNKNOWN_CURSOR, []]), "handled": "[]", "earlier": ""}
        turn = Turn(turn_id, ledger, {**first, **nothing})
        self._open(turn)
        return turn

    def _look(self, ledger: Ledger) -> View:
        places = [self._servers.ledger(ledger, name) for name in ("pending", "rejected", "open", "completions")]
        places.append(self._servers.record("-"))
        now_ms, completions, _, pending, rejected, opened = self._servers.run(
            "look", places, self._servers.key("turn:")
        )
        uncommitted = sorted([*pending, *rejected], key=lambda turn: int(turn[5] or 0))
        return View(int(now_ms), completions, uncommitted, opened)

    def _first_fields(self, ledger: Ledger, view: View, *, ask: str, work_key: str, sent: list[str]) -> dict[str, str]:
        return {
            "owner": uuid.uuid4().hex,
            "revision": "1",
            "format": self._servers.contract["record_format"],
            "state": "running",
            "epoch": "1",
            "slice": "1",
            "ledger": encoded_ledger(*ledger),
            "work_key": work_key,
            "recorded": "1",
            "entry_id": str(uuid.uuid4()),
            "started_at": time_text(view.now_ms),
            "triggered_by": json_text(ask),
            "message_ids": json_text(sent),
        }

    def _begin(
        self, ledger: Ledger, turn_id: str, *, work_key: str, rows: list[Row], sent: list[str]
    ) -> tuple[tuple[int, int, int, int], set[str]]:
        """The head as the run leaves it, and which of the messages were handled before."""
        agent, conversation = ledger
        self._servers.query("create_ledgers", agents=[agent], conversations=[conversation])
        with self._servers.postgres.transaction():
            ((ledger_id, version, next_seq, turns),) = self._servers.query(
                "lock_ledger", agent=agent, conversation=conversation
            )
            self._refuse_answered(ledger_id, work_key)
            keys = [row[2] for row in rows] + [handled_row(each)[2] for each in sent]
            found = self._servers.query("find_keys", ledger_ids=[ledger_id] * len(keys), keys=keys)
            known = {key for _, key in found}
            run = {"turn_id": turn_id, "ledger_id": ledger_id, "work_key": work_key}
            self._servers.query("insert_run", **run, epoch=1, started_at=rows[-1][6])
            fresh = [row for row in rows if row[2] not in known]
            head = (ledger_id, version, next_seq, turns)
            return self._append(head, turn_id, fresh), {each for each in sent if handled_row(each)[2] in known}

    def _append(self, head: tuple[int, int, int, int], turn_id: str, rows: list[Row]) -> tuple[int, int, int, int]:
        ledger_id, version, next_seq, turns = head
        names = ("types", "schema_versions", "keys", "payloads", "contents", "search_texts", "occurred_at")
        columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        end = next_seq + len(rows)
        numbered = {"seqs": list(range(next_seq, end)), "turn_ids": [turn_id] * len(rows)}
        self._servers.query("insert_events", ledger_id=ledger_id, history_version=version, **numbered, **columns)
        self._servers.query("advance_heads", ledger_ids=[ledger_id], next_seqs=[end], turn_counts=[turns])
        return ledger_id, version, end, turns

    def _refuse_answered(self, ledger_id: int, work_key: str) -> None:
        if not work_key:
            return
        for _, _, first, entry_id in self._servers.query("find_answered", ledger_ids=[ledger_id], work_keys=[work_key]):
            raise Refused("handled", first, entry_id)

    def _open(self, turn: Turn) -> str:
        """How many completions the ledger has seen by now."""
        servers, ledger = self._servers, turn.ledger
        places = [servers.record(turn.turn_id), servers.ledger(ledger, "open"), servers.ledger(ledger, "completions")]
        places += [servers.key("turns"), servers.ledger(ledger, "pending"), servers.ledger(ledger, "rejected")]
        head = [servers.key("turn:"), turn.turn_id, turn.fields["work_key"], turn.owner]
        times = [servers.contract["lease_ms"], servers.contract["unfinished_expiry_ms"]]
        answer = servers.run("open", places, *head, *times, *_flat(turn.fields))
        if answer[0] != "opened":
            raise Refused(*answer)
        return str(answer[1])

    def _refuse_overtaken(self, turn: Turn, *, ledger_id: int) -> None:
        """A turn of the ledger completed while this one started: if it did the same work, this one ends."""
        try:
            self._look(turn.ledger).refuse(turn.fields["work_key"], turn_id=turn.turn_id)
            self._refuse_answered(ledger_id, turn.fields["work_key"])
        except Refused:
            self.end(turn, state="abandoned", code="agent_run_failed")
            raise

    # while it runs

    def save(
        self,
        turn: Turn,
        *,
        steps: Sequence[Json] = (),
        lease_ms: int | None = None,
        fields: Mapping[str, str] = NO_FIELDS,
    ) -> None:
        """Append steps, set fields of the record, and keep the lease, or give it up with 0."""
        turn.steps += map(step_text, steps)
        operation = uuid.uuid4().hex
        self.send_save(turn, operation=operation, lease_ms=lease_ms, fields=fields)
        turn.sent = len(turn.steps)
        turn.fields = {**turn.fields, **fields, "revision": str(turn.revision + 1)}

    def send_save(
        self, turn: Turn, *, operation: str, lease_ms: int | None = None, fields: Mapping[str, str] = NO_FIELDS
    ) -> None:
        """May be repeated under its operation for as long as its answer has not come."""
        contract = self._servers.contract
        places = [self._servers.record(turn.turn_id), self._servers.steps(turn.turn_id), self._servers.key("turns")]
        lease = contract["lease_ms"] if lease_ms is None else lease_ms
        head = [turn.turn_id, turn.owner, turn.revision, operation, lease, contract["unfinished_expiry_ms"]]
        answer = self._servers.run("save", places, *head, 2 * len(fields), *_flat(fields), *turn.unsent)
        if answer[0] != "saved":
            raise Refused(*answer)

    def renew(self, turn: Turn) -> bool:
        contract = self._servers.contract
        places = [self._servers.record(turn.turn_id), self._servers.steps(turn.turn_id)]
        answer = self._servers.run("renew", places, turn.owner, contract["lease_ms"], contract["unfinished_expiry_ms"])
        return bool(int(answer) == 1)

    def park(self, turn: Turn, *, reason: str, steps: Sequence[Json] = (), bootstrap: object = None) -> None:
        kept = "" if bootstrap is None else json_text(bootstrap)
        parked = {"state": "parked", "reason": reason, "bootstrap": kept}
        self.save(turn, steps=steps, lease_ms=0, fields=parked)

    def append_input(self, turn_id: str, *, message_id: str, text: str, step: Json) -> str:
        """Bring a message to a parked turn: into the log, then behind its steps."""
        record = self._servers.redis.hgetall(self._servers.record(turn_id))
        ledger = _decoded_ledger(record["ledger"])
        row = message_row(message_id, text, role="user", occurred_at=time_text(self._now_ms()))
        with self._servers.postgres.transaction():
            (head,) = self._servers.query("lock_ledger", agent=ledger[0], conversation=ledger[1])
            if not self._servers.query("find_keys", ledger_ids=[head[0]], keys=[row[2]]):
                self._append(head, turn_id, [row])
        places = [self._servers.record(turn_id), self._servers.steps(turn_id), self._servers.key("turns")]
        expiry = self._servers.contract["unfinished_expiry_ms"]
        answer = self._servers.run("input", places, turn_id, message_id, json_text(message_id), expiry, step_text(step))
        return str(answer[0])

    # a take-over

    def resume(self, turn_id: str) -> Turn:
        """Take over a parked turn, or one whose holder fell silent."""
        self._block_if_lost(turn_id)
        places = [self._servers.record(turn_id), self._servers.steps(turn_id), self._servers.key("turns")]
        contract, owner = self._servers.contract, uuid.uuid4().hex
        times = [contract["lease_ms"], contract["unfinished_expiry_ms"]]
        answer = self._servers.run("claim", places, turn_id, owner, *times, contract["record_format"], "resume")
        if answer[0] != "claimed":
            raise Refused(*answer)
        fields = dict(zip(answer[1][::2], answer[1][1::2], strict=True))
        turn = Turn(turn_id, _decoded_ledger(fields["ledger"]), fields, answer[2], sent=len(answer[2]))
        try:
            followed = self._take_over(turn)
        except Refused as refusal:
            if refusal.args[0] != "stale":  # else it is another's by now
                self._put_back(turn)
            raise
        self.save(turn, fields=followed)
        return turn

    def _block_if_lost(self, turn_id: str) -> None:
        """Before anything is claimed, so that the turn stays its holder's."""
        fields = self._servers.redis.hgetall(self._servers.record(turn_id))
        if fields.get("state") not in ("running", "parked") or fields["recorded"] != "1":
            return
        agent, conversation = _decoded_ledger(fields["ledger"])
        found = self._servers.query("read_head", agent=agent, conversation=conversation)
        reason = self._lost(json.loads(fields["cursor"]), [row[:3] for row in found])
        if reason:
            self._servers.run("block", [self._servers.record(turn_id)], reason)
            raise Refused("blocked", reason)

    def _lost(self, cursor: list[Any], heads: Sequence[Sequence[int]]) -> str:
        """Why the history that the cursor names is not there; '' when it is."""
        ledger_id, version, seq, seq_turn_id, _ = cursor
        if ledger_id is None or seq < 0:
            return ""
        if not heads or heads[0][0] != ledger_id:
            return "other_history"
        if heads[0][1] < version or heads[0][2] <= seq:
            return "cursor_ahead"
        held = self._servers.query("holds_cursor", ledger_id=ledger_id, seq=seq, turn_id=seq_turn_id)
        return "" if held == [(True,)] else "other_history"

    def _take_over(self, turn: Turn) -> dict[str, str]:
        """What the record is told once Postgres has fenced off whoever held the turn; raises Refused."""
        if turn.fields.get("superseded_by"):
            raise Refused("handled", *turn.fields["superseded_by"].split(" "))
        if turn.fields["recorded"] != "1":
            return {"epoch": str(int(turn.fields["epoch"]) + 1)}
        agent, conversation = turn.ledger
        self._servers.query("create_ledgers", agents=[agent], conversations=[conversation])
        with self._servers.postgres.transaction():
            (head,) = self._servers.query("lock_ledger", agent=agent, conversation=conversation)
            if not self.renew(turn):
                raise Refused("stale")
            epoch, covered = self._fence(turn, ledger_id=head[0])
            reason = self._lost(turn.cursor, [head])
            if reason:
                raise Refused("blocked", reason)
        return _followed(turn, head=head, epoch=epoch, covered=covered)

    def _fence(self, turn: Turn, *, ledger_id: int) -> tuple[int, int]:
        """The new epoch, and how many of the turn's own steps a replacement of history has put into the log."""
        known = int(turn.fields["epoch"])
        raised = self._servers.query("raise_epoch", turn_id=turn.turn_id, known=known)
        if not raised:
            run = {"turn_id": turn.turn_id, "ledger_id": ledger_id, "work_key": turn.fields["work_key"]}
            self._servers.query("insert_run", **run, epoch=known + 1, started_at=turn.fields["started_at"])
        _, _, _, epoch, written, outcome, _ = raised[0] if raised else (None, None, None, known + 1, 0, None, None)
        if outcome not in (None, "lost"):
            raise Refused("ended", outcome)
        self._refuse_answered(ledger_id, turn.fields["work_key"])
        if written > len(turn.steps) or (written and turn.cursor[0] is None):
            raise Refused("steps", written)
        return epoch, written

    def _put_back(self, turn: Turn) -> None:
        """As it was found: a library node, or the reconciler, knows what becomes of it."""
        reason, taken_up = turn.fields.get("reason") or "owner_lost", str(int(turn.fields["slice"]) - 1)
        self.save(turn, lease_ms=0, fields={"state": "parked", "reason": reason, "slice": taken_up})

    # the end

    def complete(self, turn: Turn, *, steps: Sequence[Json] = (), **account: Any) -> str:
        """'' or the run that was first; the last steps come with the completion."""
        turn.steps += map(step_text, steps)
        return self.send_completion(turn, operation=uuid.uuid4().hex, fields=completion_fields(turn, **account))

    def send_completion(self, turn: Turn, *, operation: str, fields: Mapping[str, str]) -> str:
        """May be repeated: the same content gets the first answer."""
        servers, contract, turn_id = self._servers, self._servers.contract, turn.turn_id
        ours = [servers.ledger(turn.ledger, name) for name in ("open", "pending", "completions")]
        places = [servers.record(turn_id), servers.steps(turn_id), *ours, servers.key("turns"), servers.key("backlog")]
        places += [f"{contract['job_prefix']}turn-{turn_id}", contract["queues"], contract["queue"]]
        answers = "" if fields["failure"] else turn.fields["work_key"]
        head = [turn_id, turn.owner, turn.revision, operation, _digest(turn, fields), servers.key("turn:"), answers]
        head += [contract["queue"], f"turn-{turn_id}", contract["pending_turns"], 0]
        job = self._job(turn_id)
        counted = [2 * len(fields), *_flat(fields), 2 * len(job), *_flat(job)]
        answer = servers.run("complete", places, *head, *counted, *turn.unsent)
        if answer[0] != "completed":
            raise Refused(*answer)
        return str(answer[1])

    def _job(self, turn_id: str) -> dict[str, Any]:
        contract = self._servers.contract
        now = time_text(self._now_ms()).replace("Z", "000Z")
        made = {"created_at": now, "enqueued_at": now, "description": f"turn-{turn_id}"}
        return {**contract["job"], **made, "data": job_data(contract["job_function"], turn_id)}

    def _now_ms(self) -> int:
        seconds, micros = self._servers.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def end(self, turn: Turn, *, state: str, **fields: str) -> None:
        """End the turn without an entry; the reconciler writes it into the log."""
        servers, turn_id = self._servers, turn.turn_id
        places = [servers.record(turn_id), servers.steps(turn_id)]
        places += [servers.ledger(turn.ledger, "open"), servers.key("turns")]
        head = [turn_id, turn.owner, turn.revision, uuid.uuid4().hex, state, servers.contract["spare_copy_ms"]]
        answer = servers.run("end", places, *head, *_flat(fields))
        if answer[0] != "ended_now":
            raise Refused(*answer)

    def spool(self, turn: Turn, folder: Path, *, completed_at: str, **account: Any) -> Path:
        """Put a completed turn on disk, for `turnledger recover`, when Redis does not take it."""
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{turn.turn_id}.{turn.fields['epoch']}.{self._deployment}.turn.json"
        descriptor = os.open(path.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json_text(spooled(turn, completed_at=completed_at, **account)))
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".new").rename(path)
        opened = os.open(folder, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)
        return path


def completion_fields(
    turn: Turn,
    *,
    reply: Json,
    calls: Sequence[Json] = (),
    decision: str = "",
    failure: str = "",
    fitting: str = "names",
) -> dict[str, str]:
    """What a completion sets in the record."""
    entry: Json = {"turn_id": turn.turn_id, "entry_id": turn.fields["entry_id"]}
    entry |= {"triggered_by": json.loads(turn.fields["triggered_by"])}
    entry |= {"calls": list(calls)} if calls else {}
    entry |= {"reply": reply} | ({"decision": decision} if decision else {})
    text = json_text(entry)
    return {
        "entry": text,
        "entry_bytes": str(len(text.encode())),
        "fitting": fitting,
        "decision": decision,
        "failure": failure,
        "kept_steps": str(_kept(turn, reply)),
        "events": json_text(_last_rows(turn, reply=reply, failure=failure)),
        "bytes": str(sum(len(each.encode()) for each in [*turn.steps, text])),
        "epoch": turn.fields["epoch"],
    }


def spooled(turn: Turn, *, completed_at: str, **account: Any) -> Json:
    """The completed turn as `turnledger recover` reads it."""
    fields = completion_fields(turn, **account)
    agent, conversation = turn.ledger
    return {
        "turn_id": turn.turn_id,
        "ledger": {"agent": agent, "conversation": conversation},
        "work_key": turn.fields["work_key"],
        "epoch": int(turn.fields["epoch"]),
        "started_at": turn.fields["started_at"],
        "completed_at": completed_at,
        "entry_id": turn.fields["entry_id"],
        "entry": fields["entry"],
        "decision": fields["decision"] or None,
        "failure": fields["failure"] or None,
        "steps": turn.steps[: int(fields["kept_steps"])],
        "before": json.loads(turn.fields.get("before") or "[]"),
        "events": json.loads(fields["events"]),
        "unannounced": turn.cursor[0] is None,
        "built_on": turn.cursor[4],
    }


def _inbound(turn_id: str, work_key: str, *, now_ms: int, messages: Mapping[str, str]) -> list[Row]:
    now = time_text(now_ms)
    rows = [message_row(key, text, role="user", occurred_at=now) for key, text in messages.items()]
    return [*rows, started_row(turn_id, work_key=work_key, occurred_at=now)]


def _kept(turn: Turn, reply: Json) -> int:
    """The words of an undelivered reply are no history."""
    kept = len(turn.steps)
    if reply["kind"] != "undelivered":
        return kept
    words = json.dumps(reply["text"], ensure_ascii=False) if reply["text"] else None
    for number in reversed(range(len(turn.steps))):
        head, _, content = turn.steps[number].split("\n", 2)
        step = json.loads(head)
        if step.get("calls") or step.get("answers"):
            break
        if step["role"] == "assistant" and (number == len(turn.steps) - 1 or (words and words in content)):
            kept = number
    return kept


def _last_rows(turn: Turn, *, reply: Json, failure: str) -> list[Row]:
    if failure:
        return []
    handled = [handled_row(each) for each in json.loads(turn.fields["message_ids"])]
    if reply["kind"] != "replied":
        return handled
    receipt = reply.get("receipt") or f"reply:{turn.turn_id}"
    return [message_row(receipt, reply["text"], role="assistant", occurred_at=""), *handled]


def _digest(turn: Turn, fields: Mapping[str, str]) -> str:
    return completion_digest([fields["entry"], *(step.split("\n", 2)[2] for step in turn.steps)])


def _followed(turn: Turn, *, head: Sequence[int], epoch: int, covered: int) -> dict[str, str]:
    """A newer history wins: the cursor follows it, and the bootstrap, which belonged to the old one, goes."""
    ledger_id, version, seq, seq_turn_id, pending = turn.cursor
    moved = {"bootstrap": "", "replaced_by": ""} if version != head[1] else {}
    cursor = json_text([ledger_id or head[0], head[1], seq, seq_turn_id, pending])
    most = max(covered, int(turn.fields.get("covered") or 0))
    return {"epoch": str(epoch), "cursor": cursor, "covered": str(most), **moved}


def _decoded_ledger(encoded: str) -> Ledger:
    agent, _, conversation = encoded.partition(":")
    return unquote(agent), unquote(conversation)


def _flat(fields: Mapping[str, Any]) -> list[Any]:
    return [each for pair in fields.items() for each in pair]
