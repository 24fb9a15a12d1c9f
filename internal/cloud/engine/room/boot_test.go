//go:build linux

package room

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFilesOfTheFirstStage checks that the start of a sandbox fails if its first stage does not
// send the files that the server needs, or sends others.
func TestFilesOfTheFirstStage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sent []wire.FileName
		want string // in the error; "": no error
	}{
		"what is needed":    {sent: []wire.FileName{wire.FileFiles}},
		"nothing":           {want: `"files" is missing`},
		"another file":      {sent: []wire.FileName{wire.FileFiles, wire.FileTo}, want: `nobody wants the files "to"`},
		"half of an egress": {sent: []wire.FileName{wire.FileFiles, wire.FileEgress.Numbered(0)}, want: "1 sockets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envd, inside := wirePair(t)
			null, err := os.Open(os.DevNull)
			must.Do(t, err)
			defer null.Close()
			var files wire.Files
			for _, name := range tt.sent {
				files.Lend(name, null)
			}
			must.Do(t, inside.SendFiles(wire.Message{Kind: wire.KindReady, Notes: []string{"noted"}}, &files))
			s := &Sandbox{room: &Room{runner: &gvisor{}, options: Options{Logger: slog.New(slog.DiscardHandler)}}, envd: envd}
			err = s.awaitBuilt(t.Context())
			if s.files.written != nil {
				defer s.files.written.Close()
			}
			if tt.want == "" {
				must.Do(t, err)
				if s.files.written == nil || len(s.files.notes) != 1 {
					t.Errorf("the files are %v, the notes %q", s.files.written, s.files.notes)
				}
				return
			}
			must.Is(t, err, wire.ErrProtocol)
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q in it", err, tt.want)
			}
		})
	}
}
