"""If these fail, what a pipeline says it has done is not what it did."""

from pyspark_odradek.pipelines import Batch, Outcome, PipelineSettings, report_page, summary

SETTINGS = PipelineSettings("h:1", "a<b", to="/data/orders")


def test_a_line_a_batch() -> None:
    assert str(Batch(3, 12_000, 2.0, 40)) == "batch 3: 12,000 records in 2.0 s (6,000/s), 40 behind"
    assert str(Batch(4, 0, 0.0)) == "batch 4: 0 records in 0.0 s"


def test_the_summary_has_what_was_read_and_found() -> None:
    outcome = Outcome(["one is gone"], {"files": 1200}, [Batch(0, 700, 1.0), Batch(1, 800, 1.0)])
    said = "2 batches, 1,500 records in 3.5 s; files: 1,200; 1 finding"
    assert summary(outcome, 3.5) == said
    assert summary(Outcome(), 0.25) == "0.2 s"


def test_a_report_is_one_page_and_nothing_in_it_is_taken_for_markup() -> None:
    page = report_page("audit", SETTINGS, Outcome(["<x> is gone"], {"files": 2}), 1.0)
    assert "&lt;x&gt; is gone" in page
    assert "<x>" not in page
    assert "a&lt;b" in page
    assert "/data/orders" in page
    assert "every" not in page, "settings that were not given"
    assert "src=" not in page
    assert "Done, without findings" in report_page("audit", SETTINGS, Outcome(), 1.0)


def test_the_fastest_batch_has_the_longest_bar() -> None:
    page = report_page("a", SETTINGS, Outcome(batches=[Batch(0, 50, 1.0), Batch(1, 100, 1.0)]), 2.0)
    assert page.index("width:120px") < page.index("width:240px")


def test_a_report_does_not_tell_the_password_of_a_registry() -> None:
    registry = "https://user:p@ss@registry:8081/api"
    settings = PipelineSettings("h:1", "orders", registry=registry)
    page = report_page("decode", settings, Outcome([f"{registry} is away"]), 1.0)
    assert "p@ss" not in page
    assert "user" not in page
    assert page.count("https://registry:8081/api") == 2
