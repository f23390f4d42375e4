"""The commented configuration that `init` starts from; a wheel has no `conf/` to copy it from."""

from __future__ import annotations

import json
from collections.abc import Sequence

__all__ = ["configuration"]

_TEMPLATE = """\
# tsferry-receiver. What stands behind #key is the default: take the # away to change it.
# All keys, with what they mean now and where each value comes from:
#     tsferry-receiver --config FILE config show --origin
# Relative paths are relative to this file.

# Holds the metadata engine.
schema_dir = {schema_dir}

# Hold the loaded files; new ones go to the first.
data_dirs = [{data_dirs}]

# Width of a time partition, and unit of the timestamps in the data ("ms", "us", "ns"); senders with
# others are refused.
#partition_interval = "7d"
#time_unit = "ms"

[listen]
# 0.0.0.0 or :: for all addresses; other than loopback needs tls_cert and tls_key, or insecure.
#host = "127.0.0.1"
#port = 8765
#tls_cert = "server.pem"
#tls_key = "server.key"
#insecure = false

# Networks and hosts that may connect. The address of the connection counts, never a header.
#allow = ["127.0.0.0/8", "::1/128"]

[auth]
# "always", or "auto": senders on this machine need no token until there is one for a sender.
#require = "auto"

[limits]
# Free space of the file system below which nothing is taken in.
#min_free_bytes = "1GiB"

# Bytes of one sender that are received and not loaded.
#max_unloaded_bytes = "256GiB"

[load]
# Until the bytes of a deleted file leave the disk.
#keep_deleted = "1h"

[log]
#level = "info"
#file = "receiver.log"
"""


def configuration(schema_dir: str, data_dirs: Sequence[str]) -> str:
    """A configuration with these directories."""
    return _TEMPLATE.format(
        schema_dir=_quoted(schema_dir), data_dirs=", ".join(map(_quoted, data_dirs))
    )


def _quoted(text: str) -> str:
    # A JSON string of ASCII is a TOML basic string: the escapes are the same.
    return json.dumps(text)
