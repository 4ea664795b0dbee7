"""The clock of permissions: it counts the time in which the machine is suspended, as leases do."""

import sys
import time
from typing import Callable

if sys.platform == "linux":

    def _boot_time() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    now: Callable[[], float] = _boot_time
else:
    now = time.monotonic
