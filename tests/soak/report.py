"""How a soak is shown: one calm line while it runs, a table at its end."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.soak.recovery import Watch
from tests.soak.verdict import MOST_PROBLEMS, Verdict

MOST_RECOVERY_S = 60.0


def recovered_in_time(watches: Sequence[Watch]) -> bool:
    return all(watch.took_s is not None and watch.took_s < MOST_RECOVERY_S for watch in watches)


def print_report(console: Console, verdict: Verdict, watches: Sequence[Watch], counts: Counter[str]) -> None:
    console.print(_recovery_table(watches))
    played = ", ".join(f"{number:,} {what}" for what, number in counts.most_common())
    console.print(f"\nThe nodes also counted: {played or 'nothing'}.")
    console.print(
        f"\nTold {verdict.told:,} turns: {verdict.committed:,} committed, {verdict.duplicates:,} duplicates of others,"
        f" {verdict.superseded:,} completed by another holder. Replacements of history: {verdict.replaced:,}."
    )
    console.print(
        f"Lost: {len(verdict.lost)}. Doubled: {len(verdict.doubled)}. Other problems: {len(verdict.problems)}."
    )
    for problem in [*verdict.lost, *verdict.doubled, *verdict.problems][:MOST_PROBLEMS]:
        console.print(f"  {problem}", markup=False)


def _recovery_table(watches: Sequence[Watch]) -> Table:
    by_kind: dict[str, list[Watch]] = defaultdict(list)
    for watch in watches:
        by_kind[watch.kind].append(watch)
    table = Table("killed", "times", "recovery p50", "max", "never", title="Recovery after each kill")
    for kind, some in [*sorted(by_kind.items()), ("all", list(watches))]:
        times = [watch.took_s for watch in some if watch.took_s is not None]
        p50, most = (f"{median(times):.1f} s", f"{max(times):.1f} s") if times else ("-", "-")
        table.add_row(kind, str(len(some)), p50, most, str(len(some) - len(times)))
    return table
