"""s3fs at work, in an interpreter of its own that has it: what it is told comes by lines of JSON.

Started by `storage_clients.py`. It imports nothing of tsferry.
"""

from __future__ import annotations

import json
import os
import sys
import time

import fsspec  # type: ignore[import-not-found,unused-ignore]


def main() -> None:
    """Answer each line with the seconds that each of its requests took."""
    endpoint, region = sys.argv[1:]
    files = fsspec.filesystem(
        "s3",
        key=os.environ["AWS_ACCESS_KEY_ID"],
        secret=os.environ["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=endpoint,
        client_kwargs={"region_name": region},
        use_listings_cache=False,
        max_concurrency=4,
    )
    for line in sys.stdin:
        asked = json.loads(line)
        data, spent = os.urandom(asked["size"]), []
        for number in range(asked["count"]):
            path = f"{asked['path']}{number if asked['put'] else ''}"
            begin = time.perf_counter()
            if asked["put"]:
                files.pipe_file(path, data, chunksize=16 << 20)
            else:
                at = number * asked["size"]
                assert len(files.cat_file(path, start=at, end=at + asked["size"])) == asked["size"]
            spent.append(time.perf_counter() - begin)
        print(json.dumps(spent), flush=True)


if __name__ == "__main__":
    main()
