#!/bin/sh
# Loads the AppArmor profile where the parser knows its rules: Ubuntu's from 23.10 on does, and Debian 12's does not.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /sys/kernel/security/apparmor ] && command -v apparmor_parser >/dev/null &&
	apparmor_parser --skip-kernel-load --skip-cache --quiet /usr/share/e2bctl/apparmor 2>/dev/null; then
	cp /usr/share/e2bctl/apparmor /etc/apparmor.d/e2bctl
	apparmor_parser --replace /etc/apparmor.d/e2bctl || echo "e2bctl: the AppArmor profile was not loaded: see e2bctl doctor" >&2
fi
