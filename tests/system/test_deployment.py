"""The site, and what the repository ships to run a broker with, tried without Docker or systemd."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.deadlines import deadline_s
from tests.system.processes import serving
from tools.free_port import free_port

import odradek.client.sync
from odradek.client.core.metadata import TopicMetadata
from odradek.server.in_process.protected.authority import HOSTS, CertificateAuthority

ROOT = Path(__file__).parents[2]
TIMEOUT_S = deadline_s(600)
STORE_PASSWORD = "store-secret"
# Of the image: where it keeps what, instead of in this machine's own folders.
PLACES = ("/source", "/opt/odradek", "/opt/kafka", "/var/lib/odradek", "/mnt/shared/config")
# Of the compose file for one broker that Apache Kafka has in its examples; any port will do here.
APACHES_COMPOSE = """
      KAFKA_NODE_ID: 1
      KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: 'CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT'
      KAFKA_ADVERTISED_LISTENERS: 'PLAINTEXT_HOST://localhost:0,PLAINTEXT://broker:0'
      KAFKA_PROCESS_ROLES: 'broker,controller'
      KAFKA_CONTROLLER_QUORUM_VOTERS: '1@broker:29093'
      KAFKA_LISTENERS: 'CONTROLLER://:0,PLAINTEXT_HOST://:0,PLAINTEXT://:0'
      KAFKA_INTER_BROKER_LISTENER_NAME: 'PLAINTEXT'
      KAFKA_CONTROLLER_LISTENER_NAMES: 'CONTROLLER'
      CLUSTER_ID: '4L6g3nShT-eMCtK--X86sw'
      KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: 1
      KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: 0
      KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: 1
      KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: 1
      KAFKA_LOG_DIRS: '/tmp/kraft-combined-logs'
      KAFKA_NUM_PARTITIONS: 3
"""  # noqa: E501


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """A page links to one that is not there, or is not what the site's tool reads."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "troubleshooting" / "index.html").exists()


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's lines as (instruction, rest)."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def moved(text: str, root: Path) -> str:
    """The text with the image's places under the root."""
    for place in PLACES:
        text = re.sub(rf"(?<![\w.]){re.escape(place)}", f"{root}{place}", text)
    return text


def as_pkcs12() -> bytes:
    """A store with a key and a certificate."""
    own = CertificateAuthority(datetime.now(UTC)).issue("broker", HOSTS)
    key = serialization.load_pem_private_key(own.key.encode(), None)
    certificate = x509.load_pem_x509_certificate(own.certificate.encode())
    encryption = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"broker", key, certificate, None, encryption)


@pytest.mark.slow
def test_the_steps_of_the_image(tmp_path: Path) -> None:
    """`docker build` fails, or `docker run` does not serve. Uncompiled: the steps are the same."""
    steps = instructions()
    copied = [rest.split() for name, rest in steps if name == "COPY" and "--from" not in rest]
    for *sources, target in copied:
        place = Path(moved(target, tmp_path))
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("*.so"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    [install] = [rest for name, rest in steps if name == "RUN" and "pip install" in rest]
    built = subprocess.run(
        ["bash", "-e", "-c", moved(install, tmp_path)],
        env=environment | {"ODRADEK_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    words = [
        moved(word.strip(' "'), tmp_path)
        for name, rest in steps
        if name in ("ENTRYPOINT", "CMD")
        for word in rest.strip("[]").split(",")
    ]
    [scripts] = [rest for name, rest in steps if name == "RUN" and "kafka-bin" in rest]
    binaries = tmp_path / "opt/odradek/bin"
    subprocess.run(shlex.split(f"{binaries}/{moved(scripts, tmp_path)}"), check=True)
    port = str(free_port())
    store = tmp_path / "broker.jks"
    store.write_bytes(as_pkcs12())
    environment |= {
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:0",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port},SSL://localhost:0",
        # As keytool writes it: who has secured a Kafka has one.
        "KAFKA_SSL_KEYSTORE_LOCATION": str(store),
        "KAFKA_SSL_KEYSTORE_PASSWORD": STORE_PASSWORD,
    }
    with serving(str(binaries / words[0]), *words[1:], environment=environment) as ready:
        assert f"bootstrap=localhost:{port} " in ready
        tool = [str(tmp_path / "opt/kafka/bin/kafka-topics.sh"), "--list"]
        subprocess.run([*tool, "--bootstrap-server", f"localhost:{port}"], check=True)
    assert (tmp_path / "var/lib/odradek/meta.properties").exists()


def test_the_image_runs_with_the_environment_of_apaches(tmp_path: Path) -> None:
    """A compose file with the image's name changed would start a broker that nobody reaches."""
    lines = re.findall(r"^ *(\w+): '?([^'\n]*)'?$", APACHES_COMPOSE, re.MULTILINE)
    given = dict(lines) | {"KAFKA_LOG_DIRS": str(tmp_path / "kraft-combined-logs")}
    words = ["-m", "odradek.cli.container", str(tmp_path / "unused"), str(tmp_path)]
    with serving(sys.executable, *words, environment=os.environ | given) as ready:
        [bootstrap] = re.findall(r"\blocalhost:\d+", ready)
        with odradek.client.sync.Producer(bootstrap) as producer:
            producer.send("orders", b"spool").result()
        with odradek.client.sync.Admin(bootstrap) as admin:
            topic = admin.describe_topics(["orders"])["orders"]
            assert isinstance(topic, TopicMetadata)
            assert len(topic.partitions) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kraft-combined-logs"]


def parses(words: list[str]) -> bool:
    """Whether `odradek` takes the words; `--help` at their end keeps it from starting."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *words, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0


def test_the_service_starts_what_there_is() -> None:
    """The unit names a flag that is not there, or has lost what keeps the broker running."""
    text = (ROOT / "deploy" / "odradek.service").read_text(encoding="utf-8")
    [start] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert parses(shlex.split(start)[1:])
    assert "Restart=on-failure" in text


def test_the_compose_file_starts_what_there_is() -> None:
    """Its broker's flags are not those of `odradek start`."""
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    command = text[text.index("command:") : text.index("ports:")]
    words = re.findall(r"^\s+- (.*)$", command, re.MULTILINE)
    assert len(words) == 10
    assert parses(["start", *words])


def test_the_workflows_call_our_own_commands() -> None:
    """A push runs something else than what runs here."""
    folder = ROOT / ".github" / "workflows"
    for name, command in (("test.yml", "./test"), ("wheels.yml", "tools/wheels")):
        runs = re.findall(r"^\s+- run: (.*)$", (folder / name).read_text("utf-8"), re.MULTILINE)
        # The others are for machines that are not Debians.
        assert [each for each in runs if not each.startswith("python -m")] == [command]
        assert os.access(ROOT / command, os.X_OK)
