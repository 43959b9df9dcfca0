# SPDX-License-Identifier: Apache-2.0
"""Many mutants in one build, chosen at run time.

Each mutant of a function is a twin of it, with another name, and the function begins with
`if (vb_mutant_is(N)) return twin(…);`. Only files with mutants, and those which include such headers,
are compiled, by the commands of a build tree that is up to date; they are linked before the
libraries of that tree, whose own versions are then not taken.
"""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from source import functions_of, parameters_of

HEADER = """\
extern int vb_mutant;
extern unsigned char *vb_mutant_seen;
static inline int vb_mutant_is(int n)
{
    vb_mutant_seen[n] = 1;
    return __builtin_expect(vb_mutant == n, 0);
}
"""
# VB_MUTANT chooses one; VB_MUTANT_SEEN names a file that tells which mutants' functions were called.
CHOOSER = """\
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM = 65536 };
static unsigned char nowhere[ROOM];
int vb_mutant;
unsigned char *vb_mutant_seen = nowhere;

__attribute__((constructor(101))) static void choose(void)
{
    const char *number = getenv("VB_MUTANT"), *path = getenv("VB_MUTANT_SEEN");
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;

    vb_mutant = number ? atoi(number) : 0;
    if (fd < 0)
        return;
    void *seen = ftruncate(fd, ROOM) == 0
                     ? mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    if (seen != MAP_FAILED)
        vb_mutant_seen = seen;
    close(fd);
}
"""
LAYERS = ("base", "wire", "nic", "cm", "chain", "cost")  # the pure ones, which mutants change
EXTRA = ["-O1", "-g0", "-Wno-error", "-Werror=return-type", "-fdiagnostics-color=never"]


class BuildError(Exception):
    """The unchanged sources, or a mutant that has to compile, do not."""


@dataclass
class Mutant:
    """`bodies`: (path, function key) -> new body. `files`: path -> text, if it needs its own build."""
    name: str
    layer: str
    bodies: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    number: int = 0


def twin_head(head, name, twin):
    head = re.sub(r"\b(static|inline|[A-Z_]*INLINE)\b\s*", "", head)
    return "static __attribute__((unused)) " + re.sub(rf"\b{name}\(", f"{twin}(", head, count=1)


def emit(path, text, mutants):
    """The text with its mutants, and for each line of it the mutant it belongs to (or 0)."""
    out, owner, at = [], [], 0

    def put(piece, number=0):
        lines = piece.splitlines(keepends=True)
        out.extend(lines)
        owner.extend([number] * len(lines))

    for f in functions_of(path, text):
        mine = [(m.number, m.bodies[path, f.key]) for m in mutants if (path, f.key) in m.bodies]
        if not mine:
            continue
        put(text[at:f.start])
        arguments = ", ".join(parameters_of(f.head))
        heads = {n: twin_head(f.head, f.name, f"{f.name}_mutant_{n}") for n, _ in mine}
        for n, _ in mine:
            put(heads[n].rstrip() + ";\n", n)
        put(f.head + "{\n")
        for n, _ in mine:
            put(f"    if (vb_mutant_is({n})) return {f.name}_mutant_{n}({arguments});\n", n)
        put(f.body[2:])
        for n, body in mine:
            put(heads[n] + body, n)
        at = f.end
    put(text[at:])
    return "".join(out), owner


class Tree:
    """A build tree that is up to date: its compile and link commands, and what depends on what."""

    def __init__(self, root, build):
        self.root, self.build = Path(root).resolve(), Path(build).resolve()
        entries = json.loads((self.build / "compile_commands.json").read_text(encoding="utf-8"))
        self.commands, self.sources = {}, {}
        for entry in entries:
            command = shlex.split(entry["command"])
            obj = command[command.index("-o") + 1]
            self.commands[obj] = command
            self.sources[obj] = os.path.relpath(entry["file"], self.root)
        self.users = {}  # path in the tree -> objects compiled from it
        obj = None
        for line in self.ninja("-t", "deps").splitlines():
            if line and not line.startswith(" "):
                obj = line.split(": #deps")[0]
            elif line:
                path = os.path.relpath(os.path.join(self.build, line.strip()), self.root)
                self.users.setdefault(path, []).append(obj)
        self.links = {}

    def ninja(self, *arguments):
        done = subprocess.run(["ninja", "-C", str(self.build), *arguments], text=True, check=False,
                              capture_output=True)
        if done.returncode:
            raise BuildError(done.stdout[-4000:] + done.stderr[-4000:])
        return re.sub(r"^ninja: Entering directory.*\n", "", done.stdout)

    def link_command(self, target):
        if target not in self.links:
            line = self.ninja("-t", "commands", target).strip().splitlines()[-1]
            self.links[target] = shlex.split(line.removeprefix(": && ").removesuffix(" && :"))
        return self.links[target]


def run(command, cwd):
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True, check=False,
                          env=dict(os.environ, LC_ALL="C"))


