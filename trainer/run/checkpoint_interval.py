"""Young's and Daly's formulas: how often to checkpoint on a machine that may fail at any time. Pure.

Cost is the time that one checkpoint takes, life the machine's mean time to failure, both in seconds. The interval is
the training time between two checkpoints.
"""

import math


def young_interval(*, cost_seconds: float, life_seconds: float) -> float:
    """Compute Young's interval, in seconds: sqrt(2 C M).

    Source: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974), p. 530-531.
    """
    return math.sqrt(2 * cost_seconds * life_seconds)


def daly_interval(*, cost_seconds: float, life_seconds: float) -> float:
    """Compute Daly's interval, in seconds: Young's, refined for costs that are not small; at most the life.

    Source: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
    Computer Systems 22 (2006), p. 303-312, eq. 37.
    """
    if cost_seconds >= 2 * life_seconds:
        return life_seconds
    share = cost_seconds / (2 * life_seconds)
    young = young_interval(cost_seconds=cost_seconds, life_seconds=life_seconds)
    return young * (1 + math.sqrt(share) / 3 + share / 9) - cost_seconds
