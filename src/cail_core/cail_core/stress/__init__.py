"""What a policy holds before an arm moves: success under delay, other speeds, grasps and trackers, each alone and all together.

`played` plays the cases, `findings` says what they mean, `show` shows them, `card` puts them on the policy's card.
"""

from cail_core.stress.findings import baseline, condition_text, holds, leans, rows, sentences, summary
from cail_core.stress.played import EPISODES, STRESS, Case, Result, cases, stress, stressable

__all__ = ["EPISODES", "STRESS", "Case", "Result", "baseline", "cases", "condition_text", "holds", "leans", "rows", "sentences",
           "stress", "stressable", "summary"]
