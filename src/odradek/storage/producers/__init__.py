"""The producers a log knows: sequences, open transactions, snapshots."""
