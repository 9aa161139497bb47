"""Transactions: the coordinator of transactional ids, from InitProducerId to the end markers."""
