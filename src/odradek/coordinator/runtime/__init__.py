"""The replicated state machine that every coordinator runs on, and its log."""
