"""The account that stands for the older entries of a ledger, as a model wrote it."""

from collections.abc import Iterable

from sqlalchemy import Connection

from turnledger.store.block import Account
from turnledger.store.database import run_statement
from turnledger.store.errors import without_content
from turnledger.store.identity import LedgerName
from turnledger.store.json_text import decode_json, encode_json, is_text
from turnledger.store.logs import get_logger

log = get_logger(__name__)


def save_account(connection: Connection, account: Account, *, ledger_id: int) -> bool:
    """Keep the account in place of the ledger's former one; False: an entry it stands for is stored no longer."""
    ids = sorted(account.entry_ids)
    text = encode_json(account.text, where="account")
    parameters = {"ledger_id": ledger_id, "entry_ids": ids, "account": text}
    return bool(run_statement(connection, "save_account", parameters))


def find_account(connection: Connection, ledger_id: int) -> Account | None:
    """The newest account of the ledger; None: there is none that can be read; another may take its place."""
    for entry_ids, stored in run_statement(connection, "find_account", {"ledger_id": ledger_id}):
        try:
            return Account(frozenset(entry_ids), is_text(decode_json(stored, where="account")))
        except ValueError as error:
            log.warning("account_unreadable", ledger_id=ledger_id, reason=without_content(error))
    return None


def long_ledgers(connection: Connection, names: Iterable[LedgerName], *, least_bytes: int) -> list[LedgerName]:
    """Those of the ledgers whose stored entries have so many bytes of JSON in all."""
    wanted = list(names)
    parameters = {
        "agents": [name.agent for name in wanted],
        "conversations": [name.conversation for name in wanted],
        "least_bytes": least_bytes,
    }
    return [LedgerName(*row) for row in run_statement(connection, "long_ledgers", parameters)]
