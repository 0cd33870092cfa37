"""What `turnledger doctor` looks at: facts are gathered from both servers and this host, then judged by pure checks."""

from turnledger.workers.doctor.checks import ACCESS, NOT_LOOKED_AT, Check, Result, Verdict, examine
from turnledger.workers.doctor.facts import Facts
from turnledger.workers.doctor.gathering import gather
from turnledger.workers.doctor.process_checks import PROCESS_CHECKS
from turnledger.workers.doctor.server_checks import SERVER_CHECKS
from turnledger.workers.doctor.turn_checks import TURN_CHECKS

CHECKS = (*SERVER_CHECKS, *TURN_CHECKS, *PROCESS_CHECKS)

__all__ = ["ACCESS", "CHECKS", "NOT_LOOKED_AT", "Check", "Facts", "Result", "Verdict", "examine", "gather"]
