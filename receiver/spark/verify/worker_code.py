"""How work travels to Spark's Python workers, and what it finds out there before it begins.

A function of an installed module is sent by its name. A worker that lacks the module, or has it in
another version, then fails somewhere within pickle, or works by other rules without a word. So what
is sent is a closure, which travels with its code: it looks at what is installed, and only then
unpacks the work.
"""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any

from common import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    _Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

__all__ = ["shipped", "unfit"]

_SAYS = "unfit worker: "
_SAID = re.compile(rf"^RuntimeError: {_SAYS}(.+)$", re.MULTILINE)


def shipped(make: Callable[..., _Work], shared: Any, *arguments: Any) -> _Work:
    """A function for `mapInArrow` that runs `make(shared, *arguments)` on workers that are fit.

    Args:
        make: a class or function of this package.
        shared: a broadcast value, which Spark has to see, or None.
        arguments: anything that can be pickled.
    """
    packed = pickle.dumps((make, arguments), pickle.HIGHEST_PROTOCOL)
    version, says = __version__, _SAYS

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Nothing of this module is known here: all names are the closure's, or Python's own.
        import pickle
        import socket
        import sys

        where = f"{says}{sys.executable} on {socket.gethostname()}"
        wanted = f"every worker needs tsferry[spark] {version}"
        try:
            from common import __version__ as found

            if found != version:
                raise RuntimeError(f"{where} has tsferry {found}; {wanted}")
            import receiver.spark.verify.examining.file_checks  # noqa: F401 - it needs all that the work needs
        except ImportError as error:
            raise RuntimeError(f"{where}: {error}; {wanted}") from None
        work, arguments = pickle.loads(packed)  # noqa: S301 - from the driver of this job
        yield from work(shared, *arguments)(batches)

    return run


def unfit(error: Exception) -> str | None:
    """What a worker lacks, if an error of Spark's says that one is not fit for the work."""
    said = _SAID.search(str(error))
    return said[1] if said else None
