"""The web page for operators, and rq-dashboard behind the same login (extra `dashboard`)."""

from turnledger.workers.dashboard.settings import DashboardSettings

__all__ = ["DashboardSettings"]
