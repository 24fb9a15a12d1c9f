# Unpacks the file archive in the directory $1, and moves $2 of it to $3 with the owner $4
# and, if it is not empty, the mode $5 of files. Missing directories are made for the user
# $6. The directory goes.
set -eu
shopt -s dotglob nullglob
cd -P "$1"
trap 'cd / && rm -rf -- "$1"' EXIT
mkdir files
tar --no-same-owner --no-same-permissions -xpf archive -C files || {
	echo "the archive cannot be unpacked: it must be a tar file, gzip or not" >&2
	exit 1
}
rm archive

# Of a pattern, the directory above it is copied.
source=$2
while [[ $source == *[*?[]* ]]; do
	above=${source%/*}
	if [ "$above" = "$source" ]; then above=.; fi
	source=$above
done
from=$(realpath -ms -- "files/$source")
above=$from
if [ "$from" != "$PWD/files" ]; then above=$(realpath -m -- "$(dirname -- "$from")"); fi
case $from/ in "$PWD"/files/*) ;; *) above=/ ;; esac
case $above/ in
"$PWD"/files/*) ;;
*)
	echo "'$2' leads out of the archive" >&2
	exit 1
	;;
esac
if [ ! -e "$from" ] && [ ! -L "$from" ]; then
	echo "'$2' is not in the archive" >&2
	exit 1
fi
chown -hR "$4" files
if [ -n "$5" ]; then find files -type f -exec chmod "$5" {} +; fi

# make makes a directory.
make() {
	local first=$1
	if [ -d "$1" ]; then return; fi
	while [ ! -e "$(dirname "$first")" ]; do first=$(dirname "$first"); done
	mkdir -p -- "$1"
	chown -R "$owner" -- "$first"
}
owner=$6:$6

# merge moves what is in a directory into another one.
merge() {
	local entry name
	for entry in "$1"/*; do
		name=${entry##*/}
		if [ -d "$entry" ] && [ ! -L "$entry" ] && [ -d "$2/$name" ]; then
			merge "$entry" "$2/$name"
		else
			mv -fT -- "$entry" "$2/$name"
		fi
	done
}

if [ -d "$from" ] && [ ! -L "$from" ]; then
	make "${3%/}/"
	merge "$from" "${3%/}"
elif [[ $3 == */ ]] || [ -d "$3" ]; then
	make "${3%/}/"
	mv -fT -- "$from" "${3%/}/${from##*/}"
else
	make "$(dirname "$3")"
	mv -fT -- "$from" "$3"
fi
