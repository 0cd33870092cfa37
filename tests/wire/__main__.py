"""`python -m tests.wire` writes the test vectors of the wire contract anew."""

from tests.wire.vectors import FILE, as_file

FILE.write_text(as_file(), encoding="ascii")
