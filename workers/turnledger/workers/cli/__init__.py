"""The command line."""

from turnledger.workers.cli.app import main

__all__ = ["main"]
