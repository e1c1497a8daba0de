"""Same numbers whoever computes them, nothing computed twice, nothing in the page."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from cloudpickle import register_pickle_by_value
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import SeedSequence

from companion import sweeps
from companion.sweeps import SweepError

# pytest imports this file under a name that worker processes cannot import
register_pickle_by_value(sys.modules[__name__])

TASKS = [{"mean": float(i)} for i in range(7)]


def draw(task, seed):
    return task["mean"] + np.random.default_rng(seed).normal(size=3)


def fail_on_three(task, seed):
    if task["mean"] == 3.0:
        raise ZeroDivisionError("no such trial")
    return task["mean"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "book").mkdir()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("DPRL_WORKERS", "DPRL_SCHEDULER", "DPRL_TTY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "_build" / "sweeps"


@pytest.fixture
def stop_workers():
    """No process of a test outlives it."""
    yield
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def by_hand(seed):
    """The definition: trial i gets child i."""
    return [draw(t, s) for t, s in zip(TASKS, SeedSequence(seed).spawn(len(TASKS)), strict=True)]


# -- the same numbers -------------------------------------------------------------------


@settings(max_examples=15)
@given(st.integers(0, 2**40))
def test_trial_i_gets_child_i_of_the_seed(seed):
    result = sweeps.run(draw, TASKS, seed=seed, workers=1, label="draw")
    assert np.array_equal(result, by_hand(seed))


def rows(task, seed):
    return [{"mean": task["mean"], "value": x} for x in draw(task, seed)[: int(task["mean"])]]


def test_a_table_has_the_rows_of_all_trials_in_order(stop_workers):
    found = sweeps.table(rows, TASKS[:4], seed=5, workers=2, label="rows")
    assert found["mean"].tolist() == [1.0, 2.0, 2.0, 3.0, 3.0, 3.0]
    each = sweeps.run(rows, TASKS[:4], seed=5, label="rows")
    assert found["value"].tolist() == [row["value"] for part in each for row in part]
    assert sweeps.table(lambda *_: [], TASKS[:2], seed=5, label="none").empty


def test_two_workers_give_the_same_numbers_in_order(stop_workers, monkeypatch):
    assert np.array_equal(sweeps.run(draw, TASKS, seed=5, workers=2, label="draw"), by_hand(5))
    monkeypatch.setenv("DPRL_WORKERS", "2")
    assert np.array_equal(sweeps.run(draw, TASKS, seed=5, label="draw"), by_hand(5))


def test_a_dask_cluster_gives_the_same_numbers(monkeypatch):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        monkeypatch.setenv("DPRL_SCHEDULER", cluster.scheduler_address)
        assert np.array_equal(sweeps.run(draw, TASKS, seed=5, label="draw"), by_hand(5))


def test_a_missing_cluster_extra_is_named(monkeypatch):
    monkeypatch.setenv("DPRL_SCHEDULER", "tcp://localhost:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SweepError, match="pip install distributed"):
        sweeps.run(draw, TASKS, seed=5, label="draw")


SCRIPT = textwrap.dedent(
    """
    import os, sys
    import numpy as np
    from companion import sweeps
    SHIFT = 2.0
    def shifted(x):
        return x + SHIFT
    def trial(task, seed):
        return shifted(np.random.default_rng(seed).normal()), os.environ.get("OMP_NUM_THREADS")
    def main(**options):
        return sweeps.run(trial, [{"i": i} for i in range(4)], seed=1, label="cell", **options)
    """
)


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_a_trial_of_the_main_module_runs_in_processes_with_one_thread_each():
    done = python(
        SCRIPT + "print([x for x, _ in main(workers=1)] == [x for x, _ in main("
        "workers=2)], {t for _, t in main(workers=2)})",
        OMP_NUM_THREADS="2",
    )
    assert (done.stdout, done.stderr) == ("True {'1'}\n", "")


def test_a_trial_of_a_notebook_cell_runs_on_processes_and_on_a_cluster():
    pytest.importorskip("IPython")
    pytest.importorskip("distributed")
    code = f"""
from IPython.core.interactiveshell import InteractiveShell
if __name__ == "__main__":
    shell = InteractiveShell.instance(history_length=0)
    shell.run_cell({SCRIPT!r}).raise_error()
    main = shell.user_ns["main"]
    local = [[x for x, _ in main(workers=n)] for n in (1, 2)]
    import os
    from distributed import LocalCluster
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        os.environ["DPRL_SCHEDULER"] = cluster.scheduler_address
        print(local[0] == local[1] == [x for x, _ in main()])
