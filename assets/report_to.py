"""Logs a run of steptrain by a client's own package: `steptrain export RUN --to wandb` calls it.

    python report_to.py EXPORT.json wandb|trackio|mlflow
"""

import json
import sys


def to_wandb(run):
    import wandb

    with wandb.init(
        project=run["project"], name=run["name"], id=run["id"], resume="allow", config=run["config"]
    ) as logged:
        for row in run["rows"]:
            logged.log(row["values"], step=row["step"])


def to_trackio(run):
    import trackio

    trackio.init(project=run["project"], name=run["name"], config=run["config"])
    for row in run["rows"]:
        trackio.log(row["values"], step=row["step"])
    trackio.finish()


def to_mlflow(run):
    import mlflow
    from mlflow.entities import Metric, Param

    mlflow.set_experiment(run["project"])
    with mlflow.start_run(run_name=run["name"]) as started:
        client = mlflow.MlflowClient()
        # What one request may hold: 100 parameters, 1,000 metrics.
        params = [Param(key, str(value)[:6000]) for key, value in run["config"].items()]
        for begin in range(0, len(params), 100):
            client.log_batch(started.info.run_id, params=params[begin : begin + 100])
        metrics = [
            Metric(key, value, row["time"], row["step"]) for row in run["rows"] for key, value in row["values"].items()
        ]
        for begin in range(0, len(metrics), 1000):
            client.log_batch(started.info.run_id, metrics=metrics[begin : begin + 1000])


CLIENTS = {"wandb": to_wandb, "trackio": to_trackio, "mlflow": to_mlflow}

if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        CLIENTS[sys.argv[2]](json.load(file))
