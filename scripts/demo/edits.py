"""From one meaning to another near or far: what makes scored pairs of every degree."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from .grammar import MODIFIERS, Meaning, imagine
from .lexicon import Act, Concept, Lexicon

# How many of 20 pairs come from each edit. As in the STS tasks most pairs differ in what they
# tell, and few only in polarity, mood or roles, which hardly show in a vector without labels.
EDITS = {
    "paraphrase": 2,
    "change modifier": 2,
    "drop modifiers": 1,
    "negate": 1,
    "ask": 1,
    "swap roles": 1,
    "change participant": 2,
    "same act": 3,
    "same domain": 4,
    "anything": 3,
}


def edit(kind: str, meaning: Meaning, lexicon: Lexicon, random: Random) -> Meaning | None:
    """The meaning after the edit called `kind`; None where it does not apply to this one."""
    match kind:
        case "paraphrase":
            return meaning
        case "change modifier":
            return _change_modifier(meaning, lexicon, random)
        case "drop modifiers":
            return _drop_modifiers(meaning)
        case "negate":
            return None if meaning.asked else replace(meaning, negated=not meaning.negated)
        case "ask":
            return None if meaning.negated else replace(meaning, asked=not meaning.asked)
        case "swap roles":
            return _swap_roles(meaning)
        case "change participant":
            return _change_participant(meaning, random)
        case "same act":
            return imagine(lexicon, random, meaning.act)
        case "same domain":
            return imagine(lexicon, random, _neighbour(meaning, lexicon, random))
        case "anything":
            return imagine(lexicon, random)
    raise ValueError(f"no edit is called {kind!r}")


def _change_modifier(meaning: Meaning, lexicon: Lexicon, random: Random) -> Meaning | None:
    said = [modifier for modifier in MODIFIERS if getattr(meaning, modifier)]
    if not said:
        return None
    modifier = random.choice(said)
    return _other(meaning, modifier, lexicon.modifiers[meaning.act.domain][modifier], random)


def _drop_modifiers(meaning: Meaning) -> Meaning | None:
    nothing: dict[str, Any] = dict.fromkeys(MODIFIERS)
    bare = replace(meaning, **nothing)
    return bare if bare != meaning else None


def _change_participant(meaning: Meaning, random: Random) -> Meaning | None:
    act = meaning.act
    slot, known = random.choice([("agent", act.agents), ("patient", act.patients)])
    both = (meaning.agent, meaning.patient)
    return _other(meaning, slot, [noun for noun in known if noun not in both], random)


def _other(meaning: Meaning, slot: str, known: Sequence[Concept], random: Random) -> Meaning | None:
    others = [concept for concept in known if concept != getattr(meaning, slot)]
    if not others:
        return None
    change: dict[str, Any] = {slot: random.choice(others)}
    return replace(meaning, **change)


def _swap_roles(meaning: Meaning) -> Meaning | None:
    if meaning.patient not in meaning.act.agents or meaning.agent not in meaning.act.patients:
        return None
    return replace(meaning, agent=meaning.patient, patient=meaning.agent)


def _neighbour(meaning: Meaning, lexicon: Lexicon, random: Random) -> Act:
    acts = [act for act in lexicon.acts if act.domain == meaning.act.domain]
    return random.choice([act for act in acts if act != meaning.act])
