"""English stop-words: the closed-class words that ESimCSE's ablation puts into sentences.

The authors' own list was not released. This one holds pronouns, determiners, prepositions,
conjunctions, auxiliaries and the commonest adverbs.
"""

_WORDS = """
    i me my we our ours us you your yours he him his she her hers it its they them their theirs
    myself yourself himself herself itself ourselves themselves
    what which who whom whose this that these those
    a an the each every either neither some any no all both few many much more most other another
    such same own one
    about above across after against along among around at before behind below beneath beside
    between beyond by down during for from in inside into like near of off on onto out outside over
    past since through throughout till to toward under until up upon with within without
    and but or nor so yet because as if than although though unless while whether when where why how
    am is are was were be been being have has had having do does did doing
    can could may might must shall should will would
    not only very too also just again further then once here there now ever even still quite
    rather
"""
STOP_WORDS: tuple[str, ...] = tuple(_WORDS.split())
