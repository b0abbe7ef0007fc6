import keras
import pytest

from recipes import runs


def test_new_folders_never_meet_old_ones(tmp_path):
    folders = [runs.new_folder(tmp_path / "deep" / "run") for _ in range(3)]
    assert [f.name for f in folders] == ["run", "run-2", "run-3"]
    (folders[0] / "file").touch()
    assert runs.new_folder(tmp_path / "deep" / "run").name == "run-4"


def test_a_parent_that_cannot_be_made(tmp_path):
    """A link to a disk that is not mounted, for one."""
    (tmp_path / "link").symlink_to(tmp_path / "not_mounted" / "disk")
    (tmp_path / "file").touch()
    for parent in ("link", "file"):
        wanted = tmp_path / parent / "run"
        message = f"another --out. Received: --out {wanted}$"
        with pytest.raises(ValueError, match=message):
            runs.new_folder(wanted)


def test_versions_name_the_backend():
    versions = runs.versions()
    assert versions["backend"] == keras.backend.backend()
    assert versions["keras"] == keras.__version__
    assert versions[versions["backend"]]
