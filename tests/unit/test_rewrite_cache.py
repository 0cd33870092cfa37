"""What is remembered of rewritings, and how much of it."""

from turnledger.workers.rewriting.cache import MOST_BYTES, MOST_ENTRIES, RewriteCache, cache_key


def test_the_bounds_are_those_that_are_promised() -> None:
    """(RW-5)"""
    assert (MOST_ENTRIES, MOST_BYTES) == (2_048, 16 * 1024 * 1024)


def test_what_was_not_used_for_the_longest_time_goes_first() -> None:
    """(RW-5)"""
    cache = RewriteCache(most_entries=2)
    cache.put(b"a", "1")
    cache.put(b"b", "2")
    assert cache.get(b"a") == "1"
    cache.put(b"c", "3")
    assert [cache.get(key) for key in (b"a", b"b", b"c")] == ["1", None, "3"]


def test_there_is_a_bound_in_bytes_too() -> None:
    """Keys and bookkeeping count (RW-5)."""
    cache = RewriteCache(most_bytes=2_000)
    for number in range(100):
        cache.put(b"%d" % number, "é" * 100)
    assert len(cache) == 4
    cache.put(b"big", "x" * 3_000)
    assert len(cache) == 0


def test_an_account_that_is_put_again_counts_once() -> None:
    """(RW-5)"""
    cache = RewriteCache(most_bytes=1_000)
    for _ in range(50):
        cache.put(b"a", "x" * 400)
    assert cache.get(b"a") == "x" * 400


def test_no_two_requests_share_a_key() -> None:
    """Kind, model, question, budget and text all tell (RW-5)."""
    base = {"kind": "k", "model": "m", "question": "q", "budget_bytes": 1}
    others = [{**base, name: value} for name, value in [("kind", "l"), ("model", "n"), ("question", "r")]]
    keys = {cache_key("t", **each) for each in [base, *others, {**base, "budget_bytes": 2}]}  # type: ignore[arg-type]
    keys |= {cache_key("u", **base), cache_key("\ud800", **base), cache_key("", **base)}  # type: ignore[arg-type]
    assert len(keys) == 8
