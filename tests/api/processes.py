"""What tests of several processes share: waiting with a bound, and who is alive."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(is_so: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Whether it becomes so in time."""
    deadline = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.005)
    return is_so()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and that nobody has asked for its status does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
