"""Families of nested sets: each is one file with the score of an outcome and the ends of a set.

How a threshold is found is another question, and the same for all families: from the scores of one
fold, weighted or not (`saga.calibration.fit.split_conformal`), from those of all folds
(`saga.calibration.fit.cross_fitting`), or moved by later outcomes (`saga.calibration.adaptive`).

To add a family, write one file with a subclass of `SetFamily`: its `kind`, `rank_scores` and
`ends` (`positive.py` is an example), and `randomised = False` if its sets have two sides. Register
it in FAMILIES. It then has thresholds in every calibration that is fitted by the methods "sets" and
"cv+", rows of its kind in the calibration table, and sets by
`Calibrator.sets(family, marginals, coverage)`.

It is then tested with the others: by `tests/saga/conformal/test_families.py` (an outcome is in the
set exactly if its score is at most q), and for its coverage by every method in
`tests/calibration/fit/test_methods.py`. With "cv+" there is no set where fewer than ten persons of
a fold have scores between 0 and 1. Users see it only after `saga.conformal.published_sets` and
`saga.forecast_tables` publish it.
"""

from saga.conformal.families.one_sided import AT_LEAST, AT_MOST
from saga.conformal.families.path_band import BAND
from saga.conformal.families.positive import POSITIVE
from saga.conformal.families.present_value import PRESENT_VALUE
from saga.conformal.families.set_family import SetFamily
from saga.conformal.families.year import YEAR

# The families with thresholds of all persons, in the order of the calibration table. The sets of a
# year, whose thresholds are those of cells, and the quantile intervals of method "cqr" are apart.
FAMILIES: dict[str, SetFamily] = {
    family.kind: family for family in (POSITIVE, AT_LEAST, AT_MOST, BAND, PRESENT_VALUE)
}

__all__ = ["AT_LEAST", "AT_MOST", "BAND", "FAMILIES", "POSITIVE", "PRESENT_VALUE", "YEAR"]
