"""The builders of conversation keys: what each source sends, the conversation, and what an inbox coalesces on."""

from typing import Any, NamedTuple

import pytest

from turnledger.store import conversations
from turnledger.store.conversations import partition_key
from turnledger.store.errors import InvalidInput
from turnledger.store.identity import ConversationKey, LedgerName


class Case(NamedTuple):
    """Parts of a payload, the conversation key, and the partition where it is another."""

    parts: dict[str, Any]
    key: str | None
    partition: str | None = None


SLACK = {
    "a message in a channel": Case({"channel": "C9", "channel_type": "channel", "ts": "1718.001"}, "slack:C9:1718.001"),
    "a reply to it": Case(
        {"channel": "C9", "channel_type": "channel", "thread_root": "1718.001", "ts": "1719.5"}, "slack:C9:1718.001"
    ),
    "the root once it has replies": Case(
        {"channel": "C9", "channel_type": "channel", "thread_root": "1718.001", "ts": "1718.001"}, "slack:C9:1718.001"
    ),
    "a private channel": Case({"channel": "G7", "channel_type": "group", "ts": "1.1"}, "slack:G7:1.1"),
    "a mention, which names no type": Case({"channel": "C9", "ts": "1718.001"}, "slack:C9:1718.001"),
    "a mention in an old private channel": Case({"channel": "G7", "ts": "1.1"}, "slack:G7:1.1"),
    "a direct message": Case({"channel": "D4", "channel_type": "im", "ts": "1719.5"}, "slack:D4"),
    "a thread in it": Case(
        {"channel": "D4", "channel_type": "im", "thread_root": "1719.5", "ts": "1720.1"}, "slack:D4", "slack:D4:1719.5"
    ),
    "its root once it has replies": Case(
        {"channel": "D4", "channel_type": "im", "thread_root": "1719.5", "ts": "1719.5"}, "slack:D4"
    ),
    "another thread in it": Case(
        {"channel": "D4", "channel_type": "im", "thread_root": "1717.2", "ts": "1721.8"}, "slack:D4", "slack:D4:1717.2"
    ),
    "a group's direct message": Case({"channel": "G8", "channel_type": "mpim", "ts": "1.1"}, "slack:G8"),
    "a newer one": Case({"channel": "C8", "channel_type": "mpim", "ts": "1.1"}, "slack:C8"),
    "a thread in that": Case(
        {"channel": "C8", "channel_type": "mpim", "thread_root": "1.1", "ts": "1.2"}, "slack:C8", "slack:C8:1.1"
    ),
    "a direct message without its type": Case({"channel": "D4", "ts": "1719.5"}, "slack:D4"),
    "a thread in that, without its type": Case(
        {"channel": "D4", "thread_root": "1719.5", "ts": "1720.1"}, "slack:D4", "slack:D4:1719.5"
    ),
    "an empty type counts as none": Case({"channel": "D4", "channel_type": "", "ts": "1.1"}, "slack:D4"),
    "so does a blank one": Case({"channel": "D4", "channel_type": " ", "ts": "1.1"}, "slack:D4"),
    "a stated type wins over the letter": Case(
        {"channel": "D4", "channel_type": "channel", "ts": "1.1"}, "slack:D4:1.1"
    ),
    "an empty thread counts as none": Case({"channel": "C9", "thread_root": "", "ts": "1.1"}, "slack:C9:1.1"),
    "no channel": Case({"channel": None, "channel_type": "im", "ts": "1.1"}, None),
    "no timestamp": Case({"channel": "C9", "channel_type": "channel"}, None),
    "a direct message needs none": Case({"channel": "D4", "channel_type": "im"}, "slack:D4"),
}
MATTERMOST = {
    "a post in a public channel": Case({"channel": "c1", "channel_type": "O", "post_id": "p1"}, "mattermost:c1:p1"),
    "a reply to it": Case({"channel": "c1", "channel_type": "O", "root_id": "p1", "post_id": "p2"}, "mattermost:c1:p1"),
    "an empty root, as the server sends it": Case(
        {"channel": "c1", "channel_type": "O", "root_id": "", "post_id": "p1"}, "mattermost:c1:p1"
    ),
    "a private channel": Case({"channel": "c1", "channel_type": "P", "post_id": "p1"}, "mattermost:c1:p1"),
    "a direct message": Case({"channel": "c1", "channel_type": "D", "post_id": "p1"}, "mattermost:c1"),
    "a thread in it": Case(
        {"channel": "c1", "channel_type": "D", "root_id": "p1", "post_id": "p2"}, "mattermost:c1", "mattermost:c1:p1"
    ),
    "a group's direct message": Case({"channel": "c1", "channel_type": "G", "post_id": "p1"}, "mattermost:c1"),
    "a thread in that": Case(
        {"channel": "c1", "channel_type": "G", "root_id": "p1", "post_id": "p2"}, "mattermost:c1", "mattermost:c1:p1"
    ),
    "no type: only the type tells": Case({"channel": "D4", "channel_type": None, "post_id": "p1"}, None),
    "a blank type is none": Case({"channel": "c1", "channel_type": " ", "post_id": "p1"}, None),
    "no channel": Case({"channel": " ", "channel_type": "D", "post_id": "p1"}, None),
    "no post": Case({"channel": "c1", "channel_type": "O", "root_id": "", "post_id": ""}, None),
}
GITHUB = {
    "an issue": Case({"repository": "acme/api", "number": 42}, "github:acme/api#42"),
    "a pull request": Case({"repository": "acme/api", "number": 43}, "github:acme/api#43"),
    "a number as text": Case({"repository": "acme/api", "number": "42"}, "github:acme/api#42"),
    "blanks around it": Case({"repository": " acme/api ", "number": 42}, "github:acme/api#42"),
    "dots and dashes": Case({"repository": "a-c/m.e_x", "number": 1}, "github:a-c/m.e_x#1"),
    "no owner": Case({"repository": "api", "number": 42}, None),
    "a slash too many": Case({"repository": "acme/api/x", "number": 42}, None),
    "a repository that poses as an issue": Case({"repository": "acme/api#4", "number": 2}, None),
    "no number": Case({"repository": "acme/api", "number": None}, None),
    "no name": Case({"repository": "acme/", "number": 42}, None),
    "no repository": Case({"repository": None, "number": 42}, None),
}
GITLAB = {
    "a merge request": Case({"project": "acme/web/api", "merge_request": 7}, "gitlab:acme/web/api!7"),
    "an issue of the same number": Case({"project": "acme/web/api", "issue": 7}, "gitlab:acme/web/api#7"),
    "a project by its number": Case({"project": 12, "issue": "7"}, "gitlab:12#7"),
    "neither": Case({"project": "acme/api"}, None),
    "no project": Case({"project": "", "issue": 7}, None),
    "an issue, with an empty merge request": Case(
        {"project": "acme/api", "merge_request": "", "issue": 7}, "gitlab:acme/api#7"
    ),
    "a merge request, with an empty issue": Case(
        {"project": "acme/api", "merge_request": 7, "issue": " "}, "gitlab:acme/api!7"
    ),
    "an empty merge request is no issue": Case({"project": "acme/api", "merge_request": " "}, None),
}
PLAIN: dict[str, tuple[Any, Any, str | None]] = {
    "jira": (conversations.jira, "POC-7", "jira:POC-7"),
    "jira without": (conversations.jira, None, None),
    "confluence": (conversations.confluence, 123456, "confluence:123456"),
    "confluence as text": (conversations.confluence, "123456", "confluence:123456"),
    "confluence without": (conversations.confluence, "", None),
    "plane": (
        conversations.plane,
        "5f0c4a5e-8a3f-4f0e-9d2b-1c7f5f0d9e11",
        "plane:5f0c4a5e-8a3f-4f0e-9d2b-1c7f5f0d9e11",
    ),
    "plane without": (conversations.plane, "  ", None),
    "datadog": (conversations.datadog, 98765, "datadog:98765"),
    "datadog without": (conversations.datadog, None, None),
}


