"""Conversation keys, one builder a source: the documented way to make them.

A builder gives None when a part is missing (None or blank), never half a key. Raises InvalidInput
when the parts are there and the key they make is not allowed.
"""

from __future__ import annotations

import re
import uuid

from turnledger.store.errors import InvalidInput
from turnledger.store.identity import UNRECORDED_SOURCE, ConversationKey, check_conversation

_REPOSITORY = re.compile(r"[^/#\s]+/[^/#\s]+")
_SLACK_DIRECT = frozenset({"im", "mpim"})
_MATTERMOST_DIRECT = frozenset({"D", "G"})
_CHATS = frozenset({"slack", "mattermost"})

Part = str | int | None


def jira(issue_key: Part) -> str | None:
    """``jira:POC-7``"""
    return _key("jira", "{}", issue_key)


def github(repository: str | None, *, number: Part) -> str | None:
    """``github:acme/api#42``, for issues and pull requests alike. A repository without owner gives None."""
    if not repository or not _REPOSITORY.fullmatch(repository.strip()):
        return None
    return _key("github", "{}#{}", repository, number)


def gitlab(project: Part, *, merge_request: Part = None, issue: Part = None) -> str | None:
    """``gitlab:acme/api!7`` for a merge request, ``gitlab:acme/api#7`` for an issue; one of the two."""
    merge_number = _part(merge_request)
    if merge_number is None:
        return _key("gitlab", "{}#{}", project, issue)
    if _part(issue) is not None:
        raise InvalidInput("a gitlab conversation is a merge request or an issue, not both", where="gitlab")
    return _key("gitlab", "{}!{}", project, merge_number)


def confluence(page_id: Part) -> str | None:
    """``confluence:123456``"""
    return _key("confluence", "{}", page_id)


def plane(entity_id: Part) -> str | None:
    """``plane:{uuid}``"""
    return _key("plane", "{}", entity_id)


def datadog(monitor_id: Part) -> str | None:
    """``datadog:98765``"""
    return _key("datadog", "{}", monitor_id)


def slack(
    channel: str | None,
    *,
    channel_type: str | None = None,
    thread_root: str | None = None,
    ts: str | None = None,
) -> str | None:
    """``slack:C9:1718.001`` in a shared channel, ``slack:D4`` in a direct message.

    In a shared channel the thread's root names the conversation, or the message's own timestamp. A
    direct message is one conversation however it is threaded: types ``im`` and ``mpim``, and where
    Slack omits the type, a channel id that begins with ``D``.
    """
    part, kind = _part(channel), _part(channel_type)
    direct = kind in _SLACK_DIRECT if kind else part is not None and part.startswith("D")
    return _chat_key("slack", channel, direct=direct, thread=_part(thread_root) or _part(ts))


def mattermost(
    channel: str | None,
    *,
    channel_type: str | None,
    root_id: str | None = None,
    post_id: str | None = None,
) -> str | None:
    """``mattermost:{channel}:{post}`` in a shared channel, ``mattermost:{channel}`` in a direct message.

    Types ``D`` and ``G`` are direct. Without a type there is no key, since only the type tells.
    """
    kind = _part(channel_type)
    if kind is None:
        return None
    return _chat_key("mattermost", channel, direct=kind in _MATTERMOST_DIRECT, thread=_part(root_id) or _part(post_id))


def event() -> str:
    """``event:{uuid}``: for a trigger without a durable conversation. Such a turn is never recorded."""
    return f"{UNRECORDED_SOURCE}:{uuid.uuid4()}"


def partition_key(conversation: str, *, thread_root: str | None = None, own_id: str | None = None) -> str:
    """What an inbox coalesces on: the conversation key, but for a reply in a thread of a direct message.

    ``thread_root`` and ``own_id`` are the ids of the thread and of the message (timestamps in Slack).
    """
    key = ConversationKey.parse(conversation)
    direct = key.source in _CHATS and ":" not in key.local
    root = _part(thread_root)
    if not direct or root is None or root == _part(own_id):
        return conversation
    return check_conversation(f"{conversation}:{root}")


def _chat_key(source: str, channel: str | None, *, direct: bool, thread: str | None) -> str | None:
    return _key(source, "{}", channel) if direct else _key(source, "{}:{}", channel, thread)


def _key(source: str, form: str, *parts: Part) -> str | None:
    texts = [_part(part) for part in parts]
    if None in texts:
        return None
    return check_conversation(f"{source}:{form.format(*texts)}")


def _part(value: Part) -> str | None:
    return None if value is None else str(value).strip() or None
