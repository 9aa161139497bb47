"""Metrics of a running broker: collected from the parts that own them, served to Prometheus.

`beans` gives them Kafka's names; `exposition` writes them as text, in the dialect of jmx_exporter
with Strimzi's rules; `exporter_series` are those of kafka_exporter, `own_series` those that only a
broker knows, `client_series` those that clients push; `responder` answers HTTP. Imported where
somebody asks for metrics only.
"""
