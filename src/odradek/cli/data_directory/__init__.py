"""Commands that work on a data directory itself: no broker is asked, and none need run."""
