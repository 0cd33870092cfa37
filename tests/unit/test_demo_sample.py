"""The sample that is shipped: what the demo promises of it."""

from importlib.resources import files
from pathlib import Path

from turnledger.workers.demo.command import SHOWN_CONVERSATION
from turnledger.workers.replay.conversations import read_conversations
from turnledger.workers.replay.plan import read_plan

SAMPLE = Path(str(files("turnledger.workers") / "sample" / "conversations.jsonl"))


def test_the_sample_is_small_and_has_calls_and_a_turn_without_reply() -> None:
    conversations = list(read_conversations(SAMPLE))
    turns = [turn for conversation in conversations for turn in conversation.turns]
    assert (len(conversations), len(turns)) == (12, 80)
    assert sum(len(step.calls) for turn in turns for step in turn.steps) == 120
    assert sum(turn.reply is None for turn in turns) == 1
    assert SAMPLE.stat().st_size < 100_000


def test_the_conversation_whose_block_is_shown_is_in_it() -> None:
    (shown,) = [each for each in read_conversations(SAMPLE) if each.id == SHOWN_CONVERSATION]
    assert len(shown.turns) > 3


def test_rounds_are_played_under_keys_of_their_own() -> None:
    plan = read_plan(SAMPLE, nodes=1, workers=1, rounds=3)
    assert (plan.conversations, plan.turns) == (36, 240)
    assert len(set(plan.keys())) == 36


def test_two_plans_of_one_file_share_no_key() -> None:
    first, second = (read_plan(SAMPLE, nodes=1, workers=1) for _ in range(2))
    assert not set(first.keys()) & set(second.keys())
