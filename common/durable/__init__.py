"""The one door to the disk: every write, rename, link and directory sync that must last.

The order behind each promise is write, fsync the file, rename, fsync the directory; each step is
needed. Without the first sync a power cut leaves the final name with no bytes behind it; without
the second it leaves no name. Appending to a log is write, fdatasync. Only then may a caller tell
anybody. What is *not* promised: that a file which was being written when the power went is gone;
leftovers have names of their own (`is_temporary`) and the start-up of each program sweeps them
(`Tree.sweep_temporaries`).

What a process finds at its start may be in the kernel's memory only, left there by one that was
killed between a write and its sync. `Tree.append_file` therefore flushes a log before it is relied
on; whoever goes on from other files owes them a `sync_file` and a `sync_dir`.

A failed sync is never retried: the kernel may have dropped the dirty pages and would report success
the second time. `FailedSyncError` is raised, and every later change by this process is refused
with `ReadOnlyError` (`failed_sync()` says why) until it is started again. A disk that is full
(ENOSPC, EDQUOT) is no such failure, even if only the sync finds out: `NoSpaceError`, and what was
not acknowledged has to be written again, in a log over the place to which it was cut back.

Errors that say something about a name (`FileNotFoundError`, `FileExistsError`, EXDEV and so on) are
the `OSError` they are; those that say something about the disk are of our tree.

All paths are relative to a `Tree`, a directory held open by descriptor; none can leave it
(`common.beneath`). A `Tree` and an `AppendFile` may be used by several threads at once, a
`WriteFile` by one at a time; nothing may be used while another thread closes it.
"""

from common.durable.flushing import failed_sync
from common.durable.open_files import AppendFile, Closing, Lock, WriteFile, memory_file
from common.durable.scratch import ScratchDirectory, write_scratch
from common.durable.staying import staying
from common.durable.temporaries import is_temporary, temporary_name
from common.durable.tree import Tree, free_bytes, is_read_only

__all__ = [
    "AppendFile",
    "Closing",
    "Lock",
    "ScratchDirectory",
    "Tree",
    "WriteFile",
    "failed_sync",
    "free_bytes",
    "is_read_only",
    "is_temporary",
    "memory_file",
    "staying",
    "temporary_name",
    "write_scratch",
]
