"""From a meaning to a sentence: who did what to whom, where, when, how, and whether at all.

A `Meaning` holds concepts, never words. `say` words it freshly every time: a synonym for each
concept, the active, the passive or a cleft, a time or place in front or behind. Two sentences of
one meaning are therefore paraphrases by construction, and share few words if chance so decides.
"""

from dataclasses import dataclass
from random import Random

from .lexicon import Act, Concept, Lexicon

# How often each modifier is said.
MODIFIERS = {"quality": 0.4, "manner": 0.3, "place": 0.7, "time": 0.6}


@dataclass(frozen=True)
class Meaning:
    """One event. `quality` describes the agent; None leaves a modifier unsaid."""

    act: Act
    agent: Concept
    patient: Concept
    quality: Concept | None = None
    manner: Concept | None = None
    place: Concept | None = None
    time: Concept | None = None
    negated: bool = False
    asked: bool = False


def imagine(lexicon: Lexicon, random: Random, act: Act | None = None) -> Meaning:
    """Draw a meaning, of `act` if given: some modifiers, one in eight negated or asked."""
    act = act or random.choice(lexicon.acts)
    agent = random.choice(act.agents)
    patient = random.choice([concept for concept in act.patients if concept != agent])
    said = {
        modifier: random.choice(lexicon.modifiers[act.domain][modifier])
        for modifier, often in MODIFIERS.items()
        if random.random() < often
    }
    mood = random.random()
    return Meaning(act, agent, patient, **said, negated=mood < 1 / 8, asked=mood > 7 / 8)


def say(meaning: Meaning, random: Random) -> str:
    """Word a meaning as one lower-cased sentence, punctuation set off by a space."""
    quality = f"{random.choice(meaning.quality)} " if meaning.quality else ""
    agent = f"the {quality}{random.choice(meaning.agent)}"
    patient = f"the {random.choice(meaning.patient)}"
    verb = random.choice(meaning.act.verbs)
    if meaning.asked:
        clauses = [
            f"did {agent} {verb.base} {patient}",
            f"was {patient} {verb.participle} by {agent}",
        ]
    elif meaning.negated:
        clauses = [
            f"{agent} did not {verb.base} {patient}",
            f"{patient} was not {verb.participle} by {agent}",
        ]
    else:
        clauses = [
            *[f"{agent} {verb.past} {patient}"] * 5,
            *[f"{patient} was {verb.participle} by {agent}"] * 3,
            f"it was {agent} who {verb.past} {patient}",
            f"it was {patient} that {agent} {verb.past}",
        ]
    return _with_adverbials(meaning, random.choice(clauses), random)


def _with_adverbials(meaning: Meaning, clause: str, random: Random) -> str:
    manner = [random.choice(meaning.manner)] if meaning.manner else []
    around = [random.choice(concept) for concept in (meaning.place, meaning.time) if concept]
    random.shuffle(around)
    front = [around.pop(), ","] if around and not meaning.asked and random.random() < 0.3 else []
    return " ".join([*front, clause, *manner, *around, "?" if meaning.asked else "."])
