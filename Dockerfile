# A broker in a container: docker build -t odradek . && docker run -p 9092:9092 odradek
# Clients on the host reach it as localhost:9092; docs/operating/running.md has other networks.
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY pyproject.toml setup.py README.md LICENSE /source/
COPY src /source/src
RUN python -m venv /opt/odradek && /opt/odradek/bin/pip install --no-cache-dir /source

FROM python:3.13-slim
RUN useradd --uid 1000 --create-home odradek && install -d -o odradek /var/lib/odradek
COPY --from=build /opt/odradek /opt/odradek
ENV PATH=/opt/odradek/bin:$PATH
USER odradek
VOLUME /var/lib/odradek
EXPOSE 9092
# SIGTERM ends the broker in order, and Docker sends it.
ENTRYPOINT ["odradek", "start", "--data-dir", "/var/lib/odradek"]
CMD ["--listener", "0.0.0.0:9092", "--set", "advertised.listeners=PLAINTEXT://localhost:9092"]
