package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// decodeLine is run by a bash. It starts the program whose name and arguments are the
// pieces that it gets: see [encodeArgument]. Its variables are not exported, and have
// names that no program reads.
const decodeLine = `e2bctl_argument= e2bctl_argv=()
for e2bctl_piece; do
	printf -v e2bctl_bytes %b "${e2bctl_piece:1}"
	e2bctl_argument+=$e2bctl_bytes
	[[ $e2bctl_piece == +* ]] || { e2bctl_argv+=("$e2bctl_argument"); e2bctl_argument=; }
done
exec -- "${e2bctl_argv[@]}"`

// encodedPiece is the number of bytes of an argument in one piece. Encoding makes them at
// most five times as many, and Linux takes 128 KiB.
const encodedPiece = 16 << 10

// wireArgv returns arguments that the daemon can be sent and that start argv. The
// protocol has text only: where argv is not UTF-8, a bash decodes it.
func wireArgv(argv []string) []string {
	if !slices.ContainsFunc(argv, func(word string) bool { return !utf8.ValidString(word) }) {
		return argv
	}
	encoded := append(ownShell(decodeLine), "bash")
	for _, word := range argv {
		encoded = append(encoded, encodeArgument(word)...)
	}
	return encoded
}

// encodeArgument returns an argument in pieces with the escapes of printf's %b. The
// first byte is + in a piece that another one follows, and . in the last one.
func encodeArgument(word string) []string {
	var pieces []string
	for {
		part := word[:min(len(word), encodedPiece)]
		word = word[len(part):]
		var piece strings.Builder
		piece.WriteByte('.')
		for _, c := range []byte(part) {
			if c < ' ' || c > '~' || c == '\\' {
				fmt.Fprintf(&piece, `\0%03o`, c)
			} else {
				piece.WriteByte(c)
			}
		}
		text := piece.String()
		if word == "" {
			return append(pieces, text)
		}
		pieces = append(pieces, "+"+text[1:])
	}
}
