# Makes the directory $1, and those above it that are missing, for the user $2. Says whether
# anything changed.
set -eu
if [ -d "$1" ]; then
	echo same
	exit 0
fi
first=$1
while [ ! -e "$(dirname "$first")" ]; do first=$(dirname "$first"); done
mkdir -p -- "$1"
chown -R "$2:$2" -- "$first"
echo changed
