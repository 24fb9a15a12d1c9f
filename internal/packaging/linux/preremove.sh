#!/bin/sh
# Removes the AppArmor profile, unless this is an upgrade ("upgrade" for deb, a number above 0 for rpm).
set -e
if [ "$1" != remove ] && [ "$1" != 0 ]; then
	exit 0
fi
if [ -z "$DPKG_ROOT" ] && [ -e /etc/apparmor.d/e2bctl ]; then
	apparmor_parser --remove /etc/apparmor.d/e2bctl 2>/dev/null || true # the kernel may not have it
	rm -f /etc/apparmor.d/e2bctl
fi
