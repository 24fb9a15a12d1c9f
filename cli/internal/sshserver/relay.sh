if [ -e "$1" ] && [ ! -S "$1" ]; then
	echo 'it is not a socket' >&2
	exit 1
fi
command -v python3 >/dev/null && exec python3 -I -S -c "$3" "$@"
command -v perl >/dev/null && exec perl -e "$4" "$@"
echo 'sockets need python3 or perl in the sandbox, which has neither' >&2
exit 1
