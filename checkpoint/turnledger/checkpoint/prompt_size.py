"""How large a turn's prompt is, told once per start and once per resume."""

from typing import Literal

from turnledger.checkpoint.naming import names
from turnledger.checkpoint.telemetry import measure_prompt
from turnledger.checkpoint.turn import Turn
from turnledger.store import user_message
from turnledger.store.logs import get_logger

log = get_logger(__name__)

Occasion = Literal["start", "resume"]


def note_prompt_size(turn: Turn, *, occasion: Occasion) -> None:
    """Log `prompt.size` and measure it: bytes of the block, and of the user message whose task is the whole ask."""
    block_bytes = _size(turn.earlier)
    user_bytes = _size(user_message(earlier=turn.earlier, task=turn.triggered_by))
    log.info(
        "prompt.size",
        **names(turn.turn_id, turn.ledger),
        occasion=occasion,
        block_bytes=block_bytes,
        user_bytes=user_bytes,
    )
    measure_prompt(block_bytes, part="block", occasion=occasion, agent=turn.ledger.agent)
    measure_prompt(user_bytes, part="user", occasion=occasion, agent=turn.ledger.agent)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))  # an ask may hold what is no Unicode text
