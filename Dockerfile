ARG PYTHON=3.11
# The release workflow gives this image by its digest, because its tag means another image with each update.
ARG BASE=python:${PYTHON}-slim

# Install the locked packages of the gateway and its small extras into a virtual environment, and compile our code. Build tools stay
# in this stage.
FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/venv
COPY requirements-image.lock /build/
RUN pip --python /opt/venv/bin/python install --require-hashes --no-deps --only-binary :all: -r /build/requirements-image.lock
COPY proxy/responses_gateway /app/responses_gateway
# The commit shown by `--version`: docker build --build-arg COMMIT=$(git rev-parse HEAD) .
ARG COMMIT=
RUN if [ -n "$COMMIT" ]; then echo "$COMMIT" > /app/responses_gateway/commit.txt; fi \
    && /opt/venv/bin/python -m compileall -q /app/responses_gateway

FROM ${BASE}
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin proxy \
    && install -d -o 10001 -m 700 /data
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    RESPONSES_GATEWAY_HOST=0.0.0.0 \
    XDG_STATE_HOME=/data
VOLUME /data
USER 10001
EXPOSE 9000
# http.client instead of urllib, because it ignores proxy variables of the environment. Port and TLS come from the environment.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["python", "-c", "\
import functools, http.client, os, ssl\n\
secure = functools.partial(http.client.HTTPSConnection, context=ssl._create_unverified_context())\n\
connection = secure if os.environ.get('RESPONSES_GATEWAY_TLS_CERT') else http.client.HTTPConnection\n\
gateway = connection('127.0.0.1', int(os.environ.get('RESPONSES_GATEWAY_PORT', '9000')), timeout=2)\n\
gateway.request('GET', '/health')\n\
raise SystemExit(gateway.getresponse().status != 200)"]
ARG BASE
ARG COMMIT=
LABEL org.opencontainers.image.title="responses-gateway" \
    org.opencontainers.image.description="OpenAI's Responses API and Anthropic's Messages API for any Chat Completions server" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="$BASE" \
    org.opencontainers.image.revision="$COMMIT"
ENTRYPOINT ["python", "-m", "responses_gateway"]
CMD ["serve"]
