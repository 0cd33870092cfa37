"""The step of a user message holds the task alone: the block that stood before it belongs to the record of its turn."""

import json
from dataclasses import replace

from turnledger.store import Step
from turnledger.store.block import SEPARATOR, TASK_HEADING
from turnledger.store.json_text import encode_json


def task_alone(step: Step, *, block: str) -> Step:
    """The step without the block, and without the heading that `user_message` put between the two.

    A step in which the block does not stand, whole, is the step itself, byte for byte. So is one in which it is all of
    a text: vendors refuse an empty one.
    """
    if not block or step.role != "user":
        return step
    for text in (f"{block}{SEPARATOR}{TASK_HEADING}{SEPARATOR}", block):
        for spelled in (encode_json(text)[1:-1], json.dumps(text)[1:-1]):  # the two usual spellings of JSON
            if spelled in step.content and f'"{spelled}"' not in step.content:
                return replace(step, content=step.content.replace(spelled, ""))
    return step
