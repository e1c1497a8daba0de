"""Checkpoints: what goes in comes out, and nothing else; locks, fingerprints, deadlines."""

import dataclasses
import enum
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import filelock
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from companion import checkpoints
from companion.checkpoints import (
    CheckpointError,
    Deadline,
    OutOfTime,
    fingerprint,
    load,
    save,
)
from companion.files import locked

arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int32, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
trees = st.recursive(
    arrays,
    lambda inner: st.one_of(
        st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3),
        st.lists(inner, min_size=1, max_size=3),
        st.tuples(inner, inner),
    ),
    max_leaves=6,
)


class Pair(NamedTuple):
    first: object
    second: object


@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float = 0.1
    hidden: tuple[int, ...] = (2, 3)


def same(a, b):
    """Bitwise, NaN included."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# files


@settings(max_examples=30)
@given(trees)
def test_a_tree_comes_back_bit_by_bit(tree):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        save(path, tree)
        like = jax.tree.map(np.zeros_like, tree)
        back = load(path, like)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert jax.tree.all(jax.tree.map(same, back, tree))


def test_named_tuples_keys_and_numbers_come_back_as_what_they_were(tmp_path):
    path = tmp_path / "deep" / "er" / "x.npz"
    key = jax.random.key(3)
    tree = Pair({"key": key, "n": 7, "x": 0.1, "on": True}, (jnp.arange(3.0), None))
    save(path, tree)
    like = Pair({"key": jax.random.key(0), "n": 0, "x": 0.0, "on": False}, (jnp.zeros(3), None))
    back = load(path, like)
    assert isinstance(back, Pair)
    assert (back.first["n"], back.first["x"], back.first["on"]) == (7, 0.1, True)
    assert [type(back.first[k]) for k in ("n", "x", "on")] == [int, float, bool]
    assert jax.random.uniform(back.first["key"]) == jax.random.uniform(key)
    assert same(back.second[0], np.arange(3, dtype=np.float32))


def test_shapes_alone_are_enough_to_read(tmp_path):
    save(tmp_path / "x.npz", {"w": np.ones((2, 3), np.float32)})
    back = load(tmp_path / "x.npz", {"w": jax.ShapeDtypeStruct((2, 3), np.float32)})
    assert same(back["w"], np.ones((2, 3), np.float32))


def test_a_flat_dict_needs_no_template(tmp_path):
    save(tmp_path / "x.npz", {"a": np.arange(4), "b c": np.array(np.nan)})
    back = load(tmp_path / "x.npz")
    assert sorted(back) == ["a", "b c"]
    assert same(back["a"], np.arange(4))
    assert np.isnan(back["b c"])
    save(tmp_path / "y.npz", {"a": {"b": np.ones(1)}})
    with pytest.raises(CheckpointError, match="no flat dict"):
        load(tmp_path / "y.npz")


def test_an_interrupted_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    save(path, {"w": np.ones(3)})

    def torn(file, **arrays):
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.np, "savez", torn)
    with pytest.raises(KeyboardInterrupt):
        save(path, {"w": np.zeros(3)})
    assert same(load(path)["w"], np.ones(3))
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]


def rewritten(path, **changes):
    """The same file with another header."""
    with np.load(path) as file:
        content = dict(file)
    header = json.loads(content["header"].tobytes()) | changes
    content["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **content)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"w": np.zeros((3, 2))}, r"\['w'\] has shape \(2, 3\), expected \(3, 2\)"),
        ({"w": np.zeros((2, 3), np.float32)}, "has dtype float64, expected float32"),
        ({"w": 1.0}, r"has shape \(2, 3\), expected \(\)"),
        ({"v": np.zeros((2, 3))}, r"missing \['v'\], not expected \['w'\]"),
        ({"w": [np.zeros((2, 3))]}, r"missing \['w'\]\[0\]"),
        ({"w": np.zeros((2, 3)), "v": 1}, r"missing \['v'\], not expected nothing"),
    ],
)
def test_another_shape_dtype_or_structure_is_refused(tmp_path, like, message):
    save(tmp_path / "x.npz", {"w": np.ones((2, 3))})
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "x.npz", like)


def test_another_version_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    save(path, {"w": np.ones(1)})
    rewritten(path, version=checkpoints.VERSION + 1)
    with pytest.raises(CheckpointError, match="format version 3, expected 2"):
        load(path)


@pytest.mark.parametrize("damage", ["torn", "text", "empty", "foreign", "lacking"])
def test_damaged_and_foreign_files_are_refused(tmp_path, damage):
    path = tmp_path / "x.npz"
    save(path, {"w": np.ones(1000)})
    whole = path.read_bytes()
    if damage == "torn":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "text":
        path.write_text("not a checkpoint")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "foreign":
        np.savez(path, w=np.ones(3))
    else:
        rewritten(path, names=["['w']", "['v']"])
    with pytest.raises(CheckpointError, match=r"x\.npz"):
        load(path)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load(tmp_path / "x.npz")


@pytest.mark.parametrize("leaf", [np.array(["text"]), object(), np.array(1j)])
def test_what_cannot_be_kept_is_refused(tmp_path, leaf):
    with pytest.raises(CheckpointError, match=r"\['w'\] must be an array of numbers"):
        save(tmp_path / "x.npz", {"w": leaf})
    assert not list(tmp_path.iterdir())


# locks

HOLD = """
import sys
from companion.files import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_excludes_others_and_is_free_when_its_holder_is_killed(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(tmp_path / ".lock", is_singleton=False).acquire(blocking=False)
        holder.kill()
        holder.wait()
    with locked(tmp_path) as folder:
        assert folder == tmp_path


def test_a_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "new"):
        raise KeyError
    with locked(tmp_path / "new"):
        pass


