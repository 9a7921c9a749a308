"""Other brokers as sides of a comparison; `penstock bench --compare` loads them by path."""
