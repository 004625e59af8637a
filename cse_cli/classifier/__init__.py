"""Linear probes on fixed vectors: the SentEval-style classifier that every task here shares.

`SentEvalClassifier` and `LBFGSClassifier` are single estimators in scikit-learn's manner. Tasks use
`folds` (SentEval's protocols) with one of the `solvers`, which make all fits of a task together.
"""

from cse_cli.classifier.estimators import LBFGSClassifier, SentEvalClassifier
from cse_cli.classifier.folds import Outcome, Part, nested, three_way, train_test
from cse_cli.classifier.solvers import CLASSIFIERS, Solver, solver

__all__ = [
    "CLASSIFIERS",
    "LBFGSClassifier",
    "Outcome",
    "Part",
    "SentEvalClassifier",
    "Solver",
    "nested",
    "solver",
    "three_way",
    "train_test",
]
