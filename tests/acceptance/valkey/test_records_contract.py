"""The records and their scripts, over a Valkey (CK-14)."""

import pytest
from redis import Redis

pytest.register_assert_rewrite("tests.integration.test_records_contract")

from tests.integration.test_records_contract import *  # noqa: E402, F403  # the same tests over another server


def test_the_server_is_a_valkey(redis: "Redis") -> None:
    """CK-14"""
    assert redis.info("server")["server_name"] == "valkey"
