"""One page, all or nothing: what is refused, what stays, why a page runs again, and SIGKILL.

Each test has a small repository of its own. A run of papermill takes about two seconds, so
tests share runs where one shows several things.
"""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from companion import dependencies
from companion.build import execution, freshness, new_text

PAGE = "3-chapter/page"
HEADER = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A page

"""
PARAMETERS = """\
```{code-cell} ipython3
:tags: [parameters]

profile = "quick"
seed = 1
```

"""
WRITES = """\
```{code-cell} ipython3
import os, pathlib
stage = pathlib.Path(os.environ["DPRL_STAGE"])
(stage / "results").mkdir()
text = f"{profile},{seed}," + pathlib.Path("data/results/paper/other.csv").read_text()
(stage / "results" / "x.csv").write_text(text * 1000)
(stage / "claims.json").write_text('[{"id": "a"}, {"id": "d"}]')
print(os.environ["DPRL_PAGE"], os.environ["DPRL_WORKERS"], bool(os.environ["DPRL_TTY"]))
```
"""


def cell(code: str) -> str:
    return f"```{{code-cell}} ipython3\n{code}\n```\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose page was never executed."""
    return make_repository(tmp_path / "repository")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_repository(tmp_path_factory.mktemp("executed") / "repository")
    assert execute(folder).returncode == 0
    return folder


@pytest.fixture
def executed(template: Path, tmp_path: Path) -> Path:
    """A repository whose page has been executed; a copy is faster than another run."""
    return Path(shutil.copytree(template, tmp_path / "executed"))


def make_repository(tmp_path: Path) -> Path:
    for folder in ("notebooks/3-chapter", "src/dprl/privacy", "data/published", "book"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/results/paper").mkdir(parents=True)
    (tmp_path / "data/results/paper/other.csv").write_text("other\n")
    (tmp_path / "data/results/paper/unrelated.csv").write_text("unrelated\n")
    (tmp_path / "requirements.lock").write_text("numpy==2\n")
    (tmp_path / "src/dprl/mdp.py").write_text("x = 1\n")
    (tmp_path / "src/dprl/__init__.py").touch()
    (tmp_path / "src/dprl/privacy/__init__.py").touch()
    write(tmp_path, PARAMETERS + WRITES)
    return tmp_path


def write(root: Path, body: str) -> None:
    (root / "notebooks" / f"{PAGE}.md").write_text(HEADER + body)


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "companion.build.execution", PAGE, "--workers", "1", *options]


def execute(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*options), cwd=root, capture_output=True, text=True, check=False)


def published(root: Path) -> dict[str, str]:
    """Every file below the two folders that executions publish to, with its digest."""
    folders = (root / "book/nb", root / "data/results")
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


def why(root: Path, **parameters: object) -> str | None:
    return freshness.reason(root, PAGE, {"profile": "quick", **parameters})


# ------------------------------------------------------------ what a good run leaves


def test_a_page_is_published_whole_and_two_runs_give_the_same_bytes(root):
    assert why(root) == "never executed"
    first = execute(root)
    assert (first.returncode, first.stderr) == (0, "")
    before = published(root)
    assert set(before) == {
        f"book/nb/{PAGE}.ipynb",
        f"book/nb/{PAGE}.claims.json",
        f"book/nb/{PAGE}.stamp.json",
        "data/results/quick/x.csv",
        "data/results/paper/other.csv",
        "data/results/paper/unrelated.csv",
    }
    assert why(root) is None
    notebook = root / "book/nb" / f"{PAGE}.ipynb"
    modified = notebook.stat().st_mtime_ns
    assert execute(root).returncode == 0
    assert published(root) == before
    assert notebook.stat().st_mtime_ns == modified  # unchanged bytes are not written again

    cells = json.loads(notebook.read_text())["cells"]
    by_tag = {tag: cell for cell in cells for tag in cell["metadata"].get("tags", [])}
    assert "hide-input" in by_tag["parameters"]["metadata"]["tags"]
    assert "remove-cell" in by_tag["injected-parameters"]["metadata"]["tags"]
    assert cells[-1]["outputs"][0]["text"] == f"{PAGE} 1 False\n"  # no terminal here
    assert "execution" not in notebook.read_text().replace("execution_count", "")


