"""What a completion writes, worked out before anything is sent; pure."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from turnledger.checkpoint.turn_steps import byte_size
from turnledger.store import CallRecord, Entry, InvalidInput, Message, Replied, Step, Undelivered
from turnledger.store.entry import Reply, calls_of, encode_entry, readable_calls
from turnledger.store.events import (
    AT_COMPLETION,
    MESSAGE_ID_CHARACTERS,
    EventRow,
    encode_rows,
    handled_event,
    message_event,
)
from turnledger.store.fitting import needs_fitting

_NO_WORDS = frozenset({"role", "type", "id", "status", "name"})  # of a message's form, not of what it says
Fitting = Literal["rewrite", "names"]
FITTINGS = ("rewrite", "names")


@dataclass(frozen=True, slots=True)
class Account:
    """What the engine says of a turn that ended, beside its steps; see `Turn.complete`.

    `failure` is the code of a turn that files its entry and fails all the same. `fitting` is what becomes of over-long
    tool arguments and errors.
    """

    reply: Reply
    set_out_to: str | None = None
    calls: tuple[CallRecord, ...] | None = None
    reviewer: str | None = None
    outcome: str | None = None
    blocked_on: str | None = None
    decision: str | None = None
    failure: str | None = None
    fitting: Fitting = "rewrite"


@dataclass(frozen=True, slots=True)
class Draft:
    """A completion ready to be sent: the record's fields, and a digest that tells two completions apart."""

    fields: dict[str, str | int]
    digest: str


def draft_completion(
    account: Account,
    *,
    turn_id: str,
    entry_id: str,
    triggered_by: str,
    message_ids: Sequence[str],
    steps: Sequence[Step],
    rewriting: Literal["off", "on"] = "off",
) -> Draft:
    """Build entry and events of a completed turn; `rewriting` is whether this deployment has a rewriter.

    Raises:
        InvalidInput: a field is refused.
    """
    if account.fitting not in FITTINGS:
        raise InvalidInput(f"fitting is {account.fitting!r}; it is rewrite or names", where="fitting")
    entry = Entry(
        turn_id=turn_id,
        entry_id=entry_id,
        triggered_by=triggered_by,
        set_out_to=account.set_out_to,
        calls=calls_of(steps) if account.calls is None else readable_calls(account.calls),
        reply=account.reply,
        reviewer=account.reviewer,
        outcome=account.outcome,
        blocked_on=account.blocked_on,
        decision=account.decision,
    )
    text = encode_entry(entry)
    fields: dict[str, str | int] = {
        "entry": text,
        "entry_bytes": byte_size(text),
        "fitting": _fitting(entry, account.fitting if rewriting == "on" else "names"),
        "decision": account.decision or "",
        "failure": account.failure or "",
        "kept_steps": kept_steps(steps, account.reply),
        "events": encode_rows(_events(account, turn_id=turn_id, message_ids=message_ids)),
    }
    return Draft(fields, _digest([text, *(step.content for step in steps)]))


def _fitting(entry: Entry, wanted: Fitting) -> Literal["rewrite", "names", "none"]:
    return wanted if needs_fitting(entry) else "none"


def usable_receipt(receipt: object) -> str | None:
    """The receipt as text, or None for one that can name no message: the reply was delivered all the same."""
    if isinstance(receipt, int) and not isinstance(receipt, bool):  # many vendors number their messages
        return str(receipt)
    if isinstance(receipt, str) and 1 <= len(receipt) <= MESSAGE_ID_CHARACTERS:
        return receipt
    return None


def kept_steps(steps: Sequence[Step], reply: Reply) -> int:
    """How many of the steps become history: the words of an undelivered reply do not, nor what was said of them.

    After its last call a turn may have drafted them more than once, with a reviewer's word between and after.
    """
    if not isinstance(reply, Undelivered):
        return len(steps)
    last = len(steps) - 1
    for index in range(_end_of_calls(steps), len(steps)):
        step = steps[index]
        if step.role == "assistant" and (index == last or _says(step, reply.text)):
            return index
    return len(steps)


def _end_of_calls(steps: Sequence[Step]) -> int:
    """Where the steps begin that make no call and answer none, up to the end."""
    end = len(steps)
    while end and not steps[end - 1].calls and not steps[end - 1].answers:
        end -= 1
    return end


def _says(step: Step, text: str) -> bool:
    """Whether the whole text is one of the texts in the content."""
    return bool(text) and text in (_texts(step.value) if step.text is None else (step.text,))


def _texts(value: object) -> Iterator[str]:
    """Every text of a message or an item, wherever its vendor puts it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            if name not in _NO_WORDS:
                yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


def _digest(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(b"%d\n" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _events(account: Account, *, turn_id: str, message_ids: Sequence[str]) -> list[EventRow]:
    if account.failure is not None:
        return []
    handled = [handled_event(message_id, now=AT_COMPLETION) for message_id in message_ids]
    if not isinstance(account.reply, Replied):
        return handled
    reply = account.reply
    sent = Message(message_id=reply.receipt or f"reply:{turn_id}", text=reply.text, role="assistant")
    return [message_event(sent, now=AT_COMPLETION), *handled]
