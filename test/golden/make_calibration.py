"""Writes calibration.json: temperature by scipy and isotonic regression by scikit-learn, of 300 judged steps of 60 problems.

    pip install scikit-learn==1.7.2
    python test/golden/make_calibration.py
"""
import json
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import PredefinedSplit

rng = np.random.default_rng(7)
N, FOLDS = 300, 5
problem = np.sort(rng.integers(0, 60, N))
truth = rng.normal(0.8, 1.5, N)
label = (rng.random(N) < expit(truth)).astype(int)
# Overconfident, and rounded so that there are ties.
p = np.clip(np.round(expit(2.5 * truth + rng.normal(0, 0.7, N)), 3), 0.001, 0.999)


def temperature(p, y):
    loss = lambda log_a: log_loss(y, expit(np.exp(log_a) * logit(p)), labels=[0, 1])
    return float(np.exp(-minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10}).x))


def isotonic(p, y):
    least = 1 / (len(y) + 2)
    return IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip").fit(p, y)


FITS = {
    "none": lambda p, y: (lambda q: q),
    "temperature": lambda p, y: (lambda t: lambda q: expit(logit(q) / t))(temperature(p, y)),
    "isotonic": lambda p, y: isotonic(p, y).predict,
}


def cross_validated(fit):
    q = np.empty(N)
    for train, test in PredefinedSplit(problem % FOLDS).split():
        q[test] = fit(p[train], label[train])(p[test])
    return {"nll": log_loss(label, q), "brier": brier_score_loss(label, q)}


grid = np.linspace(0.0005, 0.9995, 41)
Path(__file__).with_name("calibration.json").write_text(
    json.dumps(
        {
            "steps": [{"problem": int(a), "label": int(b), "probability": float(c)} for a, b, c in zip(problem, label, p)],
            "temperature": temperature(p, label),
            "grid": grid.tolist(),
            "isotonic": isotonic(p, label).predict(grid).tolist(),
            "quality": {name: cross_validated(fit) for name, fit in FITS.items()},
        }
    )
    + "\n"
)