def test_results_dir_publishes_results_only(root, tmp_path):
    target = tmp_path / "elsewhere"
    before = published(root)
    assert (
        execute(root, "--profile", "paper", "--seed", "7", "--results-dir", str(target)).stderr
        == ""
    )
    assert (target / "x.csv").read_text().startswith("paper,7,other")
    after = published(root)
    assert after == before


# ------------------------------------------------------------------- the reasons


def test_every_kind_of_change_is_named(root, monkeypatch):
    (root / "src/dprl/mdp.py").write_text("def used(): return 1\ndef unused(): return 1\n")
    (root / "src/dprl/privacy/gaussian.py").write_text("import numpy\nx = numpy.arange(3)\n")
    (root / "data/published/table.csv").write_text("printed\n")
    uses = "import sys\nsys.path.insert(0, 'src')\nfrom dprl import mdp\nmdp.used()\n"
    uses += "from dprl.privacy.gaussian import x\nx\nopen('data/published/table.csv').close()"
    write(root, PARAMETERS + WRITES + "\n" + cell(uses))
    assert execute(root).stderr == ""
    assert why(root) is None

    changes = {
        "src/dprl/mdp.py": ("used(): return 1", "used(): return 2", "code changed (dprl.mdp)"),
        "data/published/table.csv": ("p", "P", "data/published/table.csv changed"),
        "data/results/paper/other.csv": ("o", "O", "data/results/paper/other.csv changed"),
        f"notebooks/{PAGE}.md": ("A page", "The page", "the page changed"),
        "data/results/quick/x.csv": ("o", "O", "output data/results/quick/x.csv altered"),
    }
    for name, (old, new, expected) in changes.items():
        path = root / name
        before = path.read_text()
        path.write_text(before.replace(old, new, 1))
        assert why(root) == expected
        path.write_text(before)
        assert why(root) is None

    monkeypatch.setattr(dependencies, "version", lambda name: "99")
    assert why(root) == f"numpy {np.__version__} -> 99"
    monkeypatch.undo()

    (root / "src/dprl/mdp.py").write_text("def used(): return 3\n")
    (root / "src/dprl/privacy/gaussian.py").write_text("x = 1\n")
    assert why(root, seed=3) == (
        "code changed (dprl.mdp, dprl.privacy.gaussian); "
        f"numpy {np.__version__} -> not used; seed default -> 3"
    )
    (root / "book/nb" / f"{PAGE}.ipynb").unlink()
    assert why(root).endswith(f"output book/nb/{PAGE}.ipynb missing")


def test_what_a_page_did_not_read_does_not_concern_it(executed):
    (executed / "data/results/paper/unrelated.csv").write_text("changed\n")
    (executed / "data/results/paper/new.csv").write_text("new\n")
    (executed / "data/published/new.csv").write_text("new\n")
    (executed / "src/dprl/mdp.py").write_text("x = 2\n")
    (executed / "requirements.lock").write_text("numpy==3\n")
    assert why(executed) is None


def test_only_the_pages_own_claims_concern_it(root):
    ledger = root / "book/claims.yml"
    mine, other = f"- {{id: a, page: {PAGE}}}\n", "- {id: b, page: 3-chapter/other}\n"
    ledger.write_text(mine + other)
    assert execute(root).returncode == 0
    ledger.write_text(mine + other.replace("id: b", "id: c"))
    assert why(root) is None
    ledger.write_text(mine.replace("id: a", "id: d") + other)
    assert why(root) == "its claims in book/claims.yml changed"


def test_recording_a_result_makes_readers_stale_and_never_the_page_itself(root):
    """The page reads its own recorded table, then records it anew: no loop."""
    own = root / "data/results/paper/x.csv"
    own.write_text("recorded by an older run\n")
    read_own = cell("old = pathlib.Path('data/results/paper/x.csv').read_text()")
    write(root, PARAMETERS + WRITES + "\n" + read_own)
    assert execute(root).returncode == 0  # quick: the recorded table is an input
    own.write_text("recorded by another run\n")
    assert why(root) == "data/results/paper/x.csv changed"

    assert execute(root, "--profile", "paper").returncode == 0  # paper: it is an output
    assert freshness.reason(root, PAGE, {"profile": "paper"}) is None
    assert own.read_text().startswith("paper,1,other")
    assert why(root) == ("profile paper -> quick")
    own.write_text("edited by hand\n")
    assert freshness.reason(root, PAGE, {"profile": "paper"}) == (
        "output data/results/paper/x.csv altered"
    )


