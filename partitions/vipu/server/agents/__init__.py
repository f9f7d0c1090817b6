"""io: the agents of vipu-server and the machines behind them."""
