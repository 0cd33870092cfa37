"""Checks of the two servers themselves: what they are, how they are set, what they let us do."""

from turnledger.workers.doctor.checks import ACCESS, Check, Look, either
from turnledger.workers.doctor.facts import Facts, Unasked, Version, version_text

LEAST_REDIS = (6, 2)
LEAST_VALKEY = (7, 2)  # the first there is
LEAST_POSTGRES = (18,)  # the one that everything is tested on
LEAST_RQ, FIRST_UNKNOWN_RQ = (3,), (4,)
LEAST_REDIS_PY = (5, 2)
LARGEST_SKEW_S = 1.0  # retention, leases and reports bear it; a host that is further off has lost its time server


def _access(facts: Facts) -> Look:
    refused, silent = facts.unanswered(away=False), facts.unanswered(away=True)
    if silent and not refused:
        raise Unasked("; ".join(silent), away=True)
    return either("; ".join((*refused, *silent)), fine="no question was refused")


def _versions(facts: Facts) -> Look:
    redis, postgres, host = facts.redis.get(), facts.postgres.get(), facts.host
    least = LEAST_VALKEY if redis.product == "Valkey" else LEAST_REDIS
    old = [
        f"{name} is {version_text(found)}, and {version_text(wanted)} is the oldest that will do"
        for name, found, wanted in (
            (redis.product, redis.version, least),
            ("Postgres", postgres.version, LEAST_POSTGRES),
            ("rq", host.rq_version, LEAST_RQ),
            ("redis-py", host.redis_py_version, LEAST_REDIS_PY),
        )
        if found < wanted
    ]
    if host.rq_version >= FIRST_UNKNOWN_RQ:
        old.append(f"rq is {version_text(host.rq_version)}, and this version was made for {version_text(LEAST_RQ)}")
    return either("; ".join(old), fine=_told(facts, redis.product, redis.version))


def _told(facts: Facts, product: str, version: Version) -> str:
    found = {product: version, "Postgres": facts.postgres.get().version}
    found |= {"rq": facts.host.rq_version, "redis-py": facts.host.redis_py_version}
    return ", ".join(f"{name} {version_text(each)}" for name, each in found.items())


def _writes(facts: Facts) -> Look:
    faults = {
        "Redis is a replica": facts.redis.get().is_replica,
        "Postgres is a standby, or was told to take no writes": not facts.postgres.get().takes_writes,
    }
    return either("; ".join(words for words, holds in faults.items() if holds), fine="both servers take writes")


def _migrations(facts: Facts) -> Look:
    postgres = facts.postgres.get()
    if postgres.migrated:
        return Look(fine=f"the schema is at revision {postgres.revision}")
    found = "has no schema of ours" if postgres.revision is None else f"is at revision {postgres.revision}"
    return Look(wrong=f"the database {found}, and this version needs {postgres.needed_revision}")


def _eviction(facts: Facts) -> Look:
    policy = facts.redis.get().policy
    fault = "" if policy == "noeviction" else f"maxmemory-policy is {policy}"
    return either(fault, fine="maxmemory-policy is noeviction")


def _persistence(facts: Facts) -> Look:
    redis = facts.redis.get()
    faults = [] if redis.append_only else ["appendonly is no"]
    return either("; ".join([*faults, *redis.failing]), fine="the append-only file is on, and nothing of it failed")


def _clocks(facts: Facts) -> Look:
    redis, postgres = facts.redis.get(), facts.postgres.get()
    skews = {"Redis": (redis.skew_s, redis.skew_error_s), "Postgres": (postgres.skew_s, postgres.skew_error_s)}
    apart = [
        f"the clock of {name} is {abs(skew):,.1f} s {'ahead of' if skew > 0 else 'behind'} this host's"
        for name, (skew, error) in skews.items()
        if abs(skew) - error > LARGEST_SKEW_S
    ]
    return either("; ".join(apart), fine=f"both servers' clocks are within {LARGEST_SKEW_S:g} s of this host's")


def _serializer(facts: Facts) -> Look:
    jobs = facts.turns.get().foreign_jobs
    fault = f"jobs in our queues that are not JSON: {', '.join(jobs)}" if jobs else ""
    return either(fault, fine="every job looked at is JSON")


def _prefix(facts: Facts) -> Look:
    imported, configured = facts.host.imported_rq_prefix, facts.settings.rq_prefix
    fault = f"rq was imported with the prefix {imported!r}, and the settings say {configured!r}"
    return either("" if imported == configured else fault, fine=f"rq and the settings agree on {configured!r}")