def test_a_file_that_was_missing_is_noted(root):
    looks = cell(
        "try:\n    open('data/results/paper/later.csv')\nexcept FileNotFoundError:\n    pass"
    )
    write(root, PARAMETERS + looks)
    assert execute(root).returncode == 0
    assert why(root) is None
    (root / "data/results/paper/later.csv").write_text("now\n")
    assert why(root) == "data/results/paper/later.csv changed"


# ------------------------------------------------------------ where only the text changed

QUICK = {"profile": "quick"}


def test_a_new_text_takes_the_outputs_and_gives_the_bytes_of_an_execution(executed):
    between = "And *after* the parameters.\n\n"
    write(executed, "More of it.\n\n" + PARAMETERS + between + WRITES + "\nAn end.\n")
    assert why(executed) == "the page changed"
    assert new_text.publish(executed, PAGE, QUICK)
    assert why(executed) is None
    renewed = published(executed)
    assert not new_text.publish(executed, PAGE, {"profile": "paper"})

    assert execute(executed).returncode == 0
    assert published(executed) == renewed


@pytest.mark.parametrize(
    ("body", "elsewhere"),
    [
        (PARAMETERS + WRITES.replace("x.csv", "y.csv"), None),
        (PARAMETERS + WRITES.replace("ipython3", "ipython3\n:tags: [hide-input]"), None),
        (PARAMETERS + WRITES + cell("1"), None),
        (WRITES + PARAMETERS, None),
        (PARAMETERS.replace("[parameters]", "[") + WRITES, None),
        ("Text.\n\n" + PARAMETERS + WRITES, "data/results/paper/other.csv"),
        ("Text.\n\n" + PARAMETERS + WRITES, "data/results/quick/x.csv"),
        ("Text.\n\n" + PARAMETERS + WRITES, f"book/nb/{PAGE}.claims.json"),
    ],
    ids=["code", "option", "cell", "order", "malformed", "read", "result", "verdicts"],
)
def test_what_changed_beside_the_text_is_executed(executed, body, elsewhere):
    write(executed, body)
    if elsewhere is not None:
        (executed / elsewhere).write_text("[]\n")
    before = published(executed)
    assert not new_text.publish(executed, PAGE, QUICK)
    assert published(executed) == before


def test_what_the_page_reaches_must_be_what_it_was(root):
    (root / "src/dprl/mdp.py").write_text("def used(): return 1\n")
    # the code that runs is that of the installed package, which has no such function
    uses = PARAMETERS + cell("from dprl import mdp\nif False:\n    mdp.used()")
    write(root, uses)
    assert not new_text.publish(root, PAGE, QUICK)  # never executed
    assert execute(root).returncode == 0
    write(root, "Text.\n\n" + uses)
    (root / "src/dprl/mdp.py").write_text("def used(): return 2\n")
    assert not new_text.publish(root, PAGE, QUICK)
    (root / "src/dprl/mdp.py").write_text("def used(): return 1\n")
    assert new_text.publish(root, PAGE, QUICK)


# -------------------------------------------------------------------- what is refused


def test_failures_say_where_and_leave_the_last_good_version(executed):
    before = published(executed)

    write(executed, PARAMETERS + WRITES + "\nText.\n\n" + cell("a = 1\n1 / (a - 1)"))
    failed = execute(executed)
    assert failed.returncode == 1
    line = (executed / "notebooks" / f"{PAGE}.md").read_text().count("\n") - 3
    assert f"page {PAGE} failed in code cell 3 (notebooks/{PAGE}.md, line {line})" in failed.stderr
    assert "1 / (a - 1)" in failed.stderr
    assert "ZeroDivisionError" in failed.stderr
    assert published(executed) == before
    assert list((executed / "book/nb/.staging").iterdir()) == []

    write(
        executed, PARAMETERS + WRITES + "\n" + cell("import sys\nprint('careful', file=sys.stderr)")
    )
    noisy = execute(executed)
    assert noisy.returncode == 1
    assert f"page {PAGE} wrote to stderr in code cell 3" in noisy.stderr
    assert "careful" in noisy.stderr
    assert published(executed) == before
    assert why(executed) == "the page changed"


