#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""link, stat and res on NICs of real processes: several in one, under `verbena run`, stopped, killed
and somebody else's."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import time

import command
import judge
from command import TIMEOUT_S, WithFiles, environment, main

ADDRESSES = ("127.46.0.1", "127.46.0.2")
PINGPONG_ADDRESS = "127.46.0.3"
PINGPONG_TCP_PORT = "23917"


def fields(line):
    """A line of text as a dictionary: pairs of key and value behind the first two words."""
    words = line.split()
    return dict(zip(words[0::2], words[1::2]))


class Inspected(WithFiles):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir.name, 0o700)
        self.place = {"VERBENA_RUNTIME_DIR": self.dir.name}
        self.children = []

    def tearDown(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        super().tearDown()

    def ask(self, *words):
        return command.run(*words, **self.place)

    def answer(self, *words):
        """Standard output of a question that must be answered without a complaint."""
        done = self.ask(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def start(self, *words):
        child = subprocess.Popen(words, env=environment(**self.place), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def target(self, *addresses):
        """A process with a NIC at each address, and the number of its first queue pair."""
        program = os.path.join(os.path.dirname(command.VERBENA), "tests/inspect_target")
        child = self.start(program, *addresses)
        word, number = child.stdout.readline().split()
        self.assertEqual(word, "ready")
        return child, int(number)

    def end(self, child):
        child.communicate(timeout=TIMEOUT_S)
        self.assertEqual(child.returncode, 0)
        self.children.remove(child)

    def files(self):
        return [name for name in os.listdir(self.dir.name) if "inspect" in name]


class Links(Inspected):
    def test_none(self):
        self.assertEqual(self.answer("link"), "")
        self.assertEqual(json.loads(self.answer("link", "-j")), [])
        self.assertEqual(json.loads(self.answer("res", "qp", "-jp")), [])

    def test_two_in_one_process(self):
        child, _ = self.target(*ADDRESSES)
        lines = self.answer("link").splitlines()
        self.assertEqual(len(lines), 2)
        for i, line in enumerate(lines):
            self.assertEqual(
                line, f"link verbena{i}/1 state ACTIVE physical_state LINK_UP netdev lo addr "
                f"{ADDRESSES[i]} type udp mtu 4096 pid {child.pid} comm inspect_target")
        rows = json.loads(self.answer("link", "show", "-j"))
        self.assertEqual([row["ifname"] for row in rows], ["verbena0", "verbena1"])
        self.assertEqual([row["ifindex"] for row in rows], [0, 1])
        self.assertEqual({(row["port"], row["pid"], row["comm"]) for row in rows},
                         {(1, child.pid, "inspect_target")})
        self.assertNotIn("units", rows[0])
        pretty = self.answer("link", "-p", "-d", "verbena1/1")
        self.assertGreater(pretty.count("\n"), 10)
        self.assertEqual([row["addr"] for row in json.loads(pretty)], [ADDRESSES[1]])
        self.assertEqual(json.loads(pretty)[0]["units"], 1)
        self.end(child)
        self.assertEqual(self.files(), [])
        self.assertEqual(self.answer("link"), "")

    def test_choosing(self):
        first, _ = self.target(ADDRESSES[0])
        second, _ = self.target(ADDRESSES[1])
        for words, wanted in ((("pid", first.pid), ADDRESSES[0]), (("pid", second.pid), ADDRESSES[1]),
                              (("addr", ADDRESSES[1]), ADDRESSES[1])):
            lines = self.answer("link", "show", *map(str, words)).splitlines()
            self.assertEqual([fields(line)["addr"] for line in lines], [wanted])
        self.assertEqual(self.answer("link", "verbena0").count("\n"), 2)
        for words, said in ((("verbena7",), "no link with link verbena7"),
                            (("verbena0/2",), "no link"), (("pid", "1"), "no link with pid 1")):
            done = self.ask("link", *words)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(said, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        self.end(first)
        self.end(second)

    def test_bad_lines(self):
        for words, right in ((("link", "fly"), "link, pid, addr"), (("res", "fly"), "lqpn"),
                             (("res", "qp", "lqpn"), "needs a value"), (("link", "pid", "x"), "'x'"),
                             (("stat", "--watch", "0"), "seconds"), (("link", "--watch", "1"), "--help"),
                             (("link", "-x"), "'-x'")):
            done = self.ask(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(right, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        for name in ("link", "stat", "res"):
            self.assertIn(f"Usage: verbena {name}", self.answer(name, "--help"))


class Objects(Inspected):
    def test_text(self):
        child, lqpn = self.target(*ADDRESSES)
        owner = f" pid {child.pid} comm inspect_target"
        counts = self.answer("res").splitlines()
        self.assertEqual(counts, [f"{i}: verbena{i}: pd 1 cq 1 qp 1 mr 1 mw 0 srq 0{owner}"
                                  for i in range(2)])
        qp = self.answer("res", "show", "qp", "lqpn", str(lqpn))
        self.assertRegex(qp, rf"^link verbena0/1 lqpn {lqpn} rqpn \d+ type RC state RTS rq-psn 100 "
                         rf"sq-psn 101 path-mig-state MIGRATED{owner}\n$")
        self.assertEqual(self.answer("res", "qp", "lqpn", hex(lqpn)), qp)
        self.assertEqual(self.answer("res", "cq", "link", "verbena1/1"),
                         f"dev verbena1 cqn 1 cqe 64 users 2{owner}\n")
        self.assertEqual(self.answer("res", "pd", "dev", "verbena0"),
                         f"dev verbena0 pdn 1 users 2{owner}\n")
        self.assertEqual(self.answer("res", "srq"), "")
        region = self.answer("res", "mr", "dev", "verbena0")
        self.assertRegex(region, rf"^dev verbena0 mrn \d+ mrlen 4096 pdn 1{owner}\n$")
        self.assertRegex(self.answer("res", "mr", "-d", "dev", "verbena0"),
                         r" rkey 0x[0-9a-f]+ lkey 0x[0-9a-f]+ iova 0x[0-9a-f]+ mrlen 4096 ")
        done = self.ask("res", "qp", "lqpn", "16777215")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "verbena res: no qp with lqpn 16777215\n")

    def test_json(self):
        child, lqpn = self.target(*ADDRESSES)
        rows = json.loads(self.answer("res", "qp", "-jd"))
        self.assertEqual(rows[0]["rqpn"], rows[1]["lqpn"])
        self.assertEqual(rows[0]["lqpn"], lqpn)
        self.assertEqual(rows[0]["raddr"], ADDRESSES[1])
        self.assertEqual((rows[0]["type"], rows[0]["state"], rows[0]["pid"]),
                         ("RC", "RTS", child.pid))
        for kind in ("cq", "mr", "pd"):
            plain = json.loads(self.answer("res", kind, "-j"))
            self.assertEqual(len(plain), 2, kind)
        self.assertNotIn("rkey", json.loads(self.answer("res", "mr", "-j"))[0])
        self.assertIn("rkey", json.loads(self.answer("res", "mr", "-jd"))[0])
        self.assertEqual(json.loads(self.answer("res", "-j"))[1]["qp"], 1)

    def test_counters(self):
        _, lqpn = self.target(*ADDRESSES)
        rows = json.loads(self.answer("stat", "-j"))
        self.assertEqual(rows[1]["rx_write_requests"], 1)
        self.assertEqual(rows[0]["rx_write_requests"], 0)
        self.assertGreaterEqual(rows[0]["sent_bytes"], 4096)
        for name in ("sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request",
                     "retry_exceeded_err", "local_ack_timeout_err", "np_cnp_sent", "rx_bad_icrc"):
            self.assertIn(name, rows[0])
        text = self.answer("stat", "qp", "lqpn", str(lqpn))
        self.assertTrue(text.startswith(f"link verbena0/1 lqpn {lqpn} type RC sent_pkts 1 "), text)
        self.assertIn("sent_pkts 1 ", self.answer("stat", "verbena0"))

    def test_rates(self):
        child, _ = self.target(*ADDRESSES)
        began = time.monotonic()
        text = self.answer("stat", "--watch", "0.2", "--count", "2")
        self.assertGreater(time.monotonic() - began, 0.4)
        quiet = [f"link verbena{i}/1 pid {child.pid} comm inspect_target" for i in range(2)]
        self.assertEqual(text.splitlines(), quiet * 2)
        text = self.answer("stat", "--watch", "0.1", "--count", "1", "-jd")
        self.assertEqual(json.loads(text)[0]["sent_pkts"], 0.0)


class Strangers(Inspected):
    @judge.needs(tools=("ibv_rc_pingpong",))
    def test_a_verbs_program(self):
        child = self.start(command.VERBENA, "run", "--address", PINGPONG_ADDRESS, "--",
                           "ibv_rc_pingpong", "-g", "0", "-p", PINGPONG_TCP_PORT)
        line = command.wait_for(lambda: self.answer("res", "qp"), "it has no queue pair")
        self.assertIn(f" type RC state INIT rq-psn 0 sq-psn 0 path-mig-state MIGRATED pid {child.pid}"
                      " comm ibv_rc_pingpong", line)
        self.assertEqual(fields(self.answer("link"))["addr"], PINGPONG_ADDRESS)

    def test_killed(self):
        child, _ = self.target(ADDRESSES[0])
        child.kill()
        child.wait(TIMEOUT_S)
        self.assertEqual(len(self.files()), 1)
        self.assertEqual(self.answer("link"), "")
        self.assertEqual(self.files(), [])

    def test_stopped(self):
        stopped, _ = self.target(ADDRESSES[0])
        child, _ = self.target(ADDRESSES[1])
        stopped.send_signal(signal.SIGSTOP)
        done = self.ask("link", "--timeout", "0.5")  # without a limit it would wait for ever
        self.assertEqual(done.returncode, 0)
        self.assertEqual([fields(line)["pid"] for line in done.stdout.splitlines()],
                         [str(child.pid)])
        self.assertEqual(done.stderr, f"verbena link: verbena0 of process {stopped.pid} does not "
                         "answer: it is stopped (kill -CONT lets it go on)\n")
        stopped.send_signal(signal.SIGCONT)
        self.assertEqual(self.answer("link").count("\n"), 2)

    def test_switched_off(self):
        self.place["VERBENA_INSPECT"] = "0"
        self.target(ADDRESSES[0])
        self.assertEqual(self.files(), [])
        self.assertEqual(self.answer("link"), "")

    def test_a_directory_for_all(self):
        self.target(ADDRESSES[0])
        os.chmod(self.dir.name, 0o777)
        done = self.ask("link")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn(self.dir.name, done.stderr)
        os.chmod(self.dir.name, 0o700)
        self.assertEqual(self.answer("link").count("\n"), 1)

    @judge.needs(root=True)  # to become somebody else
    def test_another_user(self):
        nobody = pwd.getpwnam("nobody")
        self.target(ADDRESSES[0])
        program = self.path("verbena")
        shutil.copy(command.VERBENA, program)
        for mode in (0o700, 0o755):  # may not look into it; may, but it is not theirs
            os.chmod(self.dir.name, mode)
            with open(program, "rb") as file:
                done = subprocess.run(
                    [f"/proc/self/fd/{file.fileno()}", "link"], env=environment(**self.place),
                    user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], capture_output=True,
                    text=True, timeout=TIMEOUT_S, check=False, pass_fds=(file.fileno(),))
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertIn(self.dir.name, done.stderr)
        self.assertEqual(self.answer("link").count("\n"), 1)


if __name__ == "__main__":
    main()
