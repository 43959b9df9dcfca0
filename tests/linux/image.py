#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the guest of the Linux tests: Debian's kernel, and an initramfs with soft-RoCE and tools.

Everything comes from Debian 12 packages, downloaded and unpacked into a temporary folder; nothing
is installed. The pair is kept in $VERBENA_CACHE (default ~/.cache/verbena/guest) under a key made
of this builder and of the packages' versions. Run by hand it prints the folder that holds `kernel`
and `initrd`.

Host packages: apt, dpkg, binutils (readelf), cpio, python3. Running the guest needs
qemu-system-x86 and iproute2 as well.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILDER_FILES = (HERE / "image.py", HERE / "guest-init.sh")
KERNEL_PACKAGE = "linux-image-amd64"
PACKAGES = (
    KERNEL_PACKAGE, "busybox-static", "dash", "iproute2", "ibverbs-utils", "ibverbs-providers",
    "rdmacm-utils", "perftest",
)
IPROUTE2_PROGRAMS = ("bin/ip", "sbin/tc", "usr/bin/rdma")
PROGRAM_PACKAGES = ("ibverbs-utils", "rdmacm-utils", "perftest")
# Loaded in this order, each after what it depends on. rxe asks the crypto layer for "crc32" by
# name, a dependency that no module declares.
MODULES = (
    "crc32_generic", "crc32c_generic", "virtio_pci", "virtio_net", "9pnet_virtio", "9p",
    "rdma_rxe", "rdma_ucm", "sch_ingress", "cls_u32", "act_gact",
)
# Threads that end ask for it by name (rping's do), a dependency that no file declares.
LOADED_LATE = {"libgcc_s.so.1"}
CACHE_ENTRIES_KEPT = 3


class ImageError(Exception):
    """The image cannot be built here; the message is one line for the user."""


