"""Finds turns on which Redis and Postgres disagree, and puts them right."""

from turnledger.workers.reconciler.cases import Finding, Report
from turnledger.workers.reconciler.sweeping import Reconciler

__all__ = ["Finding", "Reconciler", "Report"]
