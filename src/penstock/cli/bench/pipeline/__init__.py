"""`penstock bench pipeline`: readings into tables, beside plain Spark with Kafka's connector."""
