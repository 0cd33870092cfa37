"""How commands of `turnledger` are declared, how their help looks, and how what goes wrong in one is told."""

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from turnledger.workers.cli import exits
from turnledger.workers.cli.mistakes import told_in_one_line

TRY, DEPLOY, LOOK = "To try it", "In a deployment", "To look and to repair"
FLAG = ""  # shown as what a switch takes: nothing

Function = TypeVar("Function", bound=Callable[..., Any])

_EXIT_CODES = "; ".join(f"{code} {meaning}" for code, meaning in exits.MEANINGS.items())


class _PlainHelp:
    def get_help_option(self, ctx: Any) -> Any:
        """The option, without the word that says of a switch what it takes."""
        option = super().get_help_option(ctx)  # type: ignore[misc]  # of the class that this one is mixed into
        if option is not None:
            option.metavar = FLAG
        return option


class _Command(_PlainHelp, TyperCommand):
    pass


class _Commands(_PlainHelp, TyperGroup):
    """Turns what went wrong into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        with told_in_one_line():
            return super().invoke(ctx)


def new_app(description: str) -> typer.Typer:
    """An application without commands."""
    return typer.Typer(
        cls=_Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=f"Exit codes: {_EXIT_CODES}.",
        help=description,
    )


def command(app: typer.Typer, panel: str, *examples: str) -> Callable[[Function], Function]:
    """Declare a command under a heading of the list; its help ends with these examples, a line each."""
    title = "Example:" if len(examples) == 1 else "Examples:"
    epilog = "\n\n".join([title, *(f"turnledger {example}" for example in examples)])
    return app.command(cls=_Command, epilog=epilog, rich_help_panel=panel)