def _rights(facts: Facts) -> Look:
    rights = facts.rights.get()
    if rights.refused is None:
        return Look(unknown="this user may not open a transaction, so its rights cannot be tried without using them")
    fault = f"Redis refuses this user, as {rights.role}: {', '.join(rights.refused)}" if rights.refused else ""
    return either(fault, fine=f"Redis allows every command that the role {rights.role} gives")


def _memory(facts: Facts) -> Look:
    redis, most = facts.redis.get(), facts.settings.redis_memory_share
    if not redis.memory_limit_bytes:
        return Look(fine="Redis has no memory limit of its own")
    share = redis.memory_bytes / redis.memory_limit_bytes
    if share > most:
        return Look(wrong=f"Redis uses {share:.0%} of its memory limit; {most:.0%} is the most that leaves headroom")
    if 0 < redis.machine_bytes < redis.memory_limit_bytes:
        return Look(wrong="maxmemory is more than the whole memory of Redis' machine")
    return Look(fine=f"Redis uses {share:.0%} of its memory limit")


SERVER_CHECKS = (
    Check(
        name=ACCESS,
        asks="Does each server answer what this user asks?",
        why="What is refused here is refused to a worker or an engine node too, and it stops on that.",
        fix="Correct the user or the database in the URL that the finding names, or grant it its role: `turnledger "
        "migrate --roles` for Postgres, the lines of `turnledger acl` for Redis.",
        look=_access,
    ),
    Check(
        name="versions",
        asks="Are Redis or Valkey, Postgres, rq and redis-py of versions that this one works with?",
        why="Older servers lack commands that our scripts and statements give; another rq writes its jobs otherwise.",
        fix="Upgrade what the finding names.",
        look=_versions,
    ),
    Check(
        name="migrations",
        asks="Is the database at the schema revision of this version?",
        why="Every process refuses to start on another schema than its own.",
        fix="Run `turnledger migrate` with the version that is deployed.",
        look=_migrations,
    ),
    Check(
        name="writes",
        asks="Do both servers take writes?",
        why="Everything waits until they do: turns run flagged, completions stay pending or are committed past Redis. "
        "What a standby or a replica has may be older than what was committed.",
        fix="Promote the server, or name the one that takes writes. A URL with all of them finds it by itself: "
        "host:port,host:port with target_session_attrs=read-write for Postgres, redis+sentinel:// for Redis.",
        look=_writes,
    ),
    Check(
        name="eviction",
        asks="Does Redis keep every key when it is full?",
        why="With any other policy a full Redis drops completed turns without a word. Workers refuse to start.",
        fix="`CONFIG SET maxmemory-policy noeviction`, and the same in redis.conf.",
        look=_eviction,
    ),
    Check(
        name="persistence",
        asks="Does Redis keep an append-only file, and did its last writes to disk succeed?",
        why="Without the file a restart loses all that is not committed yet; while its disk fails, Redis acknowledges "
        "what a restart forgets, or refuses every write.",
        fix="`CONFIG SET appendonly yes`, and the same in redis.conf. Where a write failed: make room on its disk, "
        "mend it, and look into its log.",
        look=_persistence,
    ),
    Check(
        name="clocks",
        asks="Do the clocks of Redis and Postgres agree with this host's?",
        why="Leases and expiry go by Redis' clock, retention by Postgres', times in logs by this host's: apart, what "
        "is told does not fit together, and a sweep may take what is too young.",
        fix="Let a time service such as chrony run on the machine whose clock is off.",
        look=_clocks,
    ),
    Check(
        name="serializer",
        asks="Are the jobs at both ends of our queues JSON?",
        why="Workers read JSON alone, since unpickling a job runs whatever it says: a job in another form fails.",
        fix="Find who enqueues it and pass `serializer=JSONSerializer` there, or a queue of its own; then delete "
        "the job.",
        look=_serializer,
    ),
    Check(
        name="prefix",
        asks="Was rq imported with the prefix that the settings name?",
        why="Scripts would queue jobs where no worker of this process looks for them.",
        fix="Set RQ_KEY_PREFIX before the process starts, to the same value for every process.",
        look=_prefix,
    ),
    Check(
        name="rights",
        asks="Does Redis allow this user every command that its role gives?",
        why="A command that is refused in the middle of a script leaves its turn to the reconciler, and a worker "
        "stops.",
        fix="Give the user the line that `turnledger acl` prints for its role. Where it cannot be told: allow MULTI "
        "and DISCARD, which every role needs.",
        look=_rights,
    ),
    Check(
        name="memory",
        asks="Has Redis headroom below its memory limit, and its machine that much memory?",
        why="A Redis at its limit refuses writes: engine nodes then commit turns themselves, and starts are not saved. "
        "A limit above the machine's memory ends with Redis killed.",
        fix="Raise maxmemory, give the machine more memory, or let workers drain the queue.",
        look=_memory,
    ),
)
