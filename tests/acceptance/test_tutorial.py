"""The tutorial is typed as it stands, page after page, and prints what it says it prints."""

from tests.pages import TUTORIAL, name_of
from tests.processes import Processes
from tests.tutorial import PAGES, Reader


def test_a_reader_of_the_tutorial_sees_what_it_says(processes: Processes) -> None:
    """From `turnledger up` to the end: one conversation, with processes killed on the way (OP-1, CK-6, FL-7, HV-1)."""
    with Reader(processes) as reader:
        for page in PAGES:
            for shown in reader.read(page):
                assert shown.fits, (
                    f"{name_of(page)}, line {shown.block.line} does not say what is printed (python -m tests.tutorial "
                    f"writes it):\n{shown.printed}"
                )


def test_every_page_of_the_tutorial_is_played() -> None:
    assert sorted(PAGES) == sorted(TUTORIAL.glob("*.md"))
