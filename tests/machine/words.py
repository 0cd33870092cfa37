"""Steps that name themselves: each is one word, and no word is ever used twice.

The first letter says what the step is: u a user's, a an assistant's, c an assistant's with one call, r a result of
the call whose number it has before the point, z a summary that stands for other words.
"""

import itertools
from collections.abc import Mapping, Sequence

from turnledger.store import Step
from turnledger.store.steps import Answer, Call

_numbers = itertools.count(1)
_ROLES = {"u": "user", "a": "assistant", "c": "assistant", "r": "tool", "z": "user"}

Meanings = Mapping[str, Sequence[str]]


def new_word(letter: str) -> str:
    return f"{letter}{next(_numbers)}"


def result_of(call: str) -> str:
    return f"r{call[1:]}.{next(_numbers)}"


def step_of(word: str) -> Step:
    content = {"role": _ROLES[word[0]], "content": word}
    calls = [Call(word, "look")] if word[0] == "c" else []
    answers = [Answer(_call_of(word))] if word[0] == "r" else []
    return Step.of(role=_ROLES[word[0]], content=content, calls=calls, answers=answers)


def steps_of(words: Sequence[str]) -> list[Step]:
    return [step_of(word) for word in words]


def words_of(steps: Sequence[Step]) -> list[str]:
    return [str(step.value["content"]) for step in steps]


def open_calls(words: Sequence[str]) -> list[str]:
    answered = {_call_of(word) for word in words if word[0] == "r"}
    return [word for word in words if word[0] == "c" and word not in answered]


def spelled_out(words: Sequence[str], meanings: Meanings) -> list[str]:
    """Every summary replaced by what it stands for, to the end."""
    result: list[str] = []
    for word in words:
        result += spelled_out(meanings[word], meanings) if word[0] == "z" else [word]
    return result


def _call_of(result: str) -> str:
    return f"c{result[1:].partition('.')[0]}"
