"""`turnledger doctor`: what is wrong with the servers and the deployment, why it matters, and what to do."""

from collections import Counter
from collections.abc import Sequence

from turnledger.workers.cli.exits import AWAY, NEEDS_A_PERSON, OK
from turnledger.workers.cli.output import Output, console, print_json, visible
from turnledger.workers.doctor import ACCESS, CHECKS, NOT_LOOKED_AT, Result, Verdict, examine, gather
from turnledger.workers.redis_rights import Role

_SIGNS = {
    Verdict.FINE: ("ok", "green"),
    Verdict.WRONG: ("!!", "red"),
    Verdict.UNKNOWN: ("??", "yellow"),
    Verdict.AWAY: ("--", "red"),
}
_INDENT = " " * 5


def run_doctor(*, role: Role, output: Output) -> int:
    """Check everything and print what was found; the exit code.

    AWAY when a server did not answer, since then the rest is no whole picture; else NEEDS_A_PERSON when something is
    wrong. What cannot be told is no fault.

    Raises:
        InvalidInput: a setting cannot be used.
    """
    results = examine(gather(role=role), checks=CHECKS)
    if output == "json":
        print_json({"checks": [_plain(result) for result in results]})
    else:
        _print(results)
    return exit_code(results)


def exit_code(results: Sequence[Result]) -> int:
    """What the results come to."""
    verdicts = {result.verdict for result in results}
    if Verdict.AWAY in verdicts:
        return AWAY
    return NEEDS_A_PERSON if Verdict.WRONG in verdicts else OK


def _plain(result: Result) -> dict[str, str]:
    return {
        "check": result.check,
        "verdict": result.verdict.value,
        "finding": result.finding,
        "why": result.why,
        "fix": result.fix,
    }


def _print(results: Sequence[Result]) -> None:
    screen = console()
    passed_over = [result for result in results if result.finding == NOT_LOOKED_AT]
    for result in results:
        if result in passed_over:
            continue
        sign, style = _SIGNS[result.verdict]
        screen.print(f"{sign}  {result.check}: {visible(result.finding)}", style=style, markup=False, soft_wrap=True)
        for name, text in (("why", result.why), ("fix", result.fix)):
            if text:
                screen.print(f"{_INDENT}{name}: {text}", markup=False, soft_wrap=True)
    if passed_over:
        names = ", ".join(result.check for result in passed_over)
        screen.print(f"{_SIGNS[Verdict.AWAY][0]}  not looked at, for what {ACCESS} says: {names}", soft_wrap=True)
    counts = Counter(result.verdict for result in results)
    told = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
    screen.print(f"\n{len(results)} checks: {told}.", soft_wrap=True)
