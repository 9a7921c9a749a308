"""`penstock bench`: how fast this machine is with Penstock, beside what its disk alone can do."""
