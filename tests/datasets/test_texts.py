"""A table of words goes from an svmlight file through a sparse fit, like the matrix it was made of.

The collections are generated, of the kind of E2006-TFIDF and RCV1: words drawn by Zipf's law,
entries (1 + log count) log(n / rows with the word), rows of length 1.
"""

import numpy as np
import pytest
import scipy.sparse as sp

import dpstats as dp
from dpstats.datasets import load_svmlight

ROWS, WORDS, MATTER = 3000, 2000, [10, 14, 20]


def tf_idf(rng: np.random.Generator) -> sp.csr_array:
    """Rows of length 1 whose columns differ in size and number of entries by orders."""
    shares = np.cumsum(1 / (np.arange(WORDS) + 3.0))
    lengths = np.ceil(60 * rng.lognormal(0, 0.5, ROWS)).astype(int)
    words = np.searchsorted(shares, rng.uniform(0, shares[-1], lengths.sum()))
    count = sp.coo_array((np.ones(words.size), (np.repeat(np.arange(ROWS), lengths), words)))
    count.resize((ROWS, WORDS))
    x = count.tocsr()
    x.data = (1 + np.log(x.data)) * np.log(ROWS / np.bincount(x.indices, minlength=WORDS))[
        x.indices
    ]
    norms = np.sqrt(x.multiply(x).sum(axis=1))
    return sp.csr_array(sp.diags_array(1 / norms) @ x)


def written(path, x: sp.csr_array, y: np.ndarray) -> None:
    """The format, every number with all its digits."""
    with path.open("w") as file:
        for i in range(ROWS):
            here = slice(x.indptr[i], x.indptr[i + 1])
            entries = zip(x.indices[here].tolist(), x.data[here].tolist(), strict=True)
            print(float(y[i]), *(f"{j + 1}:{v!r}" for j, v in entries), file=file)


@pytest.mark.full
@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_a_file_of_words_is_fitted_like_its_matrix_and_finds_the_words_that_matter(tmp_path, model):
    rng = np.random.default_rng(5)
    x = tf_idf(rng)
    eta = 20 * np.asarray(x[:, MATTER].sum(axis=1)).ravel()
    eta -= eta.mean()
    if model == "linear":
        kind, y, bounds = dp.OLS, eta + rng.normal(size=ROWS), (-20, 20)
    else:
        kind, bounds = dp.Logit, (0, 1)
        y = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-eta))).astype(float)
    path = tmp_path / "words.svmlight"
    written(path, x, y)
    one = np.ones((ROWS, 1))

    def fitted(x: sp.csr_array, y: np.ndarray) -> dp.Results:
        exog = [(1, 1)] + [(0, 0.5)] * WORDS
        made = kind(y, sp.csr_array(sp.hstack([one, x])), {"endog": bounds, "exog": exog})
        return made.fit(dp.Central(8.0, 1e-6), sparsity=3, noise=dp.SeededNoise(0))

    read = fitted(*load_svmlight(path, WORDS))
    np.testing.assert_array_equal(read.params, fitted(x, y).params)
    assert set(np.flatnonzero(read.params) - 1) >= set(MATTER)  # the constant stands first
