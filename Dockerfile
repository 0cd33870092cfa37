# One image for every role: the command says which, as in `docker run turnledger worker`.
#
#   docker build --tag turnledger .

FROM python:3.13-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY store store
COPY checkpoint checkpoint
COPY workers workers
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
# Everything that an operator can switch on by a setting; the embedded servers stay out.
ARG EXTRAS=dashboard,rewrite,otel
RUN python -m venv /opt/turnledger \
    && /opt/turnledger/bin/pip install --no-cache-dir "$(echo /wheels/turnledger-*.whl)[$EXTRAS]"

FROM python:3.13-slim-bookworm
# The number is fixed, for whoever gives it a volume. It owns nothing of the program, so it can change nothing of it.
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/turnledger --shell /usr/sbin/nologin turnledger \
    && install --directory --owner turnledger --group turnledger --mode 0700 /var/lib/turnledger \
        /var/lib/turnledger/spool /run/turnledger
COPY --from=build /opt/turnledger /opt/turnledger
ENV PATH=/opt/turnledger/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TURNLEDGER_ALIVE_FOLDER=/run/turnledger \
    TURNLEDGER_LOG_FORMAT=json \
    TURNLEDGER_SPOOL_FOLDER=/var/lib/turnledger/spool
USER 10001:10001
WORKDIR /var/lib/turnledger
ENTRYPOINT ["turnledger"]
CMD ["--help"]
# For worker, upkeep and clock; the dashboard is asked over HTTP instead, and what runs once has no health.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --start-interval=2s --retries=3 \
    CMD ["turnledger", "alive"]
