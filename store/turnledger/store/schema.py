"""The tables of the ledger, as SQLAlchemy Core sees them; the migrations make them."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Integer, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB, UUID

metadata = MetaData()

ledger = Table(
    "ledger",
    metadata,
    Column("ledger_id", BigInteger, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("conversation_key", Text, nullable=False),
    Column("parent_id", BigInteger),
    Column("visibility", Text, nullable=False),
    Column("history_version", Integer, nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    Column("turn_count", BigInteger, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("active_at", DateTime(timezone=True), nullable=False),
    Column("purged_at", DateTime(timezone=True)),
    Column("swept_seq", BigInteger, nullable=False),
)

ledger_turn = Table(
    "ledger_turn",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("ledger_id", BigInteger, nullable=False),
    Column("work_key", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("steps_written", Integer, nullable=False),
    Column("started_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True)),
    Column("outcome", Text),
    Column("duplicate_of", Text),
    Column("swept", Boolean, nullable=False),
)

ledger_event = Table(
    "ledger_event",
    metadata,
    Column("ledger_id", BigInteger, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("history_version", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("turn_id", Text),
    Column("idempotency_key", Text),
    Column("payload", JSONB, nullable=False),
    Column("content", JSON),
    Column("search_text", Text),
    Column("occurred_at", DateTime(timezone=True), nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False),
)

ledger_entry = Table(
    "ledger_entry",
    metadata,
    Column("ledger_id", BigInteger, primary_key=True),
    Column("ordinal", BigInteger, primary_key=True),
    Column("entry_id", UUID(as_uuid=False), nullable=False, unique=True),
    Column("turn_id", Text, nullable=False, unique=True),
    Column("work_key", Text, nullable=False),
    Column("completed_at", DateTime(timezone=True), nullable=False),
    Column("entry", JSON, nullable=False),
)

ledger_account = Table(
    "ledger_account",
    metadata,
    Column("ledger_id", BigInteger, primary_key=True),
    Column("entry_ids", ARRAY(UUID(as_uuid=False)), nullable=False),
    Column("account", JSON, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
)

deployment = Table(
    "deployment",
    metadata,
    Column("only_row", Boolean, primary_key=True),
    Column("deployment_id", UUID(as_uuid=False), nullable=False),
)

retention = Table(
    "retention",
    metadata,
    Column("only_row", Boolean, primary_key=True),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("swept_at", DateTime(timezone=True)),
    Column("entries", BigInteger, nullable=False),
    Column("turns", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
)