@pytest.mark.parametrize(
    ("body", "missing"),
    [(WRITES, "profile and seed"), (PARAMETERS.replace("seed = 1\n", "") + WRITES, "seed")],
)
def test_page_without_parameters_is_refused(root, body, missing):
    write(root, body)
    refused = execute(root)
    assert refused.returncode == 1
    assert f"a cell tagged 'parameters' must declare profile and seed; {missing} not found" in (
        refused.stderr
    )


@pytest.mark.parametrize(
    ("page", "profile", "workers", "message"),
    [
        ("3-chapter/none", "quick", 1, "no such page"),
        ("../secrets", "quick", 1, "not a page name"),
        (PAGE, "huge", 1, "profile must be one of quick, paper"),
        (PAGE, "quick", 0, "workers must be at least 1"),
    ],
)
def test_bad_run_is_refused(root, page, profile, workers, message):
    with pytest.raises(execution.PageError, match=message):
        execution.PageRun(root, page, profile, workers=workers)


# --------------------------------------------------------------------------- SIGKILL


def stage_of(root: Path, pid: int) -> Path:
    return root / "book/nb/.staging" / f"{PAGE.replace('/', '__')}-{pid}"


def stops_after(moves: int) -> list[str]:
    """Command that runs the page and kills itself when so many files have been published."""
    code = f"""
import os, signal
from companion.build import execution
move, moves = execution._move_whole, []
def counting(source, destination):
    if len(moves) == {moves}:
        os.kill(os.getpid(), signal.SIGKILL)
    moves.append(destination)
    move(source, destination)
execution._move_whole = counting
execution.main([{PAGE!r}, "--workers", "1"])
"""
    return [sys.executable, "-c", code]


