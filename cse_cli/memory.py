"""Memory: what was freed is held on to, so that the pages of a pass are there for the next one.

A forward pass takes and frees buffers of some megabytes thousands of times. glibc gives such memory
back to the system at once and takes it anew, and the system clears every page each time: 4% of
encoding and 5% of a training step where they were timed, by hand, on two cores.
"""

import ctypes
import os

# The names and numbers of <malloc.h>, and bytes: 32 MiB is the most that M_MMAP_THRESHOLD takes.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
SETTINGS = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 1 << 30, M_TOP_PAD: 64 << 20}


def out_of_memory(error: Exception) -> bool:
    """Whether a GPU or the processor had no memory left to give.

    By name, for this is asked of any error, and torch need not be there.
    """
    named = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return named or isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def keep_freed_memory() -> bool:
    """Have this process reuse its freed memory; whether its C library was told so.

    It is not where the user tuned glibc's allocator, by MALLOC_… or GLIBC_TUNABLES.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    taken = [mallopt(name, value) for name, value in SETTINGS.items()]
    return all(taken)
