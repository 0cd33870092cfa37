"""Is a host: a process with a network namespace and a hostname of its own, which lasts as long as its standard input.

`python host.py HOSTNAME` says "made", waits for a line with the address of its interface, which has come by then, sets
that up, says "up", and ends with its input. Whatever runs on the host keeps the namespace; when the last is gone, so
are the namespace and both ends of its cable.
"""

import ctypes
import os
import socket
import sys

CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000
INTERFACE = "eth0"


def main() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUTS | CLONE_NEWNET):
        sys.exit(f"no namespace can be made here: {os.strerror(ctypes.get_errno())}")
    socket.sethostname(sys.argv[1])
    print("made", flush=True)  # noqa: T201
    _set_up(sys.stdin.readline().strip())
    print("up", flush=True)  # noqa: T201
    sys.stdin.read()


def _set_up(address: str) -> None:
    from pyroute2 import IPRoute

    with IPRoute() as kernel:
        for name in ("lo", INTERFACE):
            (index,) = kernel.link_lookup(ifname=name)
            kernel.link("set", index=index, state="up")
        ip, _, length = address.partition("/")
        kernel.addr("add", index=index, address=ip, prefixlen=int(length))


if __name__ == "__main__":
    main()
