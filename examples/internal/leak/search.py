import base64, os, re, shlex, sys

secret = sys.stdin.buffer.read()
forms = [secret, secret[::-1], secret.hex().encode()]
for shift in range(3):
    # What the bytes before and after it do not touch.
    whole = base64.b64encode(bytes(shift) + secret)
    forms.append(whole[-(-shift * 4 // 3):len(whole) - 4])
pattern = re.compile(b"|".join(map(re.escape, forms)))


def look(path, what):
    try:
        with open(path, "rb") as f:
            tail = b""
            while chunk := f.read(1 << 20):
                if pattern.search(tail + chunk):
                    print(what)
                    return
                tail = chunk[-4 * len(secret):]
    except OSError:
        pass


print("looked")  # a list that is empty because nothing ran is not taken for one
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open("/proc/%s/comm" % pid) as f:
            name = f.read().strip()
    except OSError:
        continue
    look("/proc/%s/environ" % pid, "environment of " + name)
    look("/proc/%s/cmdline" % pid, "command line of " + name)

# What has not changed since the sandbox began is the template's.
with open("/proc/1/stat") as f, open("/proc/uptime") as g:
    age = float(g.read().split()[0]) - int(f.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
find = ["find", "/", "(", "-path", "/proc", "-o", "-path", "/sys", "-o", "-path", "/dev", ")", "-prune", "-o"]
find += ["-type", "f", "-newerct", "%d seconds ago" % (age + 1), "-print0"]
for path in filter(None, os.popen(shlex.join(find) + " 2>/dev/null").read().split("\0")):
    look(path, "file " + path)
