#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The table of symbols in docs/verbs.md against what the test programs prove of the libraries that
were built: each symbol worked in a program that judges it, or was refused there, or neither is proved.
And the libraries against the system's: what a program may import must be there. So must what it may
import from the vendors' libraries that stand beside them. --write writes the table anew.
Host packages: binutils, gcc, ibverbs-utils."""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/verbs"))
import calls  # noqa: E402
import judge  # noqa: E402

DOCUMENT = ROOT / "docs/verbs.md"
BEGIN, END = "<!-- symbols -->", "<!-- end of symbols -->"
CM_BEGIN, CM_END = "<!-- symbols of librdmacm -->", "<!-- end of symbols of librdmacm -->"
LIMIT_S = 120
# Programs that judge what they call; the first that proves a symbol is named. life.c compares
# addresses of symbols with the library's, and cannot run with wrappers before it.
PROGRAMS = (("verify", "old"), ("verify", "new"), ("ends",), ("surface",), ("path", "0"),
            ("refused",), ("small",), ("raw",), ("cm", "{a}"), ("cm_odd", "{a}"), ("cm_rare", "{a}"),
            ("rsock", "{a}"))
TOOLS = (("ibv_devinfo", "-v"), ("ibv_devices",))
ADDRESS = "127.83.0.{}"
# Of newer headers than the system's: called without arguments, as those of drivers are.
NEWER = {"ibv_alloc_buf", "ibv_free_buf", "ibv_reg_buf_mr", "ibv_reg_mr_ex", "ibv_dm_export_dmabuf_fd",
         "ibv_export_buf_dmabuf_fd", "rdma_query_addrinfo", "rdma_resolve_addrinfo"}
# Files whose functions are refused, or no program's to call: these need not ask whose object it is.
APART = {"refuse.c", "private.c", "old.c", "raw.c", "cm.c"}
REFUSED = {"ibv_reg_dmabuf_mr", "ibv_resolve_eth_l2_from_gid"}

# Verbs that are given no object, and so need not ask whose it is (src/verbs/real.c).
NOBODYS = {"ibv_dofork_range", "ibv_dontfork_range", "ibv_event_type_str", "ibv_fork_init",
           "ibv_get_sysfs_path", "ibv_is_fork_initialized", "ibv_node_type_str",
           "ibv_port_state_str", "ibv_rate_to_mbps", "ibv_rate_to_mult", "ibv_read_sysfs_file",
           "ibv_wc_status_str", "mbps_to_ibv_rate", "mult_to_ibv_rate"}


def exported(library):
    text = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                          check=True).stdout
    names = (line.split()[-1].replace("@@", "@") for line in text.splitlines())
    return {n for n in names if "@" in n}


def files_of_symbols():
    """Where each exported function is defined, by name; those of old.c by name and version."""
    found = {}
    for path in sorted((ROOT / "src/verbs").glob("*.c")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"VB_VERBS_EXPORT[^;{(]*?\b(\w+)\(", text):
            found[name] = path.name
        for name in re.findall(r"^(?:REFUSED|EMPTY)\((\w+)\)", text, re.M):
            found[name] = path.name
        for name in re.findall(r"^OLD\(\w+, (\w+)\);", text, re.M):
            found[f"{name}@IBVERBS_1.0"] = path.name
    return found


def defaults(library):
    """Names of the symbols that programs are linked to today."""
    text = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                          check=True).stdout
    return {line.split()[-1] for line in text.splitlines() if "@@" in line}


def prove(options, symbols, default):
    """What the programs show of each symbol with its version: its state, and by which program."""
    proved = {}
    launch = [options.build / "verbena", "run"]
    versions = {symbol.split("@")[0]: symbol.replace("@@", "@") for symbol in default}
    with tempfile.TemporaryDirectory(prefix="verbena-calls-") as folder:
        wrapped = calls.Calls(versions.keys(), folder)
        for number, words in enumerate(PROGRAMS + TOOLS):
            address = ADDRESS.format(number + 1)
            where = ["--address", address] if "{a}" in words else []
            program = [words[0]] if words in TOOLS else [options.build / f"tests/verbs_{words[0]}"]
            program += [word.format(a=address) for word in words[1:]]
            done, seen = wrapped.run([*launch, *where, "--", *program], LIMIT_S)
            if done.returncode:
                raise judge.Failure(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
            for name, state in seen.items():
                before = proved.get(versions[name])
                if before is None or (state == "works" and before[0] != "works"):
                    proved[versions[name]] = (state, words[0])
    old = {s for s in symbols if s.endswith("@IBVERBS_1.0") and s not in versions.values()}
    asked = sorted(s for s in symbols if s in old or s.split("@")[0] in NEWER or
                   files_of_symbols().get(s.split("@")[0]) == "private.c")
    text = subprocess.run([*launch, "--", options.build / "tests/verbs_refused", "probe", *asked],
                          capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    for symbol, state in (line.split(" ", 1) for line in text.splitlines()):
        if state in ("EOPNOTSUPP", "works"):
            proved[symbol] = (state, "refused")
    return proved


def table(symbols, proved):
    lines = ["| symbol | version | state | proved by |", "|---|---|---|---|"]
    for symbol in sorted(symbols):
        name, version = symbol.split("@")
        state, program = proved.get(symbol, ("not proved", ""))
        lines.append(f"| `{name}` | {version} | {state} | {program and f'`{program}`'} |")
    return "\n".join(lines)


def inline_verbs():
    """Slots of the contexts' tables that are refused, which symbols do not show."""
    text = (ROOT / "src/verbs/refuse.c").read_text(encoding="utf-8")
    return set(re.findall(r'(?:no|nothing)\("(ibv_\w+)"\)', text))


