"""The remote storage on S3: a server of moto's on the loopback address, where moto and s3fs are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from harness.utils.storage import Storage

s3fs = pytest.importorskip("s3fs", reason="uv sync --inexact --extra storage")
server = pytest.importorskip("moto.server", reason="pip install 'moto[s3,server]'")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a folder in an empty bucket."""
    running = server.ThreadedMotoServer("127.0.0.1", port=0)
    running.start()
    _, port = running.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().makedirs("bucket", exist_ok=True)  # moto keeps what a server before had
    yield "s3://bucket/captionbench"
    running.stop()


def test_a_run_goes_through_s3(bucket: str, tmp_path: Path) -> None:
    remote, here, there = Storage(bucket), tmp_path / "here", tmp_path / "there"
    remote.check()
    (here / "checkpoint" / "step-1").mkdir(parents=True)
    (here / "best.safetensors").write_bytes(bytes(range(256)) * 30_000)  # more than one part of an upload
    state = here / "checkpoint" / "step-1" / "state.pt"
    for content in ("one", "two"):
        state.write_text(content)
        remote.push(here, "runs/a-s0")
    assert not remote.fetch(there, "runs/b-s0")
    assert remote.fetch(there, "runs/a-s0")
    assert (there / "best.safetensors").read_bytes() == (here / "best.safetensors").read_bytes()
    assert (there / "checkpoint" / "step-1" / "state.pt").read_text() == "two"
    assert len(s3fs.S3FileSystem().find(f"{bucket}/objects")) == 2, "the object of the older checkpoint is deleted"


def test_a_bucket_that_is_not_there_is_told(bucket: str) -> None:
    with pytest.raises(BenchError, match="--storage s3://nowhere/folder: "):
        Storage(bucket.replace("bucket/captionbench", "nowhere/folder")).check()
