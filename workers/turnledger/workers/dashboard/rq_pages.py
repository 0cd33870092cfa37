"""rq-dashboard under `/rq`, with what is wrong in it put right from outside.

It unpickles jobs on its page of workers, which ends in an error for ours, whose arguments are JSON; it puts texts of
jobs into its pages as markup; it changes state on GET; it builds a script from a queue's name. Its templates are mended
as they are loaded, its views are let through one by one, and one that is not known here is refused.
"""

import re
from functools import partial
from typing import Any

from flask import Flask, Response, abort, jsonify, request
from flask.templating import DispatchingJinjaLoader
from jinja2 import BaseLoader, Environment
from redis import Redis
from rq import Worker
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.worker import BaseWorker

from turnledger.workers.dashboard.guard import LOOKS

NAME = "rq_dashboard"
READS = frozenset(
    f"{NAME}.{view}"
    for view in (
        "static", "favicon", "queues_overview", "workers_overview", "jobs_overview", "job_view", "list_queues",
        "list_jobs", "job_info", "list_workers",
    )
)  # fmt: skip
CHANGES = frozenset(
    f"{NAME}.{view}" for view in ("delete_job_view", "requeue_job_view", "requeue_all", "empty_queue", "compact_queue")
)
MOST_A_PAGE = 200  # jobs; each is read by itself
_STATIC = f"{NAME}.static"
_PLAIN = re.compile(r"[A-Za-z0-9_.:@{}+-]{1,200}")
_REGISTRIES = ("queued", "failed", "deferred", "started", "finished", "canceled", "scheduled")
_ORDERS = ("asc", "dsc")
_ESCAPED_BEFORE = re.compile(r"<%= \$\('<div/>'\)\.text\(([\w.]+)\)\.html\(\) %>")


class MendingLoader(DispatchingJinjaLoader):
    """Loads templates as Flask does, those of rq-dashboard mended."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, Any]:
        source, name, is_current = super().get_source(environment, template)
        return (mended(source) if template.startswith(f"{NAME}/") else source), name, is_current


class MendedFlask(Flask):
    """Flask, with the loader that mends rq-dashboard's templates."""

    def create_global_jinja_loader(self) -> BaseLoader:  # type: ignore[override]  # Flask names its own class alone
        return MendingLoader(self)


def mended(source: str) -> str:
    """A template of rq-dashboard in which every text stays text, and whose scripts carry the nonce of the page."""
    source = _ESCAPED_BEFORE.sub(r"<%- \1 %>", source).replace("<%=", "<%-")
    source = source.replace("'{{ queue.name }}'", "{{ queue.name|tojson }}")
    source = source.replace("<script ", '<script nonce="{{ csp_nonce() }}" ')
    source = source.replace("url_for('static', filename='favicon.ico')", f"url_for('{NAME}.favicon')")
    source = source.replace(
        '<a class="navbar-brand">', '<a class="navbar-brand" href="{{ url_for(\'page\') }}">turnledger · '
    )
    return source.replace("</head>", '{% include "turnledger/rq_head.html" %}</head>')


def mount(app: Flask, redis: Redis) -> None:
    """Put rq-dashboard under `/rq`; `redis` is a client as RQ needs it."""
    from rq_dashboard import blueprint, web

    web.config.serializer = JSONSerializer
    app.config["RQ_DASHBOARD_REDIS_URL"] = ("Redis",)  # only ever shown; the connection is ours
    app.redis_conn = redis  # type: ignore[attr-defined]  # the place in which its views look for one
    app.before_request(_admit)
    app.register_blueprint(blueprint, url_prefix="/rq")
    app.before_request_funcs[NAME] = []  # its own would connect anew for every request, by a number in the address
    app.view_functions[f"{NAME}.list_workers"] = partial(_workers, redis)
    app.register_error_handler(NoSuchJobError, lambda _: ("There is no such job any more.", 404))


def _admit() -> None:
    if request.blueprint != NAME:
        return
    looks = request.method in LOOKS
    if request.endpoint not in (READS if looks else CHANGES):
        abort(405, "rq-dashboard may be looked at here, and changed by its buttons.")
    if request.endpoint != _STATIC and not _are_known(request.view_args or {}):
        abort(404)


def _are_known(arguments: dict[str, Any]) -> bool:
    """Whether these parts of an address are what rq-dashboard's own pages would write there."""
    ranges = {"instance_number": range(1), "per_page": range(1, MOST_A_PAGE + 1), "page": range(1, 10**7)}
    choices = {"registry_name": _REGISTRIES, "order": _ORDERS}
    for name, value in arguments.items():
        if value is not None and not _PLAIN.fullmatch(str(value)):
            return False
        if name in ranges and (not str(value).isdecimal() or int(value) not in ranges[name]):
            return False
        if name in choices and value not in choices[name]:
            return False
    return True


def _workers(redis: Redis, **_: Any) -> Response:
    found = sorted((_worker(worker) for worker in all_workers(redis)), key=lambda each: (each["queues"], each["name"]))
    return jsonify(workers=found)


def all_workers(redis: Redis) -> list[BaseWorker]:
    """Every worker that RQ knows; what jobs hold is read as JSON, never unpickled."""
    return list(Worker.all(connection=redis, serializer=JSONSerializer))


def current_job(worker: BaseWorker) -> Job | None:
    """The job that a worker has in hand."""
    for execution in worker.get_current_executions(refresh=False):
        try:
            return Job.fetch(execution.job_id, connection=worker.connection, serializer=JSONSerializer)
        except NoSuchJobError:
            continue
    return None


def _worker(worker: BaseWorker) -> dict[str, Any]:
    job = current_job(worker)
    shown: Any = "idle"
    if job is not None:
        shown = {
            "job_id": job.id,
            "description": job.description,
            "created_at": job.created_at.isoformat(),
            "call_string": job.description,
        }
    return {
        "name": worker.name,
        "pid": worker.pid,
        "queues": [queue.name for queue in worker.queues],
        "state": str(getattr(worker.get_state(), "value", worker.get_state())),
        "current_job": shown,
        "last_heartbeat": worker.last_heartbeat,
        "birth_date": worker.birth_date,
        "successful_job_count": worker.successful_job_count,
        "failed_job_count": worker.failed_job_count,
        "total_working_time": worker.total_working_time,
        "version": getattr(worker, "version", ""),
        "python_version": getattr(worker, "python_version", ""),
    }