def check_dispatch():
    """Every verb that works looks whose object it has been given: ours or a real device's."""
    header, source = (set(re.findall(pattern, (ROOT / "src/verbs" / name).read_text("utf-8")))
                      for name, pattern in (("ours.h", r"VB_OURS\((\w+)\)"),
                                            ("real.c", r"\b(_?ibv_\w+)[,(]")))
    works = {name for name, file in files_of_symbols().items() if file not in APART and
             "@" not in name} - REFUSED
    absent = sorted(works - NOBODYS - (header & source))
    if absent:
        raise judge.Failure(f"src/verbs/real.c and ours.h do not know these verbs: {absent}")


def systems(name):
    """The system's own library."""
    path = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True,
                          check=False).stdout.strip()
    if not pathlib.Path(path).is_absolute():
        raise judge.Skip(f"missing: {name}")
    return path


def nodes(library):
    """Version nodes that a library defines."""
    text = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                          check=True).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines() if line.split()[1] == "A"}


def check_driver(options, name, offered, document):
    """A vendor's library: name, symbols and versions are the system's; what it offers is said."""
    library = options.build / f"lib/verbena/{name}.so.1"
    head = subprocess.run(["readelf", "-d", library], capture_output=True, text=True,
                          check=True).stdout
    if f"soname: [{name}.so.1]" not in head or "PATH)" in head:
        raise judge.Failure(f"{name} has another SONAME, or a path of its own")
    ours = exported(library)
    unsaid = sorted(n for n in offered if f"`{n}`" not in document)
    if unsaid:
        raise judge.Failure(f"docs/verbs.md does not say that {name} offers {unsaid}")
    system = systems(f"{name}.so.1")
    different = sorted((exported(system) ^ ours) | (nodes(system) ^ nodes(library)))
    if different:
        raise judge.Failure(f"{name} and the system's differ: {different}")
    return len(ours)


def check_drivers(options, document):
    text = (ROOT / "src/mlx5/direct.c").read_text(encoding="utf-8")
    offered = set(re.findall(r"VB_RAW_EXPORT[^;{(]*?\b(mlx5dv_\w+)\(", text)) | {"mlx5dv_init_obj"}
    for name, offers in (("libmlx5", offered), ("libefa", set())):
        print(f"{check_driver(options, name, offers, document)} symbols of {name}")


def hold_to(options, marks, wanted):
    """The document's table between the marks is the wanted one, or becomes it."""
    head, rest = DOCUMENT.read_text(encoding="utf-8").split(marks[0])
    said, tail = rest.split(marks[1])
    if options.write:
        DOCUMENT.write_text(f"{head}{marks[0]}{wanted}{marks[1]}{tail}", encoding="utf-8")
    elif said != wanted:
        different = sorted(set(wanted.splitlines()) ^ set(said.splitlines()))
        raise judge.Failure("docs/verbs.md is out of date (symbols_test.py --write): "
                              + "; ".join(different[:5]))


def check_connections(options, proved):
    """librdmacm: all that the system's has, of the same versions, and newer ones."""
    library = options.build / "lib/verbena/librdmacm.so.1"
    head = subprocess.run(["readelf", "-d", library], capture_output=True, text=True,
                          check=True).stdout
    if "soname: [librdmacm.so.1]" not in head or "PATH)" in head:
        raise judge.Failure("librdmacm has another SONAME, or a path of its own")
    symbols = exported(library)
    hold_to(options, (CM_BEGIN, CM_END), f"\n{table(symbols, proved)}\n")
    system = systems("librdmacm.so.1")
    absent = sorted((exported(system) - symbols) | (nodes(system) - nodes(library)))
    if absent:
        raise judge.Failure(f"the system's librdmacm has more: {absent}")
    print(f"{len(symbols)} symbols of librdmacm as docs/verbs.md says")


def check(options):
    judge.require(tools=("nm", "readelf", "gcc", "ibv_devinfo"))
    options.build = options.build.resolve()
    libraries = [options.build / f"lib/verbena/{name}.so.1" for name in ("libibverbs", "librdmacm")]
    symbols = exported(libraries[0])
    proved = prove(options, symbols | exported(libraries[1]),
                   defaults(libraries[0]) | defaults(libraries[1]))
    hold_to(options, (BEGIN, END), f"\n{table(symbols, proved)}\n")
    check_connections(options, proved)
    if options.write:
        return
    document = DOCUMENT.read_text(encoding="utf-8")
    unsaid = [v for v in inline_verbs() if f"`{v}`" not in document]
    if unsaid:
        raise judge.Failure(f"docs/verbs.md does not say that these are refused: {unsaid}")
    check_dispatch()
    check_drivers(options, document)
    absent = sorted(exported(systems("libibverbs.so.1")) - symbols)
    if absent:
        raise judge.Failure(f"the system's libibverbs has more: {absent}")
    print(f"{len(symbols)} symbols as docs/verbs.md says")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build", help="build tree (build)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/verbs.md")
    options = parser.parse_args()
    judge.run(lambda: check(options))


if __name__ == "__main__":
    main()