class Overlay:
    """A build with mutants over a tree, in a directory of its own."""

    def __init__(self, tree, directory, jobs, programs):
        self.tree, self.dir, self.jobs, self.programs = tree, Path(directory), jobs, programs
        self.libraries = {}
        self.objects = {}  # object of the tree -> the one that takes its place
        self.dropped = set()
        self.dir.mkdir(parents=True, exist_ok=True)
        (self.dir / "vb_mutant.h").write_text(HEADER, encoding="utf-8")
        (self.dir / "vb_mutant.c").write_text(CHOOSER, encoding="utf-8")

    def build(self, mutants):
        """Compiles what differs from the last time; mutants that the compiler refuses are in
        `dropped`."""
        files = {}
        for m in mutants:
            for path in {p for p, _ in m.bodies} | set(m.files):
                files.setdefault(path, []).append(m)
        owners, todo = {}, set()
        while True:
            for path in files:
                if self.write(path, [m for m in files[path] if m.number not in self.dropped], owners):
                    todo.update(filter(self.matters, self.tree.users.get(path, ())))
            if not todo:
                break
            todo = {o for o, errors in self.compile_all(sorted(todo)) if self.blame(o, errors, owners)}
        made = run(["cc", "-fPIC", "-O1", "-c", "vb_mutant.c", "-o", "vb_mutant.o"], self.dir)
        if made.returncode:
            raise BuildError(made.stderr)
        self.merge()

    def matters(self, obj):
        """Whether an object that includes a mutated header is judged, or part of a judge."""
        source = Path(self.tree.sources[obj])
        return source.parts[:1] == ("src",) and source.parts[1] in LAYERS or source.parts[0] == "sim" or (
            source.parts[:2] == ("tests", "unit") and
            (not source.name.startswith("test_") or source.stem in self.programs))

    def write(self, path, mutants, owners):
        """Writes a file with its mutants; whether its text is another than before."""
        place = self.dir / path
        whole = [m.files[path] for m in mutants if path in m.files]
        text = (self.tree.root / path).read_text(encoding="utf-8")
        text, owners[path] = (whole[0], []) if whole else emit(path, text, mutants)
        if place.exists() and place.read_text(encoding="utf-8") == text:
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return True

    def compile_all(self, objects):
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(zip(objects, pool.map(self.compile, objects)))

    def compile(self, obj):
        """Compiles one object; the compiler's errors, or nothing."""
        command, source = list(self.tree.commands[obj]), self.tree.sources[obj]
        out = self.dir / "objects" / obj
        out.parent.mkdir(parents=True, exist_ok=True)
        command[command.index("-o") + 1] = str(out)
        if (self.dir / source).exists():
            command[-1] = str(self.dir / source)
        at = next(i for i, word in enumerate(command) if word.startswith("-D"))
        command[at:at] = ["-iquote", str(self.dir / "src"), "-iquote", str(self.dir)]
        command[-4:-4] = EXTRA + ["-include", str(self.dir / "vb_mutant.h")]
        done = run([w for w in command if w != "-Werror"], self.tree.build)
        self.objects[obj] = str(out)
        return done.stderr if done.returncode else ""

    def blame(self, obj, errors, owners):
        """Drops the mutants at the errors' positions; whether there were errors."""
        if not errors:
            return False
        blamed = set()
        for path, line in re.findall(r"^(\S+?):(\d+):\d+: error:", errors, re.M):
            owner = owners.get(os.path.relpath(os.path.join(self.tree.build, path), self.dir), [])
            blamed.add(owner[int(line) - 1] if int(line) <= len(owner) else 0)
        if not blamed - {0}:
            raise BuildError(f"{obj}: {errors[:4000]}")
        self.dropped |= blamed - {0}
        return True

    def merge(self):
        """One object for each library, so that links are short."""
        self.libraries = {}
        for obj, mine in self.objects.items():
            library = re.search(r"CMakeFiles/(libverbena|verbena_sim|unit_kit)\.dir/", obj)
            if library:
                self.libraries.setdefault(library.group(1), []).append(mine)
        for library, objects in self.libraries.items():
            out = self.dir / f"{library}.o"
            done = run(["ld", "-r", "-o", str(out), *sorted(objects)], self.dir)
            if done.returncode:
                raise BuildError(done.stderr)

    def link(self, target):
        """Links a program of the tree with the mutants; its path."""
        out = self.dir / "programs" / target
        out.parent.mkdir(parents=True, exist_ok=True)
        command = [self.objects.get(w, w) for w in self.tree.link_command(target)]
        command[command.index("-o") + 1] = str(out)
        at = next(i for i, word in enumerate(command) if word.endswith(".a"))
        mine = [str(self.dir / f"{name}.o") for name in self.libraries
                if name != "unit_kit" or target != "verbena"]
        command[at:at] = mine + [str(self.dir / "vb_mutant.o")]
        if target != "verbena":
            command.append("-fsanitize=leak")  # at no cost, and a lost free() is seen
        done = run(command, self.tree.build)
        if done.returncode:
            raise BuildError(done.stderr[-4000:])
        return str(out)
