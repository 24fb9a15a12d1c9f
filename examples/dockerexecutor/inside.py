import json
import os
import pwd
import urllib.request


def limit(*files):
    """The limit that a control group of either version says."""
    for file in files:
        if os.path.exists("/sys/fs/cgroup/" + file):
            with open("/sys/fs/cgroup/" + file) as text:
                return text.read().split()[0]
    return "not known"


def network():
    """Where packets go, and a proxy that takes requests: below the heading there is a line a route."""
    with open("/proc/net/route") as text:
        routes = text.read().splitlines()[1:]
    return "on" if routes or urllib.request.getproxies() else "off"


with open("/proc/self/status") as text:
    status = dict(line.split(maxsplit=1) for line in text if len(line.split()) > 1)

print(json.dumps({
    "mem_limit": limit("memory.max", "memory/memory.limit_in_bytes"),
    "cpu_quota": limit("cpu.max", "cpu/cpu.cfs_quota_us"),
    "pids_limit": limit("pids.max", "pids/pids.max"),
    "cap_drop": "ALL" if int(status["CapBnd:"], 16) == 0 else "not all",
    "security_opt": "no-new-privileges" if int(status["NoNewPrivs:"]) else "none",
    "user": pwd.getpwuid(os.getuid()).pw_name,
    "network": network(),
}))