def _check(key: str | None, case: Case, *, thread_root: str | None, own_id: str | None) -> None:
    assert key == case.key
    if key is not None:
        ConversationKey.parse(key)
        assert partition_key(key, thread_root=thread_root, own_id=own_id) == (case.partition or case.key)


@pytest.mark.parametrize("case", SLACK.values(), ids=SLACK.keys())
def test_slack(case: Case) -> None:
    """A thread or the message's own timestamp in a channel, the channel alone in a direct message (ID-2, ID-3)."""
    key = conversations.slack(**case.parts)
    _check(key, case, thread_root=case.parts.get("thread_root"), own_id=case.parts.get("ts"))


@pytest.mark.parametrize("case", MATTERMOST.values(), ids=MATTERMOST.keys())
def test_mattermost(case: Case) -> None:
    """The same with post ids and the types `D` and `G` (ID-2, ID-3)."""
    key = conversations.mattermost(**case.parts)
    _check(key, case, thread_root=case.parts.get("root_id"), own_id=case.parts.get("post_id"))


@pytest.mark.parametrize("case", GITHUB.values(), ids=GITHUB.keys())
def test_github(case: Case) -> None:
    """Issues and pull requests share their numbers (ID-2)."""
    _check(conversations.github(**case.parts), case, thread_root="1", own_id="2")


@pytest.mark.parametrize("case", GITLAB.values(), ids=GITLAB.keys())
def test_gitlab(case: Case) -> None:
    """Merge requests and issues do not (ID-2)."""
    _check(conversations.gitlab(**case.parts), case, thread_root="1", own_id="2")


@pytest.mark.parametrize(("builder", "part", "key"), PLAIN.values(), ids=PLAIN.keys())
def test_sources_with_one_part(builder: Any, part: Any, key: str | None) -> None:
    """One id, or no key (ID-2)."""
    _check(builder(part), Case({}, key), thread_root="1", own_id="2")


def test_the_partition_differs_only_for_a_reply_in_a_direct_thread() -> None:
    """Told by the tables themselves (ID-3)."""
    differing = [name for table in (SLACK, MATTERMOST) for name, case in table.items() if case.partition]
    assert [name for name in [*SLACK, *MATTERMOST] if "thread in" in name] == differing


def test_a_part_that_cannot_be_in_a_key_is_refused() -> None:
    """Parts that are there and not allowed are an error, not a missing key (ID-1)."""
    with pytest.raises(InvalidInput, match="control character"):
        conversations.jira("POC\n7")
    with pytest.raises(InvalidInput, match="not both"):
        conversations.gitlab("acme/api", merge_request=1, issue=1)


def test_an_event_key_is_new_each_time_and_not_recorded() -> None:
    """A trigger without a durable conversation gets a key that is never recorded (ID-4)."""
    first, second = conversations.event(), conversations.event()
    assert first != second
    assert not LedgerName("lead", first).recorded
