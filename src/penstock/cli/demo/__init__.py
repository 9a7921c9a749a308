"""`penstock demo`: a crash, and what is there afterwards, told as it happens."""
