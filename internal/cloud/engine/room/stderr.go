//go:build linux

package room

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// maxSaid bounds the number of bytes of the room's stderr that are kept.
const maxSaid = 4 << 10

// stderr is the output to stderr of the room and the envds. A Go program prints a panic to stderr.
type stderr struct {
	reading sync.WaitGroup
	said    strings.Builder // the beginning of the output; complete when reading is done
}

// read begins to log the output to the pipe from, which it closes. It forgets the output of an
// earlier pipe.
func (o *stderr) read(from *os.File, logger *slog.Logger) {
	o.said.Reset()
	o.reading.Go(func() { o.log(from, logger) })
}

// log logs the output. It keeps the first lines, because they contain the reason for a panic.
func (o *stderr) log(from *os.File, logger *slog.Logger) {
	defer from.Close()
	lines := bufio.NewReaderSize(from, 4<<10)
	for {
		line, err := lines.ReadSlice('\n') // a longer line comes in pieces
		if len(line) > 0 {
			if o.said.Len() < maxSaid {
				o.said.Write(line)
			}
			logger.DebugContext(context.Background(), "from the room", "line", string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
