# Makes files of every kind in the home, and changes the tree that is named. The second
# argument says whether set-user-ID and set-group-ID bits are possible: "setid" or "-".
import ctypes, os, random, socket, struct, subprocess, sys

def attempt(f, *args):  # not every sandbox has the right
    try:
        f(*args)
    except OSError as error:
        print(getattr(f, "__name__", f), args[:1], error)

home = os.path.join(os.environ["HOME"], "menagerie-%d" % os.getuid())
os.mkdir(home)
os.chdir(home)
os.umask(0)
random.seed(1)
setid = 0o6000 if sys.argv[2] == "setid" else 0
for name, mode in (("plain", 0o644), ("closed", 0), ("setuid", setid | 0o755), ("sticky", 0o1644)):
    with open(name, "w") as f: f.write(name * 100)
    os.chmod(name, mode)
with open("random", "wb") as f: f.write(random.randbytes(3 << 20))
with open("sparse", "wb") as f:
    f.truncate(20 << 30)
    for at in (5 << 30, 10 << 30):
        f.seek(at)
        f.write(b"island")
with open("tail", "wb") as f:
    f.write(b"head")
    f.truncate(1 << 20)
open("empty", "w").close()
for name in (b"\xff\xfe not utf-8", b"n" * 255, b"line\nfeed", b" ", b"-rf", "\u00fc".encode()):
    with open(name, "wb") as f: f.write(name)
os.symlink("/etc/shadow", "link")
os.symlink("../" * 50 + "etc/shadow", "away")
os.symlink("t" * 4000, "long")
os.symlink("dangling", b"\xfflink")
os.link("random", "second")
os.mkdir("dir")
os.link("random", "dir/third")
os.link("link", "linked-link", follow_symlinks=False)
attempt(os.mkfifo, "fifo", 0o640)
if os.path.exists("fifo"): os.link("fifo", "linked-fifo")
try:
    socket.socket(socket.AF_UNIX).bind("socket")
except OSError as error: print("socket", error)
gone = open("gone", "w")
gone.write("x" * 1000)
os.unlink("gone")
attempt(os.mkdir, "locked")
with open("locked/in", "w") as f: f.write("in")
os.chmod("locked/in", 0)
os.chmod("locked", 0)
os.mkdir("shared")
os.chmod("shared", setid & 0o2000 | 0o775)
os.mkdir("drop", 0o1777)
deep = home
for i in range(60):
    os.mkdir("d" * 100)
    os.chdir("d" * 100)
with open("bottom", "w") as f: f.write("bottom")
os.chdir(home)
for i in range(500):
    with open("dir/%d" % i, "w") as f: f.write(str(i))
for name in ("plain", "dir"):
    attempt(os.setxattr, name, "user.note", b"value \xff\x00 of " + name.encode())
    attempt(os.setxattr, name, "user.empty", b"")
    attempt(os.setxattr, name, "user.overlay.origin", b"mine")
acl = struct.pack("<IHHIHHIHHIHHIHHI", 2, 1, 6, 0xffffffff, 2, 4, 1000, 4, 4, 0xffffffff, 16, 4, 0xffffffff, 32, 0, 0xffffffff)
attempt(os.setxattr, "plain", "system.posix_acl_access", acl)
attempt(os.chown, "empty", 12345, 54321)
attempt(os.lchown, "away", 1, 2)
attempt(os.chown, "drop", 7, 8)
# cap_net_bind_service, permitted
attempt(os.setxattr, "tail", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))
attempt(os.utime, "plain", None, ns=(1, 2)) if False else os.utime("plain", ns=(1, 2))
os.utime("dir", ns=(10**18, 10**18 + 1))
os.utime("link", ns=(5, 6), follow_symlinks=False)

tree = sys.argv[1]
if tree != "-":
    os.chdir(tree)
    with open("lib/package/code.py", "a") as f: f.write("changed")
    os.remove("lib/package/old.py")
    os.chmod("lib/other.py", 0o600)
    os.makedirs("lib/new/package")
    with open("lib/new/package/code.py", "w") as f: f.write("new")
    # replaced as a whole: an opaque directory
    subprocess.check_call("mv lib/package/code.py code.py && rm -r lib/package && mkdir lib/package && mv code.py lib/package/again.py", shell=True)
    if os.getuid() == 0 and os.access("/usr/share", os.W_OK) and len(open("/proc/self/uid_map").read().split()) and open("/proc/self/uid_map").read().split()[2] != "1":
        os.chdir("/usr")
        for name in ("bin/yes", "bin/factor"): attempt(os.remove, name)
        with open("lib/addition", "w") as f: f.write("addition")
        os.chown("lib/addition", 1000, 1000)
        with open("bin/env", "ab") as f: f.write(b"changed")
        with open("local/bin/tool", "w") as f: f.write("#!/bin/sh\n")
        os.chmod("local/bin/tool", 0o4755)
        with open("/var/lib/dpkg/status", "a") as f: f.write("\nPackage: addition\n")
        os.remove("/etc/shells")
        with open("/etc/addition", "w") as f: f.write("addition")
        with open("/opt/addition", "w") as f: f.write("addition")
        with open("/etc/passwd", "a") as f: f.write("more:x:2000:2000::/:/bin/sh\n")