@pytest.fixture(scope="module")
def successor(template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is published once the page has changed and run again."""
    folder = tmp_path_factory.mktemp("successor") / "repository"
    change(Path(shutil.copytree(template, folder)))
    assert execute(folder).returncode == 0
    return published(folder)


def change(root: Path) -> None:
    write(root, PARAMETERS.replace("seed = 1", "seed = 2") + WRITES)


def assert_whole(root: Path, old: dict[str, str], new: dict[str, str]) -> None:
    for name, digest in published(root).items():
        if ".staging" not in name:
            assert digest in (old[name], new[name]), name


def assert_completes(root: Path, new: dict[str, str]) -> None:
    assert execute(root).returncode == 0
    assert published(root) == new  # all of it, and no staging folder of a killed run is left
    assert why(root) is None


def test_sigkill_between_two_published_files(executed, successor):
    old = published(executed)
    change(executed)
    for moves in (1, 2, 3):  # of four: results, claims, notebook, stamp
        killed = subprocess.run(stops_after(moves), cwd=executed, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert_whole(executed, old, successor)
        assert why(executed) is not None
    assert_completes(executed, successor)


def stops_at(event: int) -> list[str]:
    """Command that runs the page and kills itself when it has touched files so often.

    It counts opening, making, moving and removing files of the repository until the page is
    published, and says how many it counted if it was not killed. Papermill saves the notebook
    before each cell; that it also saves it every few seconds is switched off, so that a count
    means the same moment on any machine.
    """
    code = f"""
import functools, os, signal, sys
import papermill
from companion.build import execution
papermill.execute_notebook = functools.partial(papermill.execute_notebook, autosave_cell_every=0)
kinds = {{"open", "os.mkdir", "os.rename", "os.remove", "os.scandir", "os.listdir"}}
root, count, over = os.getcwd() + os.sep, 0, False
def counting(kind, arguments):
    global count, over
    over = over or kind == "shutil.rmtree" and ".staging" in os.fsdecode(arguments[0])
    if over or kind not in kinds or not isinstance(arguments[0], str | bytes):
        return
    if os.path.abspath(os.fsdecode(arguments[0])).startswith(root):
        count += 1
        if count == {event}:
            os.kill(os.getpid(), signal.SIGKILL)
# what earlier, killed runs have left goes first, and is not counted
execution.remove_stale_stages(execution.Path.cwd())
sys.addaudithook(counting)
execution.main([{PAGE!r}, "--workers", "1"])
print(count)
"""
    return [sys.executable, "-c", code]


def test_sigkill_at_random_moments(executed, successor):
    old = published(executed)
    counted = execute_counted(executed, event=0)
    assert counted.returncode == 0
    assert published(executed) == old
    events = int(counted.stdout)
    change(executed)
    draw, parts = random.Random(20), 6
    for part in range(parts):  # one moment in each sixth of the run
        event = draw.randint(1 + part * events // parts, (part + 1) * events // parts)
        killed = execute_counted(executed, event)
        assert killed.returncode == -signal.SIGKILL, f"event {event} of {events} did not come"
        assert_whole(executed, old, successor)
    assert_completes(executed, successor)


def execute_counted(root: Path, event: int) -> subprocess.CompletedProcess[str]:
    # With its output captured, this returns when the kernel, too, has noticed and ended.
    return subprocess.run(stops_at(event), cwd=root, capture_output=True, text=True, check=False)


def test_stages_of_the_living_stay(root):
    living, dead = stage_of(root, os.getpid()), stage_of(root, 2**22 + 1)
    living.mkdir(parents=True)
    dead.mkdir()
    killed = subprocess.Popen(["sleep", "60"])
    killed.kill()  # nobody has asked yet how it ended, so its number is still taken
    while Path(f"/proc/{killed.pid}/stat").exists() and not _is_zombie(killed.pid):
        time.sleep(0.01)
    stage_of(root, killed.pid).mkdir()
    execution.remove_stale_stages(root)
    assert [path.name for path in living.parent.iterdir()] == [living.name]
    killed.wait()


def test_a_stage_of_a_killed_process_with_the_same_number_is_no_obstacle(root):
    left = stage_of(root, os.getpid())
    left.mkdir(parents=True)
    (left / "executed.ipynb").write_text("torn")
    execution.execute_page(execution.PageRun(root, PAGE, "quick"))
    assert published(root)
    assert list(left.parent.iterdir()) == []


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_result_crosses_file_systems_whole(root, monkeypatch):
    source, destination = root / "source.csv", root / "deep/er/x.csv"
    source.write_text("whole")

    def rename(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "rename", rename)
    execution._move_whole(source, destination)
    assert destination.read_text() == "whole"
    assert [path.name for path in destination.parent.iterdir()] == ["x.csv"]


def test_a_claim_that_its_page_does_not_check_is_an_error(root):
    ledger = root / "book/claims.yml"
    ledger.write_text(f"- {{id: a, page: {PAGE}}}\n- {{id: forgotten, page: {PAGE}}}\n")
    with pytest.raises(execution.PageError, match=r"does not check forgotten$"):
        execution.execute_page(execution.PageRun(root, PAGE, "quick"))
    assert not (root / f"book/nb/{PAGE}.ipynb").exists()


def test_a_typed_verdict_is_refused_before_anything_runs(root):
    source = root / f"notebooks/{PAGE}.md"
    typed = "claims.check('thesis:1', printed=True, n=open('ran').read())"
    source.write_text(HEADER + PARAMETERS + cell("open('ran', 'w').close()") + cell(typed))
    run = execution.PageRun(root, PAGE, "quick")
    with pytest.raises(execution.PageError, match=r"line 2\d: thesis:1: printed= was typed"):
        execution.execute_page(run)
    assert not (root / "ran").exists()


COMPILES = """\
```{code-cell} ipython3
import os, pathlib
import jax
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))
assert jax.jit(lambda x: 2 * x + 1)(3.0) == 7
results = pathlib.Path(os.environ["DPRL_STAGE"]) / "results"
results.mkdir()
(results / "x.csv").write_text(f"{events.count('cache_hits')},{events.count('cache_misses')}")
```
"""


def test_what_jax_compiled_is_kept_when_the_page_has_succeeded(root):
    kept, counted = root / "_build/compiled", root / "data/results/quick/x.csv"
    write(root, PARAMETERS + COMPILES + cell("assert False"))
    assert execute(root).returncode == 1
    assert not kept.exists()
    write(root, PARAMETERS + COMPILES)
    assert execute(root).returncode == 0
    hits, misses = map(int, counted.read_text().split(","))
    assert hits == 0
    assert misses == len(list(kept.iterdir())) > 0
    assert execute(root).returncode == 0
    assert counted.read_text() == f"{misses},0"
    assert not any(path.is_symlink() for path in kept.iterdir())


def test_a_page_without_jax_is_not_given_what_it_compiled(root):
    """A link for each program would take longer than the page."""
    code = 'import os\nassert "JAX_COMPILATION_CACHE_DIR" not in os.environ'
    write(root, PARAMETERS + cell(code))
    assert execute(root).returncode == 0
