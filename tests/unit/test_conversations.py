"""The builders of conversation keys."""

import pytest

from turnledger.store import conversations
from turnledger.store.conversations import gitlab, mattermost, partition_key, slack
from turnledger.store.errors import InvalidInput
from turnledger.store.identity import ConversationKey, LedgerName


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (conversations.jira("POC-7"), "jira:POC-7"),
        (conversations.github("acme/api", number=42), "github:acme/api#42"),
        (conversations.github(" acme/api ", number="42"), "github:acme/api#42"),
        (gitlab("acme/web/api", merge_request=7), "gitlab:acme/web/api!7"),
        (gitlab("acme/api", issue=7), "gitlab:acme/api#7"),
        (conversations.confluence(123456), "confluence:123456"),
        (conversations.plane("5f0c"), "plane:5f0c"),
        (conversations.datadog("98765"), "datadog:98765"),
    ],
)
def test_one_builder_a_source(key: str, expected: str) -> None:
    """Each source has one form of key (ID-2)."""
    assert key == expected
    ConversationKey.parse(key)


@pytest.mark.parametrize(
    "key",
    [
        conversations.jira(None),
        conversations.jira("  "),
        conversations.github(None, number=42),
        conversations.github("acme/", number=42),
        conversations.github("api", number=42),
        conversations.github("acme/api", number=None),
        conversations.gitlab(None, issue=1),
        conversations.gitlab("acme/api"),
        conversations.gitlab("acme/api", merge_request=""),
        conversations.confluence(None),
        conversations.plane(""),
        conversations.datadog(None),
        slack(None, ts="1.1"),
        slack("C9", channel_type="channel"),
        slack("", channel_type="im"),
        mattermost("c1", channel_type="O"),
        mattermost("c1", channel_type=None, post_id="p1"),
        mattermost(None, channel_type="D"),
    ],
)
def test_a_missing_part_gives_no_key(key: str | None) -> None:
    """A builder that misses a part gives None, never half a key (ID-2)."""
    assert key is None


def test_a_part_that_cannot_be_in_a_key_is_refused() -> None:
    """Parts that are there and not allowed are an error, not a missing key (ID-1)."""
    with pytest.raises(InvalidInput, match="control character"):
        conversations.jira("POC\n7")
    with pytest.raises(InvalidInput, match="not both"):
        gitlab("acme/api", merge_request=1, issue=1)


@pytest.mark.parametrize("channel_type", ["channel", "group", None])
def test_shared_slack_channel(channel_type: str | None) -> None:
    """In a shared channel the thread names the conversation, or the message itself (ID-2)."""
    assert slack("C9", channel_type=channel_type, thread_root="1718.001", ts="1719.5") == "slack:C9:1718.001"
    assert slack("C9", channel_type=channel_type, ts="1719.5") == "slack:C9:1719.5"


@pytest.mark.parametrize(("channel", "channel_type"), [("D4", "im"), ("G4", "mpim"), ("C4", "mpim"), ("D4", None)])
def test_direct_slack_message(channel: str, channel_type: str | None) -> None:
    """A direct message is one conversation however it is threaded; `D` tells when the type is omitted (ID-3)."""
    plain = slack(channel, channel_type=channel_type, ts="1719.5")
    threaded = slack(channel, channel_type=channel_type, thread_root="1718.001", ts="1719.6")
    assert plain == threaded == f"slack:{channel}"


def test_stated_slack_type_wins_over_the_prefix() -> None:
    """The prefix of the channel id is asked only when Slack omits the type (ID-3)."""
    assert slack("D4", channel_type="channel", ts="1.1") == "slack:D4:1.1"


def test_mattermost() -> None:
    """Mattermost has the same rule by post ids; types `D` and `G` are direct (ID-2, ID-3)."""
    assert mattermost("c1", channel_type="O", root_id="p1", post_id="p2") == "mattermost:c1:p1"
    assert mattermost("c1", channel_type="P", root_id="", post_id="p2") == "mattermost:c1:p2"
    assert mattermost("c1", channel_type="D", root_id="p1", post_id="p2") == "mattermost:c1"
    assert mattermost("c1", channel_type="G", post_id="p2") == "mattermost:c1"


def test_partition_differs_for_a_reply_in_a_direct_thread() -> None:
    """An inbox keeps the threads of a direct message apart, although they are one conversation (ID-3)."""
    assert partition_key("slack:D4", thread_root="1718.001", own_id="1719.6") == "slack:D4:1718.001"
    assert partition_key("mattermost:c1", thread_root="p1", own_id="p2") == "mattermost:c1:p1"


@pytest.mark.parametrize(
    ("conversation", "thread_root", "own_id"),
    [
        ("slack:D4", None, "1719.5"),
        ("slack:D4", "1719.5", "1719.5"),
        ("slack:C9:1718.001", "1718.001", "1719.5"),
        ("mattermost:c1:p1", "p1", "p2"),
        ("jira:POC-7", "10001", "10002"),
    ],
)
def test_partition_is_the_conversation_otherwise(conversation: str, thread_root: str | None, own_id: str) -> None:
    """In every other case both keys are the same (ID-3)."""
    assert partition_key(conversation, thread_root=thread_root, own_id=own_id) == conversation


def test_an_event_key_is_new_each_time_and_not_recorded() -> None:
    """A trigger without a durable conversation gets a key that is never recorded (ID-4)."""
    first, second = conversations.event(), conversations.event()
    assert first != second
    assert not LedgerName("lead", first).recorded
