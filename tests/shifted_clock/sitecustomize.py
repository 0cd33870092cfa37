"""Makes the wall clock of the Python process that finds this file on its path wrong, from its first line on.

The monotonic clock stays right, as in a machine whose date was set wrong.
"""

import os
import time

import time_machine

time_machine.travel(time.time() + float(os.environ["SHIFTED_CLOCK_S"]), tick=True).start()
