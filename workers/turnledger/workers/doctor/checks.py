"""What a check is, and what comes of one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from turnledger.workers.doctor.facts import Facts, Unasked

ACCESS = "access"  # the check that says why a server was not asked; the others refer to it
NOT_LOOKED_AT = f"not looked at, for what `{ACCESS}` says"


class Verdict(Enum):
    """How a check ended. UNKNOWN: this user or this server does not tell. AWAY: a server it asks does not answer."""

    FINE = "fine"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class Look:
    """What a check saw, in a sentence; `wrong` and `unknown` are empty when there is nothing to say."""

    fine: str = ""
    wrong: str = ""
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, what it asks, why a wrong answer matters, what to do about it, and the look itself."""

    name: str
    asks: str
    why: str
    fix: str
    look: Callable[[Facts], Look]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check; `why` and `fix` are empty where all is fine, or where nothing could be looked at."""

    check: str
    verdict: Verdict
    finding: str
    why: str = ""
    fix: str = ""


def examine(facts: Facts, *, checks: Sequence[Check]) -> list[Result]:
    """What comes of each check, in their order. Pure: everything was gathered before."""
    return [_result(check, facts) for check in checks]


def either(fault: str, *, fine: str) -> Look:
    """The fault where there is one, else the sentence that says all is fine."""
    return Look(wrong=fault) if fault else Look(fine=fine)


def _result(check: Check, facts: Facts) -> Result:
    try:
        look = check.look(facts)
    except Unasked as unasked:
        verdict = Verdict.AWAY if unasked.away else Verdict.UNKNOWN
        return Result(check.name, verdict, str(unasked) if check.name == ACCESS else NOT_LOOKED_AT)
    if look.wrong:
        return Result(check.name, Verdict.WRONG, look.wrong, check.why, check.fix)
    if look.unknown:
        return Result(check.name, Verdict.UNKNOWN, look.unknown, check.why, check.fix)
    return Result(check.name, Verdict.FINE, look.fine)
