"""`turnledger budget`: how many tokens the rewriting of payloads may cost, and what it has cost in this window."""

from typing import Any

from rich.table import Table

from turnledger.checkpoint.budgets import Balance, Balances, Budgets
from turnledger.store import InvalidInput
from turnledger.store.times import time_text
from turnledger.workers.cli.output import Output, console, print_json, visible
from turnledger.workers.cli.servers import the_records

UNLIMITED = "unlimited"


def set_budget(tokens: str, *, agent: str | None, output: Output) -> None:
    """Set one budget, of the deployment where no agent is named, then show all of them.

    Raises:
        InvalidInput: the agent or the number of tokens is refused.
        CheckpointUnavailable: it may or may not be set; a repeat is safe.
    """
    limit = _limit(tokens)
    with the_records() as records:
        Budgets(records).set_limit(limit, agent=agent)
    show_budgets(output=output)


def show_budgets(*, output: Output) -> None:
    """Print every budget that is set or was drawn upon in this window.

    Raises:
        CheckpointUnavailable: Redis does not answer.
    """
    with the_records() as records:
        balances = Budgets(records).balances()
    if output == "json":
        print_json(_plain(balances))
        return
    screen = console()
    screen.print(_table(balances))
    screen.print(f"This window ends at {time_text(balances.until)}; spending begins anew then.", soft_wrap=True)


def _limit(tokens: str) -> int | None:
    if tokens == UNLIMITED:
        return None
    if not (tokens.isascii() and tokens.isdigit()):
        raise InvalidInput(f"{tokens!r} is no budget; give a number of tokens such as 100000, or {UNLIMITED}")
    return int(tokens)


def _plain(balances: Balances) -> dict[str, Any]:
    return {
        "until": time_text(balances.until),
        "deployment": _numbers(balances.deployment),
        "agents": {agent: _numbers(balance) for agent, balance in balances.agents.items()},
    }


def _numbers(balance: Balance) -> dict[str, int | None]:
    return {"limit": balance.limit, "spent": balance.spent, "left": balance.left}


def _table(balances: Balances) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("budget of", overflow="fold")
    for heading in ("tokens", "spent", "left"):
        table.add_column(heading, justify="right")
    rows = {"the deployment": balances.deployment}
    rows |= {f"agent {agent}": balance for agent, balance in balances.agents.items()}
    for name, balance in rows.items():
        style = None if balance.has_room else "yellow"
        shown = [_shown(balance.limit), _shown(balance.spent), _shown(balance.left)]
        table.add_row(visible(name), *shown, style=style)
    return table


def _shown(tokens: int | None) -> str:
    return UNLIMITED if tokens is None else f"{tokens:,}"
