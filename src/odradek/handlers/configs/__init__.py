"""Settings of topics, brokers and clients, and quotas."""
