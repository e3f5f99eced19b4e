"""Every source that methods cite, once; ``.at(...)`` names the theorem."""

from __future__ import annotations

from dpstats.theory import Citation

__all__ = [
    "ANGRIST",
    "ASI",
    "AVELLA",
    "BASSILY",
    "BONETT",
    "BREIMAN",
    "BRILLINGER",
    "BROWN",
    "CAI",
    "CHAUDHURI",
    "DONG",
    "DUCHI",
    "DURFEE",
    "DWORK",
    "FICHTENBERGER",
    "GANESH",
    "GOURIEROUX",
    "INDIRECT",
    "JIANG",
    "KARWA_VADHAN",
    "KIFER",
    "KIFER_ROGERS",
    "KOENKER",
    "LI_FEDERATED",
    "LI_MATRIX",
    "MCSHERRY",
    "NEGAHBAN",
    "ROSETT",
    "SCORE_ATTACK",
    "TALWAR",
    "TANG",
    "TROPP",
    "VAN_DEN_HOUT",
    "WANG_ADASSP",
    "WANG_GU",
    "WANG_PIECEWISE",
    "WANG_XU",
    "WELCH",
    "WILSON",
    "YE",
    "ZHANG_EM",
    "ZHU",
]

ANGRIST = Citation(
    "angrist2006quantile",
    "Angrist, J., Chernozhukov, V. and Fernandez-Val, I.",
    "Quantile regression under misspecification, with an application to the U.S. wage structure",
    2006,
    "Econometrica",
    kind="article",
    volume="74",
    number="2",
)

ASI = Citation(
    "asi2022optimal",
    "Asi, H., Feldman, V. and Talwar, K.",
    "Optimal algorithms for mean estimation under local differential privacy",
    2022,
    "ICML 2022, PMLR",
    kind="inproceedings",
    volume="162",
    eprint="2205.02466",
)

AVELLA = Citation(
    "avella2023inference",
    "Avella-Medina, M., Bradshaw, C. and Loh, P.-L.",
    "Differentially private inference via noisy optimization",
    2023,
    "Annals of Statistics",
    kind="article",
    volume="51",
    number="5",
    eprint="2103.11003",
)

BASSILY = Citation(
    "bassily2014private",
    "Bassily, R., Smith, A. and Thakurta, A.",
    "Private empirical risk minimization: efficient algorithms and tight error bounds",
    2014,
    "FOCS 2014",
    kind="inproceedings",
    eprint="1405.7085",
)

BONETT = Citation(
    "bonett2000sample",
    "Bonett, D. G. and Wright, T. A.",
    "Sample size requirements for estimating Pearson, Kendall and Spearman correlations",
    2000,
    "Psychometrika",
    kind="article",
    volume="65",
    number="1",
)

BREIMAN = Citation(
    "breiman1995better",
    "Breiman, L.",
    "Better subset regression using the nonnegative garrote",
    1995,
    "Technometrics",
    kind="article",
    volume="37",
    number="4",
)

BRILLINGER = Citation(
    "brillinger1982generalized",
    "Brillinger, D. R.",
    "A generalized linear model with Gaussian regressor variables",
    1982,
    "A Festschrift for Erich L. Lehmann",
    kind="incollection",
)

BROWN = Citation(
    "brown2024private",
    "Brown, G., Dvijotham, K., Evans, G., Liu, D., Smith, A. and Thakurta, A.",
    "Private gradient descent for linear regression: tighter error bounds and instance-specific "
    "uncertainty estimation",
    2024,
    "ICML 2024, PMLR",
    kind="inproceedings",
    volume="235",
    eprint="2402.13531",
)

CAI = Citation(
    "cai2021cost",
    "Cai, T. T., Wang, Y. and Zhang, L.",
    "The cost of privacy: optimal rates of convergence for parameter estimation with "
    "differential privacy",
    2021,
    "Annals of Statistics",
    kind="article",
    volume="49",
    number="5",
    eprint="1902.04495",
)

CHAUDHURI = Citation(
    "chaudhuri2011sample",
    "Chaudhuri, K. and Hsu, D.",
    "Sample complexity bounds for differentially private learning",
    2011,
    "COLT 2011, PMLR",
    kind="inproceedings",
    volume="19",
)

DONG = Citation(
    "dong2022gaussian",
    "Dong, J., Roth, A. and Su, W. J.",
    "Gaussian differential privacy",
    2022,
    "Journal of the Royal Statistical Society B",
    kind="article",
    volume="84",
    number="1",
)

