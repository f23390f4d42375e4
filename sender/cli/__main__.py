"""`python -m sender.cli`, which is how `start` calls the daemon."""

import sys

from sender.cli import main

sys.exit(main())
