"""What each answer forbids the browser."""

import secrets

from flask import Flask, Response, g, request

_OURS = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# rq-dashboard's pages build themselves from templates, which its library compiles with eval, and style elements by
# attribute. A script runs only with the nonce of its page: one that got into a page as text does not.
_RQ_PAGES = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_FIXED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def add_headers(app: Flask) -> None:
    """Give every answer of the app its headers, errors included."""
    app.after_request(_protect)
    app.context_processor(lambda: {"csp_nonce": nonce})


def nonce() -> str:
    """The word by which the scripts of this one answer are known."""
    if "nonce" not in g:
        g.nonce = secrets.token_urlsafe(18)
    return str(g.nonce)


def _protect(response: Response) -> Response:
    of_rq = request.blueprint == "rq_dashboard" and response.status_code < 400
    response.headers["Content-Security-Policy"] = _RQ_PAGES.format(nonce=nonce()) if of_rq else _OURS
    response.headers.update(_FIXED)
    if not (request.endpoint or "").endswith("static"):
        response.headers["Cache-Control"] = "no-store"
    return response
