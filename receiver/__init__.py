"""The receiver: takes TsFiles in, verifies them, decides who owns which device, loads them."""
