"""`RetryTask`: a step that is taken again after a while, and that something waits for.

If it raises, it is not repeated, and its waiters would wait for ever, in a broker that seems alive.
So its exception is a broken invariant, and ends the broker.
"""

from mypy_extensions import mypyc_attr

from odradek.timer.system_timer import is_interrupt
from odradek.timer.timer_task import TimerTask


@mypyc_attr(allow_interpreted_subclasses=True)
class RetryTask(TimerTask):
    """See the module. The step has to handle its expected errors."""

    def run(self) -> None:
        """Takes the step.

        Raises:
            AssertionError: it has raised, whatever that was.
        """
        try:
            super().run()
        except AssertionError:
            raise
        except (
            BaseException
        ) as error:  # of any kind: a retry that is not made is a broken invariant
            if is_interrupt(error):
                raise
            raise AssertionError(f"{self.describe()} has raised {error!r}") from error
