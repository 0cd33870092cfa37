"""`python -m turnledger.workers` is the command `turnledger`."""

from turnledger.workers.cli import main

main()
