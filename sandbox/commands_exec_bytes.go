package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// decodeLine is a bash command line that starts a program. Its arguments are the pieces of the
// program's name and arguments: see [encodeArgument]. Its variables are not exported, and have
// names that no program reads.
const decodeLine = `e2bctl_argument= e2bctl_argv=()
for e2bctl_piece; do
	printf -v e2bctl_bytes %b "${e2bctl_piece:1}"
	e2bctl_argument+=$e2bctl_bytes
	[[ $e2bctl_piece == +* ]] || { e2bctl_argv+=("$e2bctl_argument"); e2bctl_argument=; }
done
exec -- "${e2bctl_argv[@]}"`

// encodedPiece limits the bytes of an argument that one piece encodes. The encoding is at most five
// times as long, and Linux limits an argument to 128 KiB.
const encodedPiece = 16 << 10

// wireArgv returns arguments that start the program in argv and are valid in the protocol. The
// protocol transmits only text. If argv is not UTF-8, the returned arguments run a bash that
// decodes argv.
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

// encodeArgument returns an argument in pieces, with the escapes of printf's %b. The first byte of
// the last piece is ".". The first byte of every other piece is "+".
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
