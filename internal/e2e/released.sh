#!/bin/sh
# Writes the state directory of a release for TestReleasedState, as root, at the tag of the release:
#
#   internal/e2e/released.sh v0.2.0
#
# The saved files of a sandbox have copies of the machine's /etc, and name the caller's home. So the test runs
# where both say nothing about the machine.
set -eu
version=$1
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
mkdir "$dir/etc"
CGO_ENABLED=0 go test -c -o "$dir/e2e.test" .
echo 'root:x:0:0:root:/root:/bin/bash' >"$dir/etc/passwd"
echo 'root:x:0:' >"$dir/etc/group"
echo '127.0.0.1 localhost' >"$dir/etc/hosts"
unshare --mount sh -euc '
mount --bind "$0/etc" /etc
mount -t tmpfs none /root
mount -t tmpfs none /var/lib/dpkg
env -i HOME=/root PATH=/usr/bin:/bin E2BCTL_PYTHON=/usr/bin/python3 UPDATE_STATE="$1" "$0/e2e.test" -test.run "^TestReleasedState$"
' "$dir" "$version"
