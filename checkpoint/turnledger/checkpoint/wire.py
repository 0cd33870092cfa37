"""What an engine in another language builds upon: scripts, statements and versions of this release, as texts."""

import re
from hashlib import sha1
from importlib.metadata import version

from turnledger.checkpoint.keys import Keys
from turnledger.checkpoint.queue import COMMIT_FUNCTION, commit_job
from turnledger.checkpoint.record import RECORD_FORMAT
from turnledger.checkpoint.scripting import script_text
from turnledger.checkpoint.settings import CheckpointSettings
from turnledger.store.database import statement
from turnledger.store.migrate import head_revision

SCRIPTS = ("look", "open", "save", "renew", "claim", "block", "input", "complete", "end")
STATEMENTS = (
    "create_ledgers", "lock_ledger", "read_head", "find_runs", "find_answered", "recent_entries", "find_keys",
    "insert_run", "insert_events", "advance_heads", "holds_cursor", "raise_epoch",
    "read_deployment",
)  # fmt: skip
_MADE_PER_JOB = ("created_at", "enqueued_at", "description", "data")
_COMMENT = re.compile(r"--[^\n]*\n")
_PARAMETER = re.compile(r"(?<!:):(\w+)")


def wire_contract(settings: CheckpointSettings) -> dict[str, object]:
    """All of it as one JSON value; docs/reference/wire-contract.md says how each part is used.

    A script's SHA-1 is the name under which Redis knows it once it is loaded. A statement has `$1`, `$2`, ... where
    its `parameters` go, in their order. `job` holds the fields that every commit job has in common.
    """
    keys = Keys(settings.prefix, settings.rq_prefix, settings.commit_queue, settings.rewrite_queue)
    job = commit_job("-", settings=settings)
    return {
        "release": version("turnledger"),
        "record_format": RECORD_FORMAT,
        "schema_revision": head_revision(),
        "prefix": settings.prefix,
        "lease_ms": round(settings.lease_s * 1000),
        "renew_ms": round(settings.renew_s * 1000),
        "unfinished_expiry_ms": round(settings.unfinished_expiry_s * 1000),
        "spare_copy_ms": round(settings.spare_copy_s * 1000),
        "slices": settings.slices,
        "pending_turns": settings.pending_turns,
        "queue": keys.queue,
        "queues": keys.queues,
        "job_prefix": keys.job_prefix,
        "job_function": COMMIT_FUNCTION,
        "job": {name: value for name, value in job.items() if name not in _MADE_PER_JOB},
        "scripts": {name: _script(name) for name in SCRIPTS},
        "statements": {name: numbered_statement(name) for name in STATEMENTS},
    }


def _script(name: str) -> dict[str, str]:
    text = script_text(name)
    return {"sha1": sha1(text.encode(), usedforsecurity=False).hexdigest(), "text": text}


def numbered_statement(name: str) -> dict[str, object]:
    """A named statement without its comments, as `text` with numbered parameters, and the names of these in order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    text = _PARAMETER.sub(number, _COMMENT.sub("", statement(name).text)).strip()
    return {"text": text, "parameters": names}
