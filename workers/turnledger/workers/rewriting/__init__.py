"""Accounts of over-long payloads by a model: the shipped rewriter, and the job that fits a turn with it."""

from turnledger.workers.rewriting.account_requests import AccountRequests
from turnledger.workers.rewriting.condenser import Condenser
from turnledger.workers.rewriting.fitter import Fitter
from turnledger.workers.rewriting.openai_rewriter import OpenAIRewriter
from turnledger.workers.rewriting.settings import RewriteSettings, configured_settings, read_rewrite_settings

__all__ = [
    "AccountRequests",
    "Condenser",
    "Fitter",
    "OpenAIRewriter",
    "RewriteSettings",
    "configured_settings",
    "read_rewrite_settings",
]
