"""Trees are no containers: homes and toolkits that a probe sees are the machine's, so none is looked at."""

from tests.check.conftest import nothing_of_the_machine

__all__ = ["nothing_of_the_machine"]
