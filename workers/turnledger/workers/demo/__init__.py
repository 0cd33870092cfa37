"""Shows a person what the system does, with a worker killed on the way."""

from turnledger.workers.demo.command import run_demo

__all__ = ["run_demo"]
