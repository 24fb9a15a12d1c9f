# Prints everything about each file in the home and in the tree that is named, or in the
# directories that are named after it.
import hashlib, os, stat, sys

os.umask(0o022)
home = os.environ["HOME"]
root = os.path.dirname(os.path.dirname(home))
places = [home, "/etc", "/opt", "/code", "/srv", "/usr/local", "/var/lib/dpkg", "/root"] if root == "/" else [home]
if sys.argv[1] != "-": places.append(sys.argv[1])
if len(sys.argv) > 2: places = sys.argv[2:]
anew = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
links, lines = {}, []

def forced(path, f):
    # A mode that locks out the owner is another one for a moment.
    try:
        return f()
    except PermissionError:
        before = os.lstat(path)
        try:
            os.chmod(path, 0o700)
        except PermissionError:
            return []  # not the sandbox's
        try:
            return f()
        finally:
            os.chmod(path, stat.S_IMODE(before.st_mode))

def describe(directory, name, shown):
    s = os.lstat(name)
    if stat.S_ISSOCK(s.st_mode): return  # not saved
    what = "%s %o %d:%d %d" % (shown, s.st_mode, s.st_uid - os.getuid() if root != "/" else s.st_uid, s.st_gid - os.getgid() if root != "/" else s.st_gid, 0 if stat.S_ISDIR(s.st_mode) and s.st_dev != os.lstat(".").st_dev else s.st_mtime_ns)
    if not stat.S_ISDIR(s.st_mode):
        what += " n%d i%s" % (s.st_nlink, links.setdefault(s.st_ino, shown) if s.st_nlink > 1 else "")
    if stat.S_ISLNK(s.st_mode):
        what += " -> " + os.readlink(name)
    if stat.S_ISREG(s.st_mode):
        def read():
            digest = hashlib.sha256()
            with open(name, "rb") as f:
                at = 0
                while at < s.st_size:
                    try:
                        begin = os.lseek(f.fileno(), at, os.SEEK_DATA)
                    except OSError:
                        break
                    at = min(os.lseek(f.fileno(), begin, os.SEEK_HOLE), s.st_size)
                    f.seek(begin)
                    digest.update(b"%d " % begin + f.read(at - begin) if s.st_size > 1 << 30 else f.read(at - begin))
            return digest.hexdigest()[:16]
        what += " %d %s" % (s.st_size, forced(name, read))
        if s.st_size > 1 << 30 and s.st_blocks > 1 << 16: what += " not sparse"
    if stat.S_ISREG(s.st_mode) or stat.S_ISDIR(s.st_mode):
        try:
            what += " " + " ".join("%s=%s" % (a, os.getxattr(name, a).hex()) for a in sorted(os.listxattr(name)) if a != "security.selinux")
        except OSError:
            pass
    if shown not in anew: lines.append(what)
    if stat.S_ISDIR(s.st_mode):
        names = forced(name, lambda: os.listdir(name))
        if not names: return
        def inside():
            os.chdir(name)
            for n in sorted(names): describe(None, n, shown + "/" + n)
            os.chdir("..")
        if os.access(name, os.X_OK): inside()
        else:
            mode = stat.S_IMODE(s.st_mode)
            os.chmod(name, 0o700)
            try: inside()
            finally: os.chmod(name, mode)

sys.setrecursionlimit(10000)
for place in places:
    if not os.path.isdir(place): continue
    os.chdir(place)
    for n in sorted(os.listdir(".")):
        describe(None, n, (place if root == "/" or place != home else "home") + "/" + n)
for place in ("/usr", "/usr/bin", "/usr/lib") if root == "/" and len(sys.argv) < 3 else ():
    os.chdir(place)
    for n in sorted(os.listdir(".")):
        if not os.path.isdir(n): describe(None, n, place + "/" + n)
sys.stdout.buffer.write(b"\n".join(repr(l.encode("utf-8", "surrogateescape")).encode() for l in lines) + b"\n")