# fingerprints


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def test_fingerprints_tell_everything_apart():
    different = [
        (),
        (None,),
        (1,),
        (1.0,),
        (True,),
        ("1",),
        (b"1",),
        (1, 1),
        ((1, 1),),
        (11,),
        ("a", "b"),
        ("ab",),
        ({"a": 1},),
        ({"a": 2},),
        (Settings(),),
        (Settings(rate=0.2),),
        (Settings(hidden=(2,)),),
        (Colour.RED,),
        (Colour.BLUE,),
        (np.ones(2),),
        (np.ones(2, np.float32),),
        (np.ones((2, 1)),),
        (np.array([1.0, 0.0]),),
        (Path("a"),),
    ]
    marks = [fingerprint(*objects) for objects in different]
    assert len(set(marks)) == len(marks)
    assert all(len(mark) == 16 and int(mark, 16) >= 0 for mark in marks)


def test_fingerprints_agree_where_the_content_does():
    assert fingerprint(0.1, 3, True) == fingerprint(np.float64(0.1), np.int64(3), np.bool_(True))
    assert fingerprint([1, (2, 3)]) == fingerprint((1, [2, 3]))
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint(np.arange(6).reshape(2, 3).T) == fingerprint(
        np.ascontiguousarray(np.arange(6).reshape(2, 3).T)
    )
    assert fingerprint(jnp.arange(3)) == fingerprint(np.arange(3, dtype=np.int32))


@pytest.mark.parametrize("thing", [object(), {1, 2}, lambda: 0, Settings, np.array(["a"]), sys, 1j])
def test_what_has_no_reproducible_text_has_no_fingerprint(thing):
    with pytest.raises(TypeError, match="a fingerprint"):
        fingerprint(thing)


# deadlines


def test_a_deadline_is_over_when_its_clock_says_so():
    now = [100.0]
    deadline = Deadline(9 * 60, clock=lambda: now[0])
    now[0] = 639.0
    deadline.check()
    assert not deadline.passed
    now[0] = 640.0
    assert deadline.passed
    with pytest.raises(OutOfTime, match="deadline of 540 s has passed; run again to continue"):
        deadline.check()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), None, True])
def test_bad_deadlines(seconds):
    with pytest.raises((TypeError, ValueError), match="seconds must be"):
        Deadline(seconds)
