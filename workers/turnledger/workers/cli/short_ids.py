"""Turn ids as a narrow line shows them, and the way back to whole ones."""

from sqlalchemy import func, select

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointUnavailable
from turnledger.checkpoint.connection import translated
from turnledger.store.identity import check_turn_id
from turnledger.store.schema import ledger_turn
from turnledger.workers.cli.exits import NotThere
from turnledger.workers.cli.looking import snapshot
from turnledger.workers.cli.servers import records_to_look_at

SHORT_ID = 8  # characters that are shown, and the fewest that are taken for the beginning of an id
WHOLE_ID = 36  # of the ids that are minted here; a longer one is nobody's beginning
NAMED = 5


def whole_turn_id(given: str) -> str:
    """The id of the only turn whose id begins like this; what was given, where there is none or it is whole.

    Raises:
        InvalidInput: this is no turn id.
        NotThere: several turns begin like this; names them.
        StoreUnavailable, SchemaMismatch, ...: Postgres cannot be asked.
    """
    check_turn_id(given)
    if not SHORT_ID <= len(given) < WHOLE_ID:
        return given
    found = sorted({*_stored(given), *_on_their_way(given)})
    if given in found or not found:
        return given
    if len(found) > 1:
        more = " and more" if len(found) > NAMED else ""
        names = ", ".join(found[:NAMED])
        raise NotThere(f"several turns begin with {given}: {names}{more}; give more of the id")
    return found[0]


def _stored(beginning: str) -> list[str]:
    """Postgres may have to read all of its runs for it, so ask only for what is no id of a turn."""
    begins = func.starts_with(ledger_turn.c.turn_id, beginning)
    query = select(ledger_turn.c.turn_id).where(begins).order_by(ledger_turn.c.turn_id).limit(NAMED + 1)
    with snapshot() as connection:
        return list(connection.scalars(query))


def _on_their_way(beginning: str) -> list[str]:
    """Those that Redis lists; none where it cannot be asked, as the look itself will tell."""
    try:
        with records_to_look_at() as records, translated():
            return [turn for turn, _ in records.redis.zscan_iter(records.keys.turns, match=f"{beginning}*")]
    except (CheckpointUnavailable, CheckpointMisconfigured):
        return []
