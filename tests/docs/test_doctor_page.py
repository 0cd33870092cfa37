"""The page about `turnledger doctor` has every check with its reason and its fix; it is written from the code."""

from pathlib import Path

from turnledger.workers.doctor import CHECKS, Verdict

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "doctor.md"

INTRODUCTION = """# Doctor

`turnledger doctor` looks at both servers and at this host, and says what is wrong, why it matters and what to do. It
changes nothing, and what it costs does not grow with what is stored: of records, jobs and entries it looks at a bounded
sample.

```console
$ turnledger doctor
$ turnledger doctor --role engine --json
```

`--role` (`engine`, `worker` or `reader`; `worker` when left out) says which rights in Redis the user in
`TURNLEDGER_REDIS_URL` should have. They are tried without being used. Each command is put into a transaction, which
Redis refuses at once where the right is missing, and the transaction is discarded. That works on Redis 6.2, which has
no `ACL DRYRUN`, and for users who may ask nothing about users.

Each check ends in one of these verdicts:

| verdict | meaning |
|---|---|
| `fine` | nothing is wrong |
| `wrong` | a person has to act; `finding`, `why` and `fix` say what is to be known |
| `unknown` | it cannot be told; `finding` says why |
| `away` | a server that it asks does not answer |

Why a server was not asked is said once, by `access`; the checks that could not be made refer to it.

The exit code is 3 when a server is away, else 1 when something is wrong, else 0; 2 for a setting that cannot be used.
With `--json` there is one object, whose member `checks` is a list of objects with `check`, `verdict`, `finding`, `why`
and `fix`, in the order of this page. `why` and `fix` are empty for what is fine or away.

## The checks

| check | what it asks | why it matters | what to do |
|---|---|---|---|
"""


def doctor_page() -> str:
    """The reference of every check; `python -m tests.docs.test_doctor_page` writes it."""
    rows = [f"| `{check.name}` | {check.asks} | {check.why} | {check.fix} |" for check in CHECKS]
    return INTRODUCTION + "\n".join(rows) + "\n"


def test_the_page_is_up_to_date() -> None:
    """OP-3"""
    assert PAGE.read_text(encoding="utf-8") == doctor_page(), "run: python -m tests.docs.test_doctor_page"


def test_every_check_says_why_it_matters_and_what_to_do() -> None:
    """In whole sentences, and no name stands for two checks (OP-3)."""
    for check in CHECKS:
        assert check.asks.split("(")[0].strip().endswith("?"), check.name
        assert check.why.endswith("."), check.name
        assert check.fix.endswith("."), check.name
        assert "|" not in check.asks + check.why + check.fix, check.name
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_every_verdict_is_explained() -> None:
    """OP-3"""
    for verdict in Verdict:
        assert f"| `{verdict.value}` |" in INTRODUCTION


if __name__ == "__main__":
    PAGE.write_text(doctor_page(), encoding="utf-8")
