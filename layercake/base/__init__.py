"""What every storey may use: the standard library and layercake.kraken only, so that it ships to
nodes too."""
