"""The ledger: its turns, its events, its entries."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table, index and trigger."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
