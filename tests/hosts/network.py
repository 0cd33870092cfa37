"""Hosts with a cable each to one bridge of this machine: network namespaces, so the kernel's real TCP between them.

Needs root. All names hold the process id of the test run, so that runs do not meet, and what a killed run left behind
is removed by the next one.
"""

import itertools
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from pyroute2 import IPRoute, NetlinkError

from tests.hosts.host import INTERFACE

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"tl(\d+)-\d+$")
_numbers = itertools.count()


class NoNamespaces(Exception):
    """Network namespaces cannot be made here: they need Linux and root, with all that root may do."""


class Host:
    """A machine of its own, as far as its name and its network go; its disk and its processes are ours."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self._popen = subprocess.Popen(
            [sys.executable, str(_FOLDER / "host.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Host":
        if self._line() != "made":
            self.__exit__(None, None, None)
            raise NoNamespaces(NoNamespaces.__doc__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        self._popen.wait()
        self._popen.stdout.close()

    @property
    def process_id(self) -> int:
        return self._popen.pid

    @property
    def entering(self) -> list[str]:
        """Arguments of Python that come before those of a command which is to run on this host."""
        return [str(_FOLDER / "enter.py"), str(self.process_id)]

    def set_up(self, address: str, *, prefix: int) -> None:
        """Give the interface that has come here its address."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{address}/{prefix}\n")
        self._popen.stdin.flush()
        assert self._line() == "up", f"host {self.name} could not be made"
        self.address = address

    def _line(self) -> str:
        assert self._popen.stdout is not None
        return self._popen.stdout.readline().strip()


class Network:
    """A bridge with an address of ours, and the cables to it."""

    def __init__(self, kernel: IPRoute) -> None:
        self._kernel = kernel
        _remove_leftovers(kernel)
        self._subnet = _free_subnet(kernel)
        self._bridge = self._make("bridge")
        self.address = f"{self._subnet}.1"
        self._cables: dict[str, int] = {}

    @property
    def range(self) -> str:
        """All addresses, as Postgres writes it."""
        return f"{self._subnet}.0/24"

    def set_up(self) -> None:
        """Give the bridge its address."""
        self._kernel.addr("add", index=self._bridge, address=self.address, prefixlen=24)
        self._kernel.link("set", index=self._bridge, state="up")

    def plug_in(self, host: Host) -> None:
        """Connect a host, which has an address and can be reached when this returns."""
        here = _new_name()
        self._kernel.link("add", ifname=here, kind="veth", peer={"ifname": INTERFACE, "net_ns_pid": host.process_id})
        (cable,) = self._kernel.link_lookup(ifname=here)
        self._cables[host.name] = cable
        self._kernel.link("set", index=cable, master=self._bridge, state="up")
        host.set_up(f"{self._subnet}.{len(self._cables) + 1}", prefix=24)

    def cut(self, host: Host) -> None:
        """Pull the cable: nothing comes or goes, and nobody is told."""
        self._kernel.link("set", index=self._cables[host.name], state="down")

    def mend(self, host: Host) -> None:
        """Put the cable back."""
        self._kernel.link("set", index=self._cables[host.name], state="up")

    def remove(self) -> None:
        for link in (*self._cables.values(), self._bridge):
            with suppress(NetlinkError):  # a host that could not be made has taken its cable along
                self._kernel.link("del", index=link)

    def _make(self, kind: str) -> int:
        name = _new_name()
        self._kernel.link("add", ifname=name, kind=kind)
        (index,) = self._kernel.link_lookup(ifname=name)
        return int(index)


@contextmanager
def network(*names: str) -> Iterator[tuple[Network, list[Host]]]:
    """A network with these hosts; both are gone when the block ends, as are the hosts' processes by then."""
    with ExitStack() as stack:
        hosts = [stack.enter_context(Host(name)) for name in names]
        made = Network(stack.enter_context(IPRoute()))
        stack.callback(made.remove)
        made.set_up()
        for host in hosts:
            made.plug_in(host)
        yield made, hosts


def _new_name() -> str:
    return f"tl{os.getpid()}-{next(_numbers)}"


def _remove_leftovers(kernel: IPRoute) -> None:
    for link in list(kernel.get_links()):
        found = _NAME.match(link.get_attr("IFLA_IFNAME"))
        if found and not Path(f"/proc/{found[1]}").exists():
            kernel.link("del", index=link["index"])


def _free_subnet(kernel: IPRoute) -> str:
    """Of the range that is set aside for tests of networks (RFC 2544)."""
    taken = {address.get_attr("IFA_ADDRESS").rpartition(".")[0] for address in kernel.get_addr(family=2)}
    return random.choice([f"198.{a}.{b}" for a in (18, 19) for b in range(256) if f"198.{a}.{b}" not in taken])
