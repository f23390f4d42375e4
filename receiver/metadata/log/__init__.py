"""What the engine has on its disk: log, tlog, segments, checkpoints, and the way back from them."""
