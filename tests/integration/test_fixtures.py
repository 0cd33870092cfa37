"""Each test starts from empty servers of its own."""

import psycopg
import pytest
import redis


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_database_is_migrated_and_unlike_that_of_the_test_before(database_url: str, attempt: int) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE mine (id int)")
        row = connection.execute("SELECT to_regclass('turnledger.ledger')").fetchone()
    assert row is not None
    assert row[0] is not None


@pytest.mark.parametrize("attempt", [1, 2])
def test_redis_is_empty(redis_url: str, attempt: int) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("key", "value")
