"""`python -m tests.golden` writes the files anew and names those that changed."""

import sys

from tests.golden.files import write_all

for path in write_all():
    sys.stdout.write(f"{path.name} changed\n")
