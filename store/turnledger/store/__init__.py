"""What was said and done, kept in Postgres. Knows nothing of the layers above it."""

from turnledger.store.block import Round, review_message, user_message
from turnledger.store.database import Database
from turnledger.store.digest import merged_ask
from turnledger.store.entry import CallRecord, Entry, NoReplyOwed, Replied, Undelivered
from turnledger.store.errors import (
    CorruptData,
    InvalidInput,
    SchemaMismatch,
    StaleHistory,
    StoreBusy,
    StoreMisconfigured,
    StoreRefused,
    StoreUnavailable,
    TurnledgerError,
    UnsupportedEvent,
)
from turnledger.store.events import Message
from turnledger.store.identity import ConversationKey, LedgerName, work_key
from turnledger.store.migrate import check_revision, migrate
from turnledger.store.settings import ENVIRONMENT_PREFIX, StoreSettings, read_settings
from turnledger.store.steps import Answer, Call, Step, Usage
from turnledger.store.vendor_steps import anthropic_step, openai_step

__all__ = [
    "ENVIRONMENT_PREFIX",
    "Answer",
    "Call",
    "CallRecord",
    "ConversationKey",
    "CorruptData",
    "Database",
    "Entry",
    "InvalidInput",
    "LedgerName",
    "Message",
    "NoReplyOwed",
    "Replied",
    "Round",
    "SchemaMismatch",
    "StaleHistory",
    "Step",
    "StoreBusy",
    "StoreMisconfigured",
    "StoreRefused",
    "StoreSettings",
    "StoreUnavailable",
    "TurnledgerError",
    "Undelivered",
    "UnsupportedEvent",
    "Usage",
    "anthropic_step",
    "check_revision",
    "merged_ask",
    "migrate",
    "openai_step",
    "read_settings",
    "review_message",
    "user_message",
    "work_key",
]
