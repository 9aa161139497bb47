"""A background that does one thing when told, so that a test sees what comes between two."""

from odradek.background import InlineBackground


class LateBackground:
    """Does one piece of work, or one deferred action, when told."""

    def __init__(self):
        self.work = []

    def submit(self, work, on_done, on_error):
        self.work.append(lambda: InlineBackground().submit(work, on_done, on_error))

    def defer(self, action):
        self.work.append(action)

    def step(self):
        self.work.pop(0)()


def run(background, exchange):
    """Takes steps until it is answered; returns how many."""
    steps = 0
    while exchange.sent is None and not exchange.closed:
        background.step()
        steps += 1
    return steps
