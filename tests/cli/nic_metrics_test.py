#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Metrics of a hull, read by Prometheus's own parser."""

import http.client
import os
import re
import signal
import socket
import stat
import subprocess

import command
import hull_kit
import judge
from command import TIMEOUT_S, main

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


def setUpModule():  # noqa: N802
    if text_string_to_metric_families is None:
        raise judge.Skip("missing: python3-prometheus-client")


ADDRESS = "127.64.0.2"
WORDS = ("--address", ADDRESS, "--port", "udp")
SILENT = 20  # more than are heard at a time


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self.path)


def get(connection, url="/metrics", method="GET"):
    connection.request(method, url)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply, text


class Metrics(hull_kit.WithHull):
    def serve(self, *words, where="127.0.0.1:0"):
        """Starts a hull with metrics and returns a connection to them."""
        self.start(*WORDS, "--metrics", where, *words)
        while True:
            line = self.hull.stderr.readline()
            self.assertTrue(line)
            if "metrics at " in line:
                self.where = line.split("metrics at ")[1].strip()
                return line

    def connect(self):
        if self.where.startswith("/"):
            return UnixConnection(self.where)
        host, port = re.fullmatch(r"http://(.*):(\d+)/metrics", self.where).groups()
        return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)

    def scrape(self):
        reply, text = get(self.connect())
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.getheader("Content-Type"),
                         "text/plain; version=0.0.4; charset=utf-8")
        self.assertTrue(text.endswith("\n"))
        return {f.name: f for f in text_string_to_metric_families(text)}

    def scrape_with(self, name, wanted, **labels):
        """The first scrape in which that value is the wanted one: for a while they are the last one
        again."""
        found = {}

        def is_there():
            found.update(self.scrape())
            return self.value(found, name, **labels) == wanted
        command.wait_for(is_there, f"{name} does not become {wanted}")
        return found

    def value(self, families, name, **labels):
        for family in families.values():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return None

    def test_families_are_as_they_should_be(self):
        self.serve()
        families = self.scrape()
        self.assertGreater(len(families), 50)
        for name, family in families.items():
            self.assertRegex(name, r"^verbena_[a-z0-9_]+$")
            self.assertIn(family.type, ("counter", "gauge"), name)
            self.assertTrue(family.documentation.endswith("."), name)
            seen = set()
            for sample in family.samples:
                self.assertEqual(sample.labels["device"], "verbena0")
                self.assertEqual(sample.name.endswith("_total"), family.type == "counter")
                if name.startswith("verbena_port_"):
                    self.assertEqual(set(sample.labels), {"device", "port"})
                key = tuple(sorted(sample.labels.items()))
                self.assertNotIn(key, seen)
                seen.add(key)
        for name in ("verbena_port_data_transmitted_bytes", "verbena_port_data_received_bytes",
                     "verbena_port_packets_transmitted", "verbena_port_duplicate_requests",
                     "verbena_port_local_ack_timeouts", "verbena_tenant_memory_bytes"):
            self.assertIn(name, families)
        self.assertEqual(self.value(families, "verbena_info", address=ADDRESS, type="udp"), 1)
        self.assertEqual(self.value(families, "verbena_up"), 1)
        self.assertEqual(self.value(families, "verbena_applications"), 0)

    @judge.needs(tools=("promtool",))
    def test_promtool_finds_nothing(self):
        self.serve()
        self.ask(self.attach(), "work 10")
        done = subprocess.run(["promtool", "check", "metrics"], input=get(self.connect())[1],
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_counters_grow(self):
        tenant = {"tenant": str(os.getuid())}
        self.serve()
        app = self.attach()
        self.assertEqual(self.ask(app, "put table 65536 x"), "ok")
        before = self.scrape()
        self.assertEqual(self.value(before, "verbena_tenant_queue_pairs", **tenant), 0)
        self.assertEqual(self.ask(app, "work 100"), "ok")
        during = self.scrape_with("verbena_tenant_queue_pairs", 2, **tenant)
        self.assertEqual(self.value(during, "verbena_tenant_queue_pairs_quota", **tenant), 8192)
        self.assertEqual(self.value(during, "verbena_tenant_applications", **tenant), 1)
        sent = self.value(during, "verbena_tenant_data_transmitted_bytes_total", **tenant)
        self.assertGreaterEqual(sent, 100 * 2048)
        self.assertGreaterEqual(
            self.value(during, "verbena_port_data_transmitted_bytes_total"), sent)
        self.assertIn("error", self.ask(app, "get none"))
        self.leave(app)
        # The name holds the tenant; what its queue pairs did is not forgotten.
        after = self.scrape_with("verbena_tenant_queue_pairs", 0, **tenant)
        self.assertEqual(self.value(after, "verbena_tenant_refused_requests_total", **tenant), 1)
        for earlier, later in ((before, during), (during, after)):
            for family in earlier.values():
                for sample in family.samples if family.type == "counter" else ():
                    now = self.value(later, sample.name, **sample.labels)
                    self.assertGreaterEqual(now, sample.value, sample)
        self.assertGreaterEqual(
            self.value(after, "verbena_tenant_data_transmitted_bytes_total", **tenant), sent)

    def test_two_nics(self):
        config = self.path("config", f"[nic one]\naddress = {ADDRESS}\nport = udp\n"
                                     f"[nic two]\naddress = 127.64.0.3\nport = udp\n"
                                     f"[metrics]\nlisten = 127.0.0.1:0\n")
        self.start("--config", config)
        line = ""
        while "metrics at " not in line:
            line = self.hull.stderr.readline()
        self.where = line.split("metrics at ")[1].strip()
        for family in self.scrape().values():
            if not family.name.startswith("verbena_tenant_"):
                self.assertEqual([s.labels["device"] for s in family.samples], ["one", "two"])

    def test_other_requests(self):
        self.serve()
        self.assertEqual(get(self.connect(), "/")[0].status, 200)
        self.assertEqual(get(self.connect(), "/other")[0].status, 404)
        self.assertEqual(get(self.connect(), method="HEAD")[0].status, 200)
        reply, _ = get(self.connect(), method="POST")
        self.assertEqual((reply.status, reply.getheader("Allow")), (405, "GET, HEAD"))

    def test_silent_clients_keep_nobody_from_working(self):
        self.serve()
        app = self.attach()
        silent = []
        for _ in range(SILENT):
            connection = self.connect()
            connection.connect()
            silent.append(connection)
        self.assertEqual(self.ask(app, "work 2000"), "ok")
        for connection in silent:
            connection.close()
        self.assertEqual(self.value(self.scrape(), "verbena_up"), 1)
        _, err = self.end(self.hull, signal.SIGTERM)
        self.assertEqual(
            err, "verbena nic: NIC verbena0 ends, with 1 applications attached and 0 services\n")

    def test_a_unix_socket(self):
        path = self.path("metrics")
        self.serve(where=path)
        self.assertEqual(self.where, path)
        mode = os.stat(path).st_mode
        self.assertTrue(stat.S_ISSOCK(mode))
        self.assertEqual(mode & 0o777, 0o600)
        self.assertIn("verbena_info", self.scrape())
        self.end(self.hull, signal.SIGKILL)
        self.assertTrue(os.path.exists(path))
        self.serve(where=path)  # what was left behind is replaced
        self.assertIn("verbena_info", self.scrape())
        self.end(self.hull, signal.SIGTERM)
        self.assertFalse(os.path.exists(path))

    def test_only_here_unless_asked(self):
        for where, said in (("0.0.0.0:0", "--metrics-anywhere allows"),
                            ("[::]:0", "--metrics-anywhere allows"),
                            ("192.0.2.1:9100", "--metrics-anywhere allows"),
                            ("x", "PORT, IP:PORT"), ("1:2:3", "PORT, IP:PORT"),
                            ("70000", "PORT, IP:PORT"), ("127.0.0.1:", "PORT, IP:PORT"),
                            ("[127.0.0.1]:0", "PORT, IP:PORT")):
            done = command.run("nic", *WORDS, "--metrics", where, **self.place)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done)
            self.assertIn(said, done.stderr)
            self.assertNotIn("socket", done.stderr)
        precious = self.path("precious", "not a socket")
        done = command.run("nic", *WORDS, "--metrics", precious, **self.place)
        self.assertEqual(done.returncode, 1, done)
        self.assertTrue(os.path.isfile(precious))
        self.serve("--metrics-anywhere", where="0.0.0.0:0")
        self.assertIn("verbena_info", self.scrape())


if __name__ == "__main__":
    main()
