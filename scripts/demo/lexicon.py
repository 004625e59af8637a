"""The words of the demo, read from lexicon.toml: domains of acts, nouns and modifiers.

A *concept* is a tuple of synonyms, `("chef", "cook")`; the concept itself is what counts for the
meaning of a sentence, and which of its wordings is said does not. A verb's wording is a `Verb`
with its three forms, since it is said in the past, the passive and after "did".
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

LEXICON = Path(__file__).with_name("lexicon.toml")

Concept = tuple[str, ...]


@dataclass(frozen=True)
class Verb:
    """One verb: "slice", "sliced", "sliced"; a particle stays behind ("dished up")."""

    base: str
    past: str
    participle: str


@dataclass(frozen=True)
class Act:
    """What can happen in a domain: the verb's wordings, who may do it, and to what."""

    domain: str
    verbs: tuple[Verb, ...]
    agents: tuple[Concept, ...]
    patients: tuple[Concept, ...]


Modifiers = dict[str, tuple[Concept, ...]]


@dataclass(frozen=True)
class Lexicon:
    """All acts, and for each domain the concepts of a quality, a manner, a place and a time."""

    acts: tuple[Act, ...]
    modifiers: dict[str, Modifiers]


def load_lexicon(path: Path = LEXICON) -> Lexicon:
    """Read the lexicon; a noun that an act names but its domain does not is a KeyError."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    manner = _concepts(tables.pop("manner"))
    acts: list[Act] = []
    modifiers: dict[str, Modifiers] = {}
    for domain, table in tables.items():
        nouns = {concept[0]: concept for concept in _concepts(table["nouns"])}
        modifiers[domain] = {
            "quality": _concepts(table["quality"]),
            "manner": manner,
            "place": _concepts(table["place"]),
            "time": _concepts(table["time"]),
        }
        for verbs, agents, patients in table["acts"]:
            acts.append(
                Act(
                    domain,
                    tuple(_verb(verb) for verb in _concept(verbs)),
                    tuple(nouns[name] for name in agents.split(", ")),
                    tuple(nouns[name] for name in patients.split(", ")),
                )
            )
    return Lexicon(tuple(acts), modifiers)


def _concepts(text: str) -> tuple[Concept, ...]:
    return tuple(_concept(part) for part in text.split(", "))


def _concept(text: str) -> Concept:
    return tuple(text.split(" | "))


def _verb(text: str) -> Verb:
    """`"slice"`, `"find/found"`, `"write/wrote/written"`, each perhaps with a particle behind."""
    forms, _, particle = text.partition(" ")
    base, *irregular = forms.split("/")
    past = irregular[0] if irregular else _regular_past(base)
    said = (base, past, irregular[-1] if irregular else past)
    return Verb(*(f"{form} {particle}".rstrip() for form in said))


def _regular_past(base: str) -> str:
    if base.endswith("e"):
        return f"{base}d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return f"{base[:-1]}ied"
    return f"{base}ed"