DUCHI = Citation(
    "duchi2014local",
    "Duchi, J. C., Jordan, M. I. and Wainwright, M. J.",
    "Local privacy, data processing inequalities, and statistical minimax rates",
    2014,
    "",
    eprint="1302.3203",
)

DURFEE = Citation(
    "durfee2019practical",
    "Durfee, D. and Rogers, R.",
    "Practical differentially private top-k selection with pay-what-you-get composition",
    2019,
    "NeurIPS 2019",
    kind="inproceedings",
    eprint="1905.04273",
)

DWORK = Citation(
    "dwork2021fdr",
    "Dwork, C., Su, W. and Zhang, L.",
    "Differentially private false discovery rate control",
    2021,
    "Journal of Privacy and Confidentiality",
    kind="article",
    volume="11",
    number="2",
    eprint="1807.04209",
)

FICHTENBERGER = Citation(
    "fichtenberger2023constant",
    "Fichtenberger, H., Henzinger, M. and Upadhyay, J.",
    "Constant matters: fine-grained error bound on differentially private continual observation",
    2023,
    "ICML 2023, PMLR",
    kind="inproceedings",
    volume="202",
    eprint="2202.11205",
)

GANESH = Citation(
    "ganesh2023faster",
    "Ganesh, A., Haghifam, M., Steinke, T. and Thakurta, A.",
    "Faster differentially private convex optimization via second-order methods",
    2023,
    "NeurIPS 2023",
    kind="inproceedings",
    eprint="2305.13209",
)

GOURIEROUX = Citation(
    "gourieroux1984pseudo",
    "Gourieroux, C., Monfort, A. and Trognon, A.",
    "Pseudo maximum likelihood methods: theory",
    1984,
    "Econometrica",
    kind="article",
    volume="52",
    number="3",
)

INDIRECT = Citation(
    "gourieroux1993indirect",
    "Gourieroux, C., Monfort, A. and Renault, E.",
    "Indirect inference",
    1993,
    "Journal of Applied Econometrics",
    kind="article",
    volume="8",
    number="S1",
)

JIANG = Citation(
    "jiang2009general",
    "Jiang, W. and Zhang, C.-H.",
    "General maximum likelihood empirical Bayes estimation of normal means",
    2009,
    "Annals of Statistics",
    kind="article",
    volume="37",
    number="4",
)

KARWA_VADHAN = Citation(
    "karwa2018finite",
    "Karwa, V. and Vadhan, S.",
    "Finite sample differentially private confidence intervals",
    2018,
    "ITCS 2018",
    kind="inproceedings",
    eprint="1711.03908",
)

KIFER = Citation(
    "kifer2012private",
    "Kifer, D., Smith, A. and Thakurta, A.",
    "Private convex empirical risk minimization and high-dimensional regression",
    2012,
    "COLT 2012, PMLR",
    kind="inproceedings",
    volume="23",
)

KIFER_ROGERS = Citation(
    "kifer2017new",
    "Kifer, D. and Rogers, R.",
    "A new class of private chi-square hypothesis tests",
    2017,
    "AISTATS 2017, PMLR",
    kind="inproceedings",
    volume="54",
    eprint="1610.07662",
)

BEGG = Citation(
    "begg1984calculation",
    "Begg, C. B. and Gray, R.",
    "Calculation of polychotomous logistic regression parameters using individualized regressions",
    1984,
    "Biometrika",
    kind="article",
    volume="71",
    number="1",
)

KOENKER = Citation(
    "koenker1978regression",
    "Koenker, R. and Bassett, G.",
    "Regression quantiles",
    1978,
    "Econometrica",
    kind="article",
    volume="46",
    number="1",
)

LI_FEDERATED = Citation(
    "li2024federated",
    "Li, M., Tian, Y., Feng, Y. and Yu, Y.",
    "Federated transfer learning with differential privacy",
    2024,
    "",
    eprint="2403.11343",
)

LI_MATRIX = Citation(
    "li2015matrix",
    "Li, C., Miklau, G., Hay, M., McGregor, A. and Rastogi, V.",
    "The matrix mechanism: optimizing linear counting queries under differential privacy",
    2015,
    "VLDB Journal",
    kind="article",
    volume="24",
)

MCSHERRY = Citation(
    "mcsherry2007mechanism",
    "McSherry, F. and Talwar, K.",
    "Mechanism design via differential privacy",
    2007,
    "FOCS 2007",
    kind="inproceedings",
)

