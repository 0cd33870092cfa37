"""Each key of the live section, changed alone: what a user of the system sees of it."""

from collections.abc import Callable

import pytest

from tests.stores import Stores, begin, user
from turnledger.store import Database, Replied
from turnledger.store.config_section import ConversationSession
from turnledger.store.retention import Retention

Effect = Callable[..., object]


def _play(stores: Stores, **section: object) -> None:
    """Three turns of one conversation, on a node and a worker that read this section."""
    node = stores.node(store=stores.section(**section))
    for number in range(3):
        turn = begin(node, f"Ask {number}")
        turn.complete(reply=Replied(f"Answer {number}"), steps=[user(f"Ask {number}")])
        stores.drain(**section)
    node.close()


def shown(stores: Stores, **section: object) -> int:
    """How many earlier turns the next one is shown."""
    _play(stores)
    return begin(stores.node(store=stores.section(**section))).earlier.count("You replied:")


def stored(stores: Stores, **section: object) -> int:
    """How many entries are stored."""
    _play(stores, **section)
    return len(stores.entries())


def _swept(stores: Stores, **section: object) -> None:
    _play(stores)
    stores.execute("UPDATE ledger_entry SET completed_at = now() - interval '20 days'")
    stores.execute("UPDATE ledger_turn SET ended_at = now() - interval '20 days'")
    database = Database.from_settings(database_url=stores.database_url, **stores.section(**section))
    Retention(database, least_age_s=900, batch_rows=100).sweep(stopped=lambda: False)
    database.close()


def entries_of_20_days_ago(stores: Stores, **section: object) -> int:
    """What a sweep leaves of them."""
    _swept(stores, **section)
    return len(stores.entries())


def events_of_20_days_ago(stores: Stores, **section: object) -> int:
    """What a sweep leaves of them."""
    _swept(stores, **section)
    return len(stores.events())


EFFECTS: dict[str, tuple[Effect, object, int, int]] = {
    "enabled": (shown, False, 3, 0),
    "max_entries": (stored, 2, 3, 2),
    "retention_days": (entries_of_20_days_ago, 10, 3, 0),
    "event_retention_days": (events_of_20_days_ago, 10, 12, 0),
}


@pytest.mark.parametrize("key", ConversationSession.model_fields)
def test_a_key_has_its_effect_alone(stores: Stores, key: str) -> None:
    """By default one thing, changed another (RT-1)."""
    effect, value, _, changed = EFFECTS[key]
    assert effect(stores, **{key: value}) == changed


@pytest.mark.parametrize("key", ConversationSession.model_fields)
def test_without_the_key_its_default_holds(stores: Stores, key: str) -> None:
    """RT-1."""
    effect, _, by_default, _ = EFFECTS[key]
    assert effect(stores) == by_default
