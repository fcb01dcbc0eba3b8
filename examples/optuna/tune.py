#!/usr/bin/env python3
"""Search parameters with Optuna; every trial is a task of a berth sweep.

    python3 tune.py 40

The sweep is begun with the first trial. Then `berth sweep tell` adds a row for
each further one, and `berth sweep ask --follow` gives their results as they come:
AT_ONCE trials run at a time, and each result makes room for a next one.
"""
import json
import subprocess
import sys

import optuna

AT_ONCE = 4
COMMAND = ["python3", "train.py", "{x}", "{y}"]  # prints {"loss": ...}


def berth(*args, rows=None):
    text = "".join(json.dumps(row) + "\n" for row in rows or [])
    return subprocess.run(["berth", "sweep", *args], input=text, text=True, stdout=subprocess.PIPE, check=True).stdout


def suggest(study):
    trial = study.ask()
    # As text: values are what stands in the row, and come back as that.
    return trial, {"x": repr(trial.suggest_float("x", -5, 5)), "y": repr(trial.suggest_float("y", -5, 5))}


def main(total, *flags):
    study = optuna.create_study(direction="minimize")
    trials = {}  # by the task's number
    trial, row = suggest(study)
    sweep = berth("submit", *flags, "--name", "tune", "--rows", "-", "--", *COMMAND, rows=[row]).strip()
    trials[1] = trial
    asked = 1
    with subprocess.Popen(["berth", "sweep", "ask", "--follow", sweep], stdout=subprocess.PIPE, text=True) as results:
        ended = 0
        while ended < total:
            new = {}
            while asked < total and len(trials) + len(new) < AT_ONCE:
                trial, row = suggest(study)
                new[json.dumps(row)] = trial
                asked += 1
            if new:
                for line in berth("tell", sweep, rows=[json.loads(r) for r in new]).splitlines():
                    told = json.loads(line)
                    trials[told["task"]] = new[json.dumps(told["params"])]
            result = json.loads(results.stdout.readline())
            ended += 1
            trial = trials.pop(result["task"])
            if result["state"] == "ok":
                study.tell(trial, result["values"]["loss"])
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
        results.terminate()
    print(json.dumps({"best": study.best_value, "params": study.best_params}))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
