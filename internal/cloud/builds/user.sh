# Makes the user $1 with a home, if there is none of that name, and lets it become root
# without a password if $2 is sudo. Says whether anything changed, and the home.
set -eu
changed=same
if ! grep -q "^$1:" /etc/passwd; then
	id=1001
	while cut -d: -f3 /etc/passwd /etc/group | grep -qx "$id"; do id=$((id + 1)); done
	echo "$1:x:$id:$id::/home/$1:/bin/bash" >>/etc/passwd
	grep -q "^$1:" /etc/group || echo "$1:x:$id:" >>/etc/group
	if [ -w /etc/shadow ]; then echo "$1:!:19000:0:99999:7:::" >>/etc/shadow; fi
	mkdir -p "/home/$1"
	chown "$id:$id" "/home/$1"
	changed=changed
fi
rule="$1 ALL=(ALL:ALL) NOPASSWD: ALL"
if [ "$2" = sudo ] && ! grep -qxF "$rule" /etc/sudoers; then
	echo "$rule" >>/etc/sudoers
	changed=changed
fi
echo "$changed $(grep "^$1:" /etc/passwd | head -n 1 | cut -d: -f6)"
