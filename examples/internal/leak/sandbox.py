# Looks for a secret wherever a user of a sandbox can look: in the environment, the
# command line and the memory of every process, and as root in every file that is
# newer than the secret. The secret is given masked, so that no process except this
# one, which skips itself, has it in its memory because of the search.
import json, os, stat

CHUNK = 4 << 20
MOST = 1 << 30  # of the files' bytes


def mappings(pid):
    """The parts of a process's memory that contain data of its own."""
    head, facts = None, {}
    with open(f"/proc/{pid}/smaps", errors="replace") as lines:
        for line in [*lines, "0-0 ---p 0 0:0 0"]:
            fields = line.split(None, 5)
            if not fields[0].endswith(":"):
                if head and wanted(head, facts):
                    yield [int(x, 16) for x in head[0].split("-")]
                head, facts = fields, {}
            elif fields[-1] == "kB":
                facts[fields[0]] = int(fields[1])


def wanted(head, facts):
    if "r" not in head[1] or facts.get("Rss:", 0) + facts.get("Swap:", 0) == 0:
        return False
    if len(head) < 6 or not head[5].startswith("/"):
        return not (len(head) == 6 and head[5].startswith("[v"))  # these belong to the kernel
    if "s" in head[1] or facts.get("Anonymous:", 0) + facts.get("Swap:", 0) > 0:
        return True
    try:
        return os.stat(head[5].rstrip("\n")).st_ctime >= SINCE
    except OSError:
        return True


def search(content):
    return any(guise in content for guise in GUISES)


def search_stream(read):
    """Searches in overlapping pieces. read returns the bytes from a position on."""
    position, kept, total = 0, b"", 0
    while piece := read(position):
        if search(kept + piece):
            return True, total
        position += len(piece)
        total += len(piece)
        kept = piece[-max(map(len, GUISES)):]
    return False, total


def memory(pid):
    total, hit = 0, False
    with open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for start, end in mappings(pid):
            def read(position):
                try:
                    mem.seek(start + position)
                    return mem.read(min(CHUNK, end - start - position))
                except (OSError, ValueError):  # unmapped in the meantime
                    REPORT["refused"].append(f"{end - start - position} bytes in the memory of {pid}")
                    return b""
            found, size = search_stream(read)
            hit, total = hit or found, total + size
    return hit, total


def processes():
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid == os.getpid():
            continue
        for kind in ("environ", "cmdline"):
            try:
                with open(f"/proc/{pid}/{kind}", "rb") as file:
                    if search(file.read()):
                        REPORT["found"].append(f"{kind} of {pid}")
            except OSError:
                REPORT["refused"].append(f"{kind} of {pid}")
        try:
            hit, total = memory(pid)
        except OSError:
            REPORT["refused"].append(f"memory of {pid}")
            continue
        if total:
            REPORT["memories"].append(pid)
            REPORT["bytes"] += total
        if hit:
            REPORT["found"].append(f"memory of {pid}")


def young(directories):
    """Files that are not older than the secret, in and below the directories."""
    while directories:
        try:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    if entry.path in ("/proc", "/sys"):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
                    status = entry.stat(follow_symlinks=False)
                    if status.st_ctime >= SINCE:
                        yield entry, status.st_mode
        except OSError as refused:
            REPORT["refused"].append(f"directory {refused.filename}")


def files():
    total = 0
    for entry, mode in young(["/"]):
        try:
            target = os.readlink(entry.path) if stat.S_ISLNK(mode) else ""
            if search(os.fsencode(entry.name)) or search(os.fsencode(target)):
                REPORT["found"].append("name " + entry.path)
            if not stat.S_ISREG(mode):
                continue
            with open(entry.path, "rb", 0) as file:
                hit, size = search_stream(lambda _: file.read(CHUNK))
        except OSError:
            REPORT["refused"].append("file " + entry.path)
            continue
        REPORT["files"] += 1
        total += size
        if hit:
            REPORT["found"].append("file " + entry.path)
        if total > MOST:
            raise SystemExit(f"the files have more than {MOST} bytes")


def run(masked, mask, since):
    global GUISES, SINCE, REPORT
    GUISES = [bytes(b ^ mask for b in bytes.fromhex(guise)) for guise in masked]
    SINCE = since
    REPORT = {"found": [], "refused": [], "memories": [], "files": 0, "bytes": 0}
    processes()
    if os.getuid() == 0:
        files()
    print(json.dumps(REPORT))