def cache_folder():
    if os.environ.get("VERBENA_CACHE"):
        return pathlib.Path(os.environ["VERBENA_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "verbena" / "guest"


def output_of(argv, **options):
    result = subprocess.run(argv, capture_output=True, text=True, **options)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise ImageError(f"{argv[0]} failed: {lines[-1]}")
    return result.stdout


class Archive:
    """Debian's package lists, as the host knows them or freshly fetched into our own folder."""

    def __init__(self, private_folder=None):
        self.records = {}
        self.options = ["-o", "APT::Sandbox::User=root"]
        if private_folder:
            lists = private_folder / "lists"
            cache = private_folder / "cache"
            (lists / "partial").mkdir(parents=True)
            (cache / "archives" / "partial").mkdir(parents=True)
            self.options += ["-o", f"Dir::State::lists={lists}/", "-o", f"Dir::Cache={cache}/"]
            output_of(["apt-get", *self.options, "-q", "update"])

    def fetch_records(self, names):
        """Learns the control fields of these packages' candidate versions."""
        text = output_of(["apt-cache", *self.options, "show", "--no-all-versions", *sorted(names)])
        for paragraph in text.strip().split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", paragraph, re.MULTILINE))
            self.records[fields["Package"]] = fields

    def closure(self):
        """Our packages and the libraries they depend on: {name: version}."""
        versions = {}
        wanted = set(PACKAGES)
        self.fetch_records(wanted)
        while wanted:
            missing = wanted - set(self.records)
            if missing:
                raise ImageError(f"apt knows no package {' '.join(sorted(missing))}")
            versions.update((name, self.records[name]["Version"]) for name in wanted)
            wanted = self.needed_by(wanted) - set(versions)
        return versions

    def needed_by(self, users):
        """The libraries and kernels among what the users depend on, first alternatives only."""
        names = set()
        for user in users:
            for clause in self.records[user].get("Depends", "").split(","):
                first_choice = re.match(r"\s*([a-z0-9.+-]+)", clause)
                if first_choice:
                    names.add(first_choice.group(1))
        if names - set(self.records):
            self.fetch_records(names - set(self.records))
        return {
            name for name in names & set(self.records)
            if self.records[name]["Section"].endswith("libs") or name.startswith("linux-image-")
        }

    def download(self, versions, folder):
        folder.mkdir()
        names = [f"{name}={version}" for name, version in sorted(versions.items())]
        output_of(["apt-get", *self.options, "-q", "download", *names], cwd=folder)


def unpack(debs, folder):
    """Unpacks each package into a folder of its own name; returns {name: folder}."""
    trees = {}
    for deb in sorted(debs.glob("*.deb")):
        tree = folder / deb.name.split("_")[0]
        tree.mkdir(parents=True)
        output_of(["dpkg-deb", "-x", str(deb), str(tree)])
        trees[tree.name] = tree
    return trees


def copy_modules(kernel_tree, root):
    """Copies the modules with their dependencies; writes the insmod order beside them."""
    modules = kernel_tree.glob("lib/modules/*/kernel/**/*.ko")
    found = {path.stem.replace("-", "_"): path for path in modules}
    builtin = next(kernel_tree.glob("lib/modules/*/modules.builtin")).read_text()
    built_in = {pathlib.Path(line).stem.replace("-", "_") for line in builtin.split()}
    order = []

    def add(name):
        if name in order or name in built_in:
            return
        if name not in found:
            raise ImageError(f"Debian's kernel has no module {name}")
        depends = re.search(rb"\0depends=([^\0]*)\0", found[name].read_bytes())
        for dependency in filter(None, depends.group(1).decode().split(",") if depends else []):
            add(dependency.replace("-", "_"))
        order.append(name)

    for module in MODULES:
        add(module)
    target = root / "lib/modules"
    target.mkdir(parents=True)
    for name in order:
        shutil.copy(found[name], target / f"{name}.ko")
    (target / "order").write_text("".join(f"{name}.ko\n" for name in order))


def needed_libraries(path):
    """Sonames an ELF file asks for, its program interpreter included; nothing for other files."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return set()
    text = output_of(["readelf", "--wide", "--dynamic", "--program-headers", str(path)])
    sonames = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
    sonames.update(pathlib.Path(name).name for name in re.findall(r"interpreter: (.*)\]", text))
    return sonames


def copy_programs(trees, root):
    """Copies the tools and soft-RoCE's provider; returns the copies."""
    copies = []

    def copy(source, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.resolve(), target)
        copies.append(target)

    for relative in IPROUTE2_PROGRAMS:
        source = trees["iproute2"] / relative
        copy(source, root / "usr/bin" / source.name)
    for package in PROGRAM_PACKAGES:
        for source in sorted((trees[package] / "usr/bin").iterdir()):
            copy(source, root / "usr/bin" / source.name)
    # As /bin/sh: busybox's own shell would prefer its applets, such as `ip`, to the programs.
    copy(trees["dash"] / "bin/dash", root / "usr/bin/sh")
    providers = trees["ibverbs-providers"]
    for source in providers.glob("usr/lib/*/libibverbs/librxe-*.so"):
        copy(source, root / source.relative_to(providers))
    copy(providers / "etc/libibverbs.d/rxe.driver", root / "etc/libibverbs.d/rxe.driver")
    return copies


def copy_libraries(trees, root, users):
    """Copies the shared libraries that the files in `users` need, and those these need."""
    found = {}
    for tree in trees.values():
        for pattern in ("lib/**/*.so*", "lib64/*.so*", "usr/lib/**/*.so*"):
            for path in tree.glob(pattern):
                found.setdefault(path.name, (tree, path))
    pending = list(users)
    done = set()
    while pending:
        user = pending.pop()
        for soname in (needed_libraries(user) | LOADED_LATE) - done:
            if soname not in found:
                raise ImageError(f"{user.name} needs {soname}, which no downloaded package holds")
            tree, path = found[soname]
            folder = "lib64" if soname.startswith("ld-linux") else "usr/lib/x86_64-linux-gnu"
            target = root / folder / soname
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(inside(tree, path), target)
            done.add(soname)
            pending.append(target)


def inside(tree, path):
    """Follows a symbolic link that may be absolute, as seen from inside the package."""
    while path.is_symlink():
        link = os.readlink(path)
        path = tree / link.lstrip("/") if link.startswith("/") else path.parent / link
    return path


def copy_busybox(trees, root):
    busybox = trees["busybox-static"] / "bin/busybox"
    (root / "bin").mkdir()
    (root / "bin/sh").symlink_to("../usr/bin/sh")
    shutil.copy(busybox, root / "bin/busybox")
    taken = {path.name for path in (root / "usr/bin").iterdir()}
    for applet in output_of([str(busybox), "--list"]).split():
        if applet not in taken and applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


def pack(root, target):
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    with open(target, "wb") as file:
        subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0", "--reproducible"], cwd=root,
            input="\n".join(names).encode(), stdout=file, check=True)


def build(archive, versions, work, target):
    archive.download(versions, work / "debs")
    trees = unpack(work / "debs", work / "trees")
    kernel = next((tree for name, tree in trees.items() if list(tree.glob("boot/vmlinuz-*"))), None)
    if kernel is None:
        raise ImageError(f"{KERNEL_PACKAGE} leads to no kernel")
    root = work / "root"
    for folder in ("dev", "proc", "sys", "job", "run", "tmp", "etc"):
        (root / folder).mkdir(parents=True)
    copy_modules(kernel, root)
    copy_libraries(trees, root, copy_programs(trees, root))
    copy_busybox(trees, root)
    shutil.copy(HERE / "guest-init.sh", root / "init")
    (root / "init").chmod(0o755)
    target.mkdir()
    shutil.copy(next(kernel.glob("boot/vmlinuz-*")), target / "kernel")
    pack(root, target / "initrd")
    (target / "packages").write_text("".join(f"{n} {v}\n" for n, v in sorted(versions.items())))


def digest(text):
    return hashlib.sha256(text).hexdigest()[:12]


def is_complete(entry):
    return (entry / "initrd").is_file()


def prune(cache, keep):
    entries = [path for path in cache.iterdir() if is_complete(path) and not path.is_symlink()]
    entries.sort(key=lambda path: (path == keep, path.stat().st_mtime), reverse=True)
    for path in entries[CACHE_ENTRIES_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
    for path in cache.iterdir():
        if path.is_symlink() and not path.exists():
            path.unlink(missing_ok=True)


class Cache:
    """The folder of finished images, each under its key."""

    def __init__(self, say):
        self.say = say
        self.folder = cache_folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.builder = digest(b"".join(path.read_bytes() for path in BUILDER_FILES))

    def entry(self, versions):
        packages = digest(repr(sorted(versions.items())).encode())
        return self.folder / f"{self.builder}-{packages}"

    def obtain(self, archive, versions, work):
        """Returns the entry for these versions; builds it first if it is not there."""
        entry = self.entry(versions)
        if is_complete(entry):
            return entry
        self.say(f"building the guest image {entry} (once per package version)")
        work.mkdir()
        build(archive, versions, work, work / "entry")
        try:
            os.rename(work / "entry", entry)
        except OSError:
            # Another builder was faster; its entry has the same key, so the same content.
            if not is_complete(entry):
                raise
        prune(self.folder, entry)
        return entry

    def obtain_fresh(self, work):
        """The same with package lists of our own; offline, any entry of this builder will do."""
        try:
            archive = Archive(work / "apt")
            return self.obtain(archive, archive.closure(), work / "fresh")
        except ImageError:
            entries = [path for path in self.folder.glob(f"{self.builder}-*") if is_complete(path)]
            if not entries:
                raise
            return max(entries, key=lambda path: path.stat().st_mtime)


def ensure(say=lambda line: print(line, file=sys.stderr)):
    """Returns the folder with `kernel` and `initrd`, which it builds when needed."""
    tools = ("apt-get", "apt-cache", "dpkg-deb", "readelf", "cpio")
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        raise ImageError(f"not installed: {' '.join(missing)}")
    cache = Cache(say)
    versions = None
    with tempfile.TemporaryDirectory(dir=cache.folder, prefix="build-") as name:
        work = pathlib.Path(name)
        try:
            archive = Archive()
            versions = archive.closure()
            return cache.obtain(archive, versions, work / "host")
        except ImageError as error:
            say(f"the host's package lists do not serve ({error}); fetching fresh ones")
        entry = cache.obtain_fresh(work)
        if versions:
            # The lists are out of date; next time their key leads straight to this entry.
            with contextlib.suppress(FileExistsError):
                cache.entry(versions).symlink_to(entry.name)
        return entry


if __name__ == "__main__":
    try:
        print(ensure())
    except ImageError as error:
        sys.exit(f"image: {error}")