NEGAHBAN = Citation(
    "negahban2012unified",
    "Negahban, S. N., Ravikumar, P., Wainwright, M. J. and Yu, B.",
    "A unified framework for high-dimensional analysis of M-estimators with decomposable "
    "regularizers",
    2012,
    "Statistical Science",
    kind="article",
    volume="27",
    number="4",
)

ROSETT = Citation(
    "rosett1975estimation",
    "Rosett, R. N. and Nelson, F. D.",
    "Estimation of the two-limit probit regression model",
    1975,
    "Econometrica",
    kind="article",
    volume="43",
    number="1",
)

SCORE_ATTACK = Citation(
    "cai2023score",
    "Cai, T. T., Wang, Y. and Zhang, L.",
    "Score attack: a lower bound technique for optimal differentially private learning",
    2023,
    "",
    eprint="2303.07152",
)

TALWAR = Citation(
    "talwar2015nearly",
    "Talwar, K., Thakurta, A. and Zhang, L.",
    "Nearly optimal private LASSO",
    2015,
    "NeurIPS 2015",
    kind="inproceedings",
)

TANG = Citation(
    "tang2023boosting",
    "Tang, S., Aydore, S., Kearns, M., Rho, S., Roth, A., Wang, Y., Wang, Y.-X. and Wu, Z. S.",
    "Improved differentially private regression via gradient boosting",
    2023,
    "",
    eprint="2303.03451",
)

TROPP = Citation(
    "tropp2007signal",
    "Tropp, J. A. and Gilbert, A. C.",
    "Signal recovery from random measurements via orthogonal matching pursuit",
    2007,
    "IEEE Transactions on Information Theory",
    kind="article",
    volume="53",
    number="12",
)

VAN_DEN_HOUT = Citation(
    "vandenhout2007logistic",
    "van den Hout, A., van der Heijden, P. G. M. and Gilchrist, R.",
    "The logistic regression model with response variables subject to randomized response",
    2007,
    "Computational Statistics & Data Analysis",
    kind="article",
    volume="51",
    number="12",
)

WANG_ADASSP = Citation(
    "wang2018adassp",
    "Wang, Y.-X.",
    "Revisiting differentially private linear regression: optimal and adaptive prediction and "
    "estimation in unbounded domain",
    2018,
    "UAI 2018",
    kind="inproceedings",
    eprint="1803.02596",
)

WANG_GU = Citation(
    "wang2019ight",
    "Wang, L. and Gu, Q.",
    "Differentially private iterative gradient hard thresholding for sparse learning",
    2019,
    "IJCAI 2019",
    kind="inproceedings",
)

WANG_PIECEWISE = Citation(
    "wang2019piecewise",
    "Wang, N., Xiao, X., Yang, Y., Zhao, J., Hui, S. C., Shin, H., Shin, J. and Yu, G.",
    "Collecting and analyzing multidimensional data with local differential privacy",
    2019,
    "ICDE 2019",
    kind="inproceedings",
    eprint="1907.00782",
)

WANG_XU = Citation(
    "wang2019sparse",
    "Wang, D. and Xu, J.",
    "On sparse linear regression in the local differential privacy model",
    2019,
    "ICML 2019, PMLR",
    kind="inproceedings",
    volume="97",
)

WELCH = Citation(
    "welch1947generalization",
    "Welch, B. L.",
    "The generalization of 'Student's' problem when several different population variances are "
    "involved",
    1947,
    "Biometrika",
    kind="article",
    volume="34",
    number="1/2",
)

WILSON = Citation(
    "wilson1927probable",
    "Wilson, E. B.",
    "Probable inference, the law of succession, and statistical inference",
    1927,
    "Journal of the American Statistical Association",
    kind="article",
    volume="22",
    number="158",
)

YE = Citation(
    "ye2018optimal",
    "Ye, M. and Barg, A.",
    "Optimal schemes for discrete distribution estimation under locally differential privacy",
    2018,
    "IEEE Transactions on Information Theory",
    kind="article",
    volume="64",
    number="8",
    eprint="1702.00610",
)

ZHANG_EM = Citation(
    "zhang2021em",
    "Zhang, Z. and Zhang, L.",
    "High-dimensional differentially-private EM algorithm: methods and near-optimal statistical "
    "guarantees",
    2021,
    "",
    eprint="2104.00245",
)

ZHU = Citation(
    "zhu2024improved",
    "Zhu, L., Ding, M., Aggarwal, V., Xu, J. and Wang, D.",
    "Improved analysis of sparse linear regression in local differential privacy model",
    2024,
    "ICLR 2024",
    kind="inproceedings",
    eprint="2310.07367",
)
