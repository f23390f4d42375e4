"""What a sender tells its hooks: how its rounds end, and what stands behind them."""
