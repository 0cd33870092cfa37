"""The Kubernetes manifests, by the published schemas and by what our processes need (OP-5). No cluster is needed."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from redis import Redis
from redis.exceptions import NoPermissionError

from tests.access import redis_user
from tests.deploying import NEEDED, ROOT, compose, known_settings
from turnledger.checkpoint import CheckpointSettings

FOLDER = ROOT / "deploy/kubernetes"
SECRETS = FOLDER / "secrets.example.yaml"
VERSIONS = ("1.31", "1.37")  # the oldest and the newest that we look at
PAGE = ROOT / "docs/how-to/deploy.md"
GRACE_S = 30
QUEUE = "rq:queue:commits"
LOOKS_AT_THE_QUEUE = """
local kind = redis.call('type', KEYS[1]).ok
if kind == 'list' or kind == 'none' then return redis.call('llen', KEYS[1]) end
return -1
"""  # as KEDA's scaler does: a script, given whole, with TYPE and LLEN in it


@cache
def _kustomization() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    return found


def _documents(*paths: Path) -> list[dict[str, Any]]:
    return [document for path in paths for document in yaml.safe_load_all(path.read_text())]


def _applied() -> list[dict[str, Any]]:
    return _documents(*(FOLDER / name for name in _kustomization()["resources"]))


def _pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for document in _applied():
        if document["kind"] in ("Deployment", "Job"):
            yield document["metadata"]["name"].removeprefix("turnledger-"), document["spec"]["template"]["spec"]


def _of_kind(kind: str) -> dict[str, Any]:
    (found,) = [document for document in _applied() if document["kind"] == kind]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_its_schema(version: str) -> None:
    """Strictly: a name that Kubernetes does not know is refused (OP-5)."""
    own = [each for each in (*_applied(), *_documents(SECRETS)) if not each["apiVersion"].startswith("keda.sh/")]
    for document in own:
        kubernetes_validate.validate(document, version, strict=True)
    own[0]["spec"]["mispelt"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(own[0], version, strict=True)


def test_every_manifest_is_applied() -> None:
    """But for the example of the secrets (OP-5)."""
    there = {path.name for path in FOLDER.glob("*.yaml")} - {SECRETS.name, "kustomization.yaml"}
    assert there == set(_kustomization()["resources"])


def test_every_pod_is_confined_and_ends_in_time() -> None:
    """Nobody is root or writes to the image; a stop waits longer than the grace of the process (OP-5, OP-6)."""
    for name, pod in _pods():
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] == 10_001, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert name == "migrate" or pod["terminationGracePeriodSeconds"] > GRACE_S


def test_every_pod_runs_what_the_services_of_compose_run() -> None:
    """Those commands are run by the tests of compose.yaml (OP-5)."""
    commands = {" ".join(service.get("command", [])) for service in compose(NEEDED).values()}
    for _, pod in _pods():
        (container,) = pod["containers"]
        assert container["image"] == _kustomization()["images"][0]["name"]
        assert " ".join(container["args"]) in commands | {"migrate"}


def test_a_process_that_hangs_is_started_anew_and_one_that_waits_is_not() -> None:
    """The probes ask no server; what they need is there to be written to (OP-5)."""
    for name, pod in _pods():
        (container,) = pod["containers"]
        if name in ("worker", "upkeep", "clock"):
            assert container["livenessProbe"]["exec"] == {"command": ["turnledger", "alive"]}
            assert container["startupProbe"]["exec"] == {"command": ["turnledger", "alive"]}
            assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/run/turnledger"]
        elif name == "dashboard":
            assert container["livenessProbe"]["httpGet"]["path"] == "/login"


def test_every_secret_has_an_example_that_says_what_is_read() -> None:
    """No variable is misspelt, none is missing (OP-5)."""
    examples = {each["metadata"]["name"]: set(each["stringData"]) for each in _documents(SECRETS)}
    named = {pod["containers"][0]["envFrom"][0]["secretRef"]["name"] for _, pod in _pods()}
    scaler = _of_kind("TriggerAuthentication")["spec"]["secretTargetRef"]
    assert named | {each["name"] for each in scaler} == set(examples)
    assert {each["key"] for each in scaler} == examples["turnledger-scaler"]
    for name in named:
        assert examples[name] <= known_settings()
        assert "TURNLEDGER_DATABASE_URL" in examples[name]


def test_keda_scales_the_workers_by_their_queue() -> None:
    """Never down to none (OP-5)."""
    scaled = _of_kind("ScaledObject")["spec"]
    assert scaled["scaleTargetRef"] == {"name": "turnledger-worker"}
    assert 1 <= scaled["minReplicaCount"] < scaled["maxReplicaCount"]
    (trigger,) = scaled["triggers"]
    assert trigger["type"] == "redis"
    settings = CheckpointSettings(redis_url="redis://-")
    assert trigger["metadata"]["listName"] == f"{settings.rq_prefix}:queue:{settings.commit_queue}" == QUEUE
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    (worker,) = [each for each in _applied() if each["metadata"]["name"] == "turnledger-worker"][:1]
    assert "replicas" not in worker["spec"]  # or each `kubectl apply` would take back what KEDA has set


def test_the_scaler_may_look_at_the_queue_alone(redis_url: str) -> None:
    """With the rules that the page gives (OP-5)."""
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith("user turnledger-scaler ")]
    rules = line.replace("#<sha256 of the password> ", "").removeprefix("user turnledger-scaler ")
    with Redis.from_url(redis_url) as admin, redis_user(redis_url, rules) as url, Redis.from_url(url) as scaler:
        assert scaler.ping()
        assert scaler.eval(LOOKS_AT_THE_QUEUE, 1, QUEUE) == 0
        admin.rpush(QUEUE, "turn-1", "turn-2")
        assert scaler.eval(LOOKS_AT_THE_QUEUE, 1, QUEUE) == 2
        for command in (("RPUSH", QUEUE, "x"), ("LLEN", "rq:queue:upkeep"), ("DEL", QUEUE), ("INFO",)):
            with pytest.raises(NoPermissionError):
                scaler.execute_command(*command)