"""
    Path("cell.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "cell.py"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "600s"},
    )
    assert done.stdout.splitlines()[-1] == "True"


# -- nothing twice ----------------------------------------------------------------------


def test_a_finished_sweep_leaves_nothing_behind(folder):
    sweeps.run(draw, TASKS, seed=5, workers=1, label="draw")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_names_its_trial_and_keeps_the_others(folder, workers, stop_workers):
    with pytest.raises(ZeroDivisionError, match="no such trial") as caught:
        sweeps.run(fail_on_three, TASKS, seed=5, workers=workers, label="bad")
    notes = getattr(caught.value, "__notes__", [])
    assert "in trial 3 of the sweep 'bad', task {'mean': 3.0}" in notes
    kept = sorted(p.name for p in folder.rglob("*.pickle"))
    assert "000003.pickle" not in kept
    if workers == 1:
        assert kept == [f"{i:06}.pickle" for i in range(4, len(TASKS))]  # the last first


def test_kept_results_are_used_and_damaged_ones_computed_again(folder):
    key = folder / sweeps.sweep_key(draw, TASKS, 5)
    key.mkdir(parents=True)
    (key / "000000.pickle").write_bytes(pickle.dumps("kept"))
    (key / "000001.pickle").write_bytes(b"damaged")
    result = sweeps.run(draw, TASKS, seed=5, workers=1, label="draw")
    assert result[0] == "kept"
    assert np.array_equal(result[1:], by_hand(5)[1:])


@contextlib.contextmanager
def started(command):
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(condition, process):
    """Wait as long as it takes; the process must not end before, and 600 s are when to give up."""
    begun = time.monotonic()
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < begun + 600
        time.sleep(0.02)


KILLED = textwrap.dedent(
    """
    import os, sys, time
    from pathlib import Path
    from companion import sweeps
    def trial(task, seed):
        with open("calls.txt", "a") as file:
            file.write(f"{task['i']}\\n")
        if task["i"] == 2 and not Path("resumed").exists():
            Path("reached").touch()
            while True:
                time.sleep(1)
        return seed.generate_state(1)[0] + task["i"]
    if __name__ == "__main__":
        print(sweeps.run(trial, [{"i": i} for i in range(8)], seed=3, label="kill",
                         workers=int(sys.argv[1])))
    """
)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_sweep_continues_from_what_it_finished(folder, workers):
    Path("killed.py").write_text(KILLED)
    command = [sys.executable, "killed.py", workers]
    with started(command) as process:
        wait_until(
            lambda: Path("reached").exists() and len(list(folder.rglob("*.pickle"))) >= 5, process
        )
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()  # it, and no worker, writes what is kept
    kept = {int(p.stem) for p in folder.rglob("*.pickle")}
    before = _calls()
    Path("resumed").touch()
    resumed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    again = _calls()[len(before) :]
    assert sorted(again) == sorted(set(range(8)) - kept)
    Path("calls.txt").unlink()
    fresh = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert resumed == fresh
    assert sorted(_calls()) == list(range(8))
    assert list(folder.iterdir()) == []


def test_workers_end_when_their_page_is_killed():
    psutil = pytest.importorskip("psutil")
    Path("killed.py").write_text(KILLED)
    with started([sys.executable, "killed.py", "2"]) as process:
        wait_until(Path("reached").exists, process)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert children
    # the trial never ends by itself; the limit only says when to give up
    alive = psutil.wait_procs(children, timeout=600)[1]
    for child in alive:
        child.kill()
    assert alive == []


def _calls():
    return [int(line) for line in Path("calls.txt").read_text().split()]


# -- the key ----------------------------------------------------------------------------


def make(body, **names):
    """A function as a notebook cell would define it."""
    namespace = {"__name__": "__main__", **names}
    exec(
        f"def helper(x):\n    return x + 1\n\ndef trial(task, seed):\n    return {body}", namespace
    )
    return namespace["trial"]


def test_key_is_the_same_for_the_same_code_in_another_process():
    code = SCRIPT + "print(sweeps.sweep_key(trial, [{'a': 1}], 3))"
    keys = {python(code, PYTHONHASHSEED=seed).stdout for seed in ("1", "2")}
    assert len(keys) == 1


def test_key_changes_with_code_globals_tasks_and_seed():
    base = sweeps.sweep_key(make("helper(k)", k=1), TASKS, 0)
    assert base == sweeps.sweep_key(make("helper(k)", k=1), list(TASKS), 0)
    others = [
        sweeps.sweep_key(make("helper(k) + 1", k=1), TASKS, 0),
        sweeps.sweep_key(make("helper(k)", k=2), TASKS, 0),
        sweeps.sweep_key(make("helper(k)", k=np.arange(2)), TASKS, 0),
        sweeps.sweep_key(make("k(1)", k=make("3")), TASKS, 0),
        sweeps.sweep_key(make("k(1)", k=make("4")), TASKS, 0),
        sweeps.sweep_key(make("sum(k * i for i in (1, 2))", k=1), TASKS, 0),
        sweeps.sweep_key(make("sum(k * i for i in (1, 2))", k=2), TASKS, 0),
        sweeps.sweep_key(make("(lambda: k)()", k=1), TASKS, 0),
        sweeps.sweep_key(make("(lambda: k)()", k=2), TASKS, 0),
        sweeps.sweep_key(functools.partial(make("helper(k)", k=1), extra=1), TASKS, 0),
        sweeps.sweep_key(functools.partial(make("helper(k)", k=1), extra=2), TASKS, 0),
        sweeps.sweep_key(make("helper(k)", k=1), TASKS[1:], 0),
        sweeps.sweep_key(make("helper(k)", k=1), TASKS, 1),
    ]
    assert len({base, *others}) == 1 + len(others)


# -- progress ---------------------------------------------------------------------------


def test_progress_goes_to_the_named_terminal_and_nowhere_else(tmp_path, monkeypatch, capfd):
    terminal = tmp_path / "terminal"
    monkeypatch.setenv("DPRL_TTY", str(terminal))
    sweeps.run(draw, TASKS, seed=5, workers=1, label="my sweep")
    assert "my sweep: 100%" in terminal.read_text()
    assert tuple(capfd.readouterr()) == ("", "")


def test_a_terminal_that_cannot_be_opened_is_no_reason_to_fail(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("DPRL_TTY", str(tmp_path / "nowhere" / "tty"))
    assert len(sweeps.run(draw, TASKS, seed=5, label="draw")) == len(TASKS)
    assert tuple(capfd.readouterr()) == ("", "")


# -- bad input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed must be"),
        ({"seed": 1.0}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"seed": None}, "seed must be"),
        ({"seed": "1"}, "seed must be"),
        ({"workers": 0}, "workers must be"),
        ({"workers": -1}, "workers must be"),
        ({"workers": 1.5}, "workers must be"),
        ({"workers": True}, "workers must be"),
        ({"tasks": []}, "there are no tasks"),
        ({"tasks": {"a": 1}}, "list of dicts"),
        ({"tasks": "ab"}, "list of dicts"),
        ({"tasks": 3}, "list of dicts"),
        ({"tasks": [{"a": 1}, 2]}, "task 1 must be a dict"),
        ({"tasks": [{1: 2}]}, "names as keys"),
        ({"trial": "draw"}, "trial must be a function"),
        ({"label": ""}, "label must be"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"trial": draw, "tasks": TASKS, "seed": 1, "workers": 1, "label": "x"} | changes
    trial, tasks = arguments.pop("trial"), arguments.pop("tasks")
    with pytest.raises(SweepError, match=message):
        sweeps.run(trial, tasks, **arguments)


@pytest.mark.parametrize("value", ["two", "0", "-1", "1.5", ""])
def test_a_bad_number_of_workers_in_the_environment_is_refused(monkeypatch, value):
    monkeypatch.setenv("DPRL_WORKERS", value)
    with pytest.raises(SweepError, match="DPRL_WORKERS must be a positive integer"):
        sweeps.run(draw, TASKS, seed=1, label="x")


# -- arrays that trials share ---------------------------------------------------------------


def test_a_shared_array_comes_back_and_is_written_once(folder):
    array = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    path = sweeps.share(array)
    written = path.stat().st_mtime_ns
    back = np.load(path, mmap_mode="r")
    assert path.is_relative_to(folder.parent / "shared")
    assert back.dtype == np.float32
    assert np.array_equal(back, array)
    assert sweeps.share(array) == path
    assert path.stat().st_mtime_ns == written
    assert sweeps.share(array.astype(np.float64)) != path
    assert [p.name for p in path.parent.iterdir() if p.suffix != ".npy"] == []


def test_an_array_that_cannot_be_written_leaves_nothing(folder, monkeypatch):
    def fail(file, array):
        file.write(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(sweeps.np, "save", fail)
    with pytest.raises(OSError, match="full"):
        sweeps.share(np.ones(3))
    assert list((folder.parent / "shared").iterdir()) == []


def test_only_numbers_are_shared():
    with pytest.raises(SweepError, match="numbers"):
        sweeps.share([object()])


def shared_sum(task, seed):
    return float(np.load(task["file"], mmap_mode="r")[task["row"]].sum())


def test_trials_read_a_shared_array(stop_workers):
    array = np.arange(12.0).reshape(3, 4)
    file = str(sweeps.share(array))
    tasks = [{"file": file, "row": i} for i in range(3)]
    assert sweeps.run(shared_sum, tasks, seed=1, workers=2, label="shared") == [6.0, 22.0, 38.0]
