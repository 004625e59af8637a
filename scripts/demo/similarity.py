"""How much two meanings share, from 0 to 5: the gold score of the demo's pairs.

Gold scores come from meanings alone: no word, word order or voice enters them. The slots of an
event are weighed (an act as much as both its participants), a slot that both fill with one
concept counts in full, concepts of one domain count in part, and so does a modifier that only one
of the two has. A difference of negation or of mood then scales the whole.
"""

from .grammar import MODIFIERS, Meaning

WEIGHTS = {"act": 3.0, "agent": 2.0, "patient": 2.0} | dict.fromkeys(MODIFIERS, 1.0)
KIN = 0.2  # two different concepts of one domain: a waiter and a chef
UNSAID = 0.3  # a modifier that only one of the two sentences has
SWAPPED = 0.15  # a participant that is there, in the other role
NEGATED = 0.5
ASKED = 0.7


def similarity(a: Meaning, b: Meaning) -> float:
    """Symmetric, 5 for the same meaning, 0 for two that share nothing; one decimal."""
    slots = [slot for slot in WEIGHTS if getattr(a, slot) or getattr(b, slot)]
    shared = sum(WEIGHTS[slot] * _agreement(a, b, slot) for slot in slots)
    score = 5 * shared / sum(WEIGHTS[slot] for slot in slots)
    score *= NEGATED if a.negated != b.negated else 1
    score *= ASKED if a.asked != b.asked else 1
    return round(score, 1)


def _agreement(a: Meaning, b: Meaning, slot: str) -> float:
    one, other = getattr(a, slot), getattr(b, slot)
    if one == other:
        return 1
    if a.act.domain != b.act.domain:
        return 0
    if slot in MODIFIERS:
        return KIN if one and other else UNSAID
    return SWAPPED if slot != "act" and (a.agent, a.patient) == (b.patient, b.agent) else KIN
