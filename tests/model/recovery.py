"""What workers and the clock do once nothing goes wrong any more, until nothing is left to do."""

from tests.model.actors import Machine
from tests.model.execution import Stores
from tests.model.product import Product
from tests.model.programs import clock, worker
from tests.model.view import KEYS
from tests.model.violation import Violation

MOST_ROUNDS = 12


class Recovery:
    """Runs jobs and sweeps one after the other, from any pair of stores."""

    def __init__(self, product: Product) -> None:
        self._machine = Machine(product, [worker(jobs=1), clock()])

    def run(self, stores: Stores, *, helpers: str) -> None:
        """Change the stores until the queue is empty and a sweep changes nothing."""
        for _ in range(MOST_ROUNDS):
            before = (stores.redis, stores.tables)
            if KEYS.queue in stores.redis:
                self._finish(0, stores)
            elif helpers != "workers":
                self._finish(1, stores)
            if (stores.redis, stores.tables) == before:
                return
        raise Violation(f"{helpers} go on for ever and do not empty the queue")

    def _finish(self, number: int, stores: Stores) -> None:
        local = self._machine.begin(number)
        while local.waits_for is not None:
            step = self._machine.step(number, local, stores)
            local, stores.redis, stores.tables = step.local, step.redis, step.tables
