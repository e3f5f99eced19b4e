"""What leaves a fit: released numbers, and how they are read, tested, drawn and kept."""

from dpstats.results.data_check import CheckResults
from dpstats.results.descriptive import (
    CorrelationResults,
    CrosstabResults,
    DescribeResults,
    GroupMeansResults,
    HistogramResults,
    ProportionResults,
    QuantileResults,
    TTestResults,
    VarianceResults,
)
from dpstats.results.evaluation import ClassificationResults, PredictionErrorResults
from dpstats.results.federated import FederatedResults, SummedResults
from dpstats.results.levels import LevelsResults
from dpstats.results.mixture import MixtureResults
from dpstats.results.parameters import RangeResults, ScalesResults
from dpstats.results.regression import RegressionResults
from dpstats.results.regression_mixture import RegressionMixtureResults
from dpstats.results.released import KINDS, Released, load
from dpstats.results.symmetric import SymmetricMixtureResults, SymmetricRegressionResults

__all__ = ["Released", "load"]

# The classes of results: one line each, by the name that files of it bear.
KINDS["rounds"] = SummedResults
KINDS["regression"] = RegressionResults
KINDS["levels"] = LevelsResults
KINDS["range"] = RangeResults
KINDS["scales"] = ScalesResults
KINDS["quantile"] = QuantileResults
KINDS["proportion"] = ProportionResults
KINDS["histogram"] = HistogramResults
KINDS["describe"] = DescribeResults
KINDS["check"] = CheckResults
KINDS["crosstab"] = CrosstabResults
KINDS["group means"] = GroupMeansResults
KINDS["corr"] = CorrelationResults
KINDS["variance"] = VarianceResults
KINDS["ttest"] = TTestResults
KINDS["classification"] = ClassificationResults
KINDS["prediction error"] = PredictionErrorResults
KINDS["federated"] = FederatedResults
KINDS["mixture"] = MixtureResults
KINDS["regression mixture"] = RegressionMixtureResults
KINDS["symmetric regression mixture"] = SymmetricRegressionResults
KINDS["symmetric mixture"] = SymmetricMixtureResults  # after the more special one
