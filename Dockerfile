# A broker in a container: docker build -t odradek . && docker run -p 9092:9092 odradek
# Clients on the host reach it as localhost:9092; docs/operating/running.md has other networks.
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY pyproject.toml setup.py README.md LICENSE /source/
COPY src /source/src
RUN python -m venv /opt/odradek && /opt/odradek/bin/pip install --no-cache-dir '/source[security,zookeeper]'

FROM python:3.13-slim
RUN useradd --uid 1000 --create-home odradek && \
    install -d -o odradek /var/lib/odradek /var/lib/kafka/data /etc/kafka/secrets /mnt/shared/config
COPY --from=build /opt/odradek /opt/odradek
ENV PATH=/opt/odradek/bin:$PATH
# For scripts and health checks that call Kafka's own.
RUN odradek kafka-bin /opt/kafka/bin
USER odradek
VOLUME /var/lib/odradek
EXPOSE 9092
# Settings from the environment (KAFKA_NODE_ID=1, ...), as Apache Kafka's image takes them, and from a
# server.properties in the second folder; without any a broker for clients of this host.
# SIGTERM ends the broker in order, and Docker sends it.
ENTRYPOINT ["python", "-m", "odradek.cli.container", "/var/lib/odradek", "/mnt/shared/config"]
