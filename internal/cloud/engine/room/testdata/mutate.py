# Changes files at random in the directories that are named, which it makes if they are not
# there: python3 mutate.py SEED DIRECTORY...
import os, random, shutil, stat, subprocess, sys

rng = random.Random(int(sys.argv[1]))
os.umask(0)

def entries(top):
    found = []
    for path, dirs, files in os.walk(top):
        found += [os.path.join(path, n) for n in dirs + files]
    return sorted(found)

def directory(top):
    return rng.choice([top] + [p for p in entries(top) if os.path.isdir(p) and not os.path.islink(p)])

def fresh(top):
    return os.path.join(directory(top), "n%d" % rng.randrange(30))

def clear(path):
    if os.path.isdir(path) and not os.path.islink(path): shutil.rmtree(path)
    elif os.path.lexists(path): os.remove(path)

def write(path):
    clear(path)
    with open(path, "wb") as f:
        if rng.random() < 0.2:
            f.truncate(1 << 30)
            f.seek(rng.randrange(1 << 30))
        f.write(rng.randbytes(rng.randrange(3000)))

def change(top):
    path, what = fresh(top), rng.randrange(12)
    all = entries(top)
    old = rng.choice(all) if all else None
    file = bool(old) and stat.S_ISREG(os.lstat(old).st_mode)
    folder = bool(old) and stat.S_ISDIR(os.lstat(old).st_mode)
    if what < 3 or not old: write(path)
    elif what == 3: clear(old)
    elif what == 4:  # replaced by a directory
        clear(path)
        os.mkdir(path, rng.choice((0o755, 0o2770, 0o1777)))
        write(os.path.join(path, "n%d" % rng.randrange(30)))
    elif what == 5 and file:
        with open(old, "ab") as f: f.write(b"more")
    elif what == 6 and not path.startswith(old + "/") and path != old:
        clear(path)
        if os.path.lexists(old): subprocess.check_call(["mv", "-T", old, path])
    elif what == 7 and file:
        if path != old:
            clear(path)
            if os.path.exists(old) and os.lstat(old).st_nlink < 9: os.link(old, path)
    elif what == 8 and (file or folder): os.chmod(old, rng.choice((0o755, 0o700, 0o4755, 0o2711, 0o1777)))
    elif what == 9:
        clear(path)
        os.symlink(rng.choice((old, "../..", "nowhere")), path)
    elif what == 10 and file:
        os.setxattr(old, "user.note", rng.randbytes(8))
    elif what == 11 and folder:  # emptied and made again
        shutil.rmtree(old)
        os.mkdir(old, 0o755)
        os.setxattr(old, "user.overlay.opaque", b"mine")
    else:
        clear(path)
        os.mkfifo(path, 0o640)
    ids = open("/proc/self/uid_map").read().split()
    if ids[2] != "1" and rng.random() < 0.3 and os.path.lexists(path): os.lchown(path, 1000, 1000)

for top in sys.argv[2:]:
    os.makedirs(top, exist_ok=True)
    for _ in range(25): change(top)
