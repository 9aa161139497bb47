"""Names that clients choose, among those that Kafka gives."""

from odradek.server.monitoring.beans import MOST_SOFTWARE, OTHER, _bounded


def test_software_is_bounded_and_every_name_comes_once():
    """Fails when a client that is called as the rest is makes a series twice, which costs the whole
    scrape."""
    counts = {(f"library-{number}", "1.0"): 2 for number in range(MOST_SOFTWARE + 50)}
    for common in (1, 5):
        named = {**counts, (OTHER, OTHER): common}
        shown = _bounded(named)
        assert len(shown) == MOST_SOFTWARE + 1 - (common == 5)
        assert sum(shown.values()) == sum(named.values())
    few = {(OTHER, OTHER): 1, ("library", "1.0"): 3}
    assert _bounded(few) == few
