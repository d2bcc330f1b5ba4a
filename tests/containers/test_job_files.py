"""The job files are valid, start every shard once, and name options that the program has."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from typer.main import get_command

from saga.batch.shards import Shard
from saga.cli import app

DOCKER = Path(__file__).resolve().parents[2] / "docker"
KUBERNETES = sorted(DOCKER.glob("kubernetes-*.yaml"))


def _option(arguments: list[str], name: str) -> str:
    """The value of an option after checking that the program accepts all arguments."""
    command = get_command(app).commands["score"]  # type: ignore[attr-defined]
    with command.make_context("score", list(arguments)) as context:
        return str(context.params[name])


def _container(path: Path) -> dict[str, Any]:
    job = yaml.safe_load(path.read_text(encoding="utf-8"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return dict(container)


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.stem)
def test_kubernetes_files_are_valid_and_without_privileges(path: Path) -> None:
    job = yaml.safe_load(path.read_text(encoding="utf-8"))
    kubernetes_validate.validate(job, "1.33", strict=True)
    pod, container = job["spec"]["template"]["spec"], _container(path)
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert container["resources"]["limits"]["memory"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_indexed_job_starts_every_shard_and_the_other_merges_its_folder() -> None:
    job = yaml.safe_load((DOCKER / "kubernetes-shards.yaml").read_text(encoding="utf-8"))["spec"]
    arguments = _container(DOCKER / "kubernetes-shards.yaml")["args"][1:]
    shards = set()
    for index in range(job["completions"]):
        text = [word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in arguments]
        shards.add(Shard.parse(_option(text, "shard")))
    assert shards == {Shard(index, job["completions"]) for index in range(job["completions"])}
    merging = _container(DOCKER / "kubernetes-merge.yaml")["args"][1:]
    assert _option(merging, "merge") == _option(arguments, "out_dir")


@pytest.mark.parametrize("first", [0, 1])
def test_the_slurm_array_starts_every_shard(tmp_path: Path, first: int) -> None:
    script = DOCKER / "slurm-array.sh"
    array = re.search(r"--array=0-(\d+)", script.read_text(encoding="utf-8"))
    assert array is not None
    count = int(array[1]) + 1
    (tmp_path / "saga").write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    (tmp_path / "saga").chmod(0o755)
    shards = set()
    for task in range(first, first + count):
        variables = {
            "SLURM_ARRAY_TASK_ID": str(task),
            "SLURM_ARRAY_TASK_MIN": str(first),
            "SLURM_ARRAY_TASK_COUNT": str(count),
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
        }
        line = ["bash", str(script), "a panel/", "out/", "--product", "lifetimes"]
        done = subprocess.run(line, env=variables, capture_output=True, text=True, check=True)
        arguments = done.stdout.splitlines()[1:]
        assert arguments[:2] == ["a panel/", "out/"]
        shards.add(Shard.parse(_option(arguments, "shard")))
    assert shards == {Shard(index, count) for index in range(count)}


def test_the_ray_job_starts_a_run_on_its_own_cluster() -> None:
    whole, policy = yaml.safe_load_all((DOCKER / "kuberay.yaml").read_text(encoding="utf-8"))
    job = whole["spec"]
    words = job["entrypoint"].split()
    assert words[:2] == ["saga", "score"]
    assert _option(words[2:], "engine") == "ray"
    cluster = job["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    cpus = workers["replicas"] * int(container["resources"]["limits"]["cpu"])
    assert int(_option(words[2:], "workers")) == cpus
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    groups = (cluster["headGroupSpec"], workers)
    for pod in (job["submitterPodTemplate"], *(group["template"] for group in groups)):
        kubernetes_validate.validate(
            {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": "pod"},
                "template": pod,
            },
            "1.33",
            strict=True,
        )
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert not pod["spec"]["automountServiceAccountToken"]
    kubernetes_validate.validate(policy, "1.33", strict=True)
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    inside, submitting = policy["spec"]["ingress"]
    for group in groups:
        assert group["template"]["metadata"]["labels"] == chosen
    assert inside == {"from": [{"podSelector": {"matchLabels": chosen}}]}
    assert submitting["from"][0]["podSelector"]["matchLabels"] == {
        "batch.kubernetes.io/job-name": whole["metadata"]["name"]
    }
    assert cluster["authOptions"] == {"mode": "token"}
    pins = (DOCKER.parent / "requirements.lock").read_text(encoding="utf-8")
    assert f"ray=={cluster['rayVersion']}\n" in pins
    # Without its extra, Ray has no server for jobs and none for the probes of KubeRay.
    pyproject = tomllib.loads((DOCKER.parent / "pyproject.toml").read_text(encoding="utf-8"))
    (ray,) = map(Requirement, pyproject["project"]["optional-dependencies"]["ray"])
    assert ray.extras == {"default"}
    assert {"aiohttp-cors", "py-spy"} <= {line.split("==")[0] for line in pins.split()}
