package code

import (
	"bytes"
	"context"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// keyboard passes the keys of a terminal in raw mode to the line editor, one at a time. While code
// runs, it stores the keys that the user types ahead, and Ctrl-C interrupts the code.
type keyboard struct {
	mu      sync.Mutex
	typed   []byte        // the keys that were typed and not read yet
	news    chan struct{} // receives an element when typed or err may have changed
	err     error         // the error that ended the input from the terminal; nil while more keys may come
	running func()        // called at Ctrl-C while the kernel works; nil while a line is read

	// Only the goroutine that calls the method read uses the fields below.
	pasting  bool // the next key is part of pasted text, between the marks of that text
	inPaste  bool // the last line ended within pasted text
	returned bool // the last key was a carriage return
	aborted  bool // the last line ended by Ctrl-C
}

const (
	ctrlC = 0x03
	// replaces Ctrl-C for the line editor, because the editor cannot distinguish Ctrl-C from Ctrl-D
	abortKey  = 0x07
	maxAhead  = 64 << 10    // the maximum number of bytes of keys that are kept while code runs
	maxKey    = 32          // the maximum number of bytes of an escape sequence
	pasteKey  = "\x1b[200~" // the mark before pasted text
	pastedKey = "\x1b[201~" // the mark after pasted text
)

// follow reads keys from a terminal until a read returns an error.
func (k *keyboard) follow(terminal io.Reader) {
	part := make([]byte, 4096)
	for {
		n, err := terminal.Read(part)
		k.take(part[:n], err)
		if err != nil {
			return
		}
	}
}

func (k *keyboard) take(keys []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	if k.running == nil || len(k.typed)+len(keys) <= maxAhead || bytes.IndexByte(keys, ctrlC) >= 0 {
		k.typed = append(k.typed, keys...)
	}
	k.interrupt()
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// interrupt calls running if Ctrl-C was typed, and drops the keys typed before it.
func (k *keyboard) interrupt() {
	if at := bytes.LastIndexByte(k.typed, ctrlC); k.running != nil && at >= 0 {
		k.typed = k.typed[at+1:]
		k.running()
	}
}

// during makes Ctrl-C call interrupt. The function interrupt must not wait. If interrupt is nil,
// the method read receives Ctrl-C in the same way as other keys.
func (k *keyboard) during(interrupt func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = interrupt
	k.interrupt()
}

// isAhead reports whether there are typed keys that were not read yet.
func (k *keyboard) isAhead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.typed) > 0
}

// press inserts keys before the typed keys that were not read yet.
func (k *keyboard) press(keys string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.typed = append([]byte(keys), k.typed...)
}

// read returns the next key for the line editor. It waits until a key is complete, the input fails
// or ends, or ctx ends.
func (k *keyboard) read(ctx context.Context) (string, error) {
	for {
		k.mu.Lock()
		n, err := keyLength(k.typed), k.err
		key := string(k.typed[:n])
		k.typed = k.typed[n:]
		k.mu.Unlock()
		switch key = k.translate(key); {
		case key != "":
			return key, nil
		case n > 0:
			continue
		case err != nil:
			return "", err
		}
		select {
		case <-k.news:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// keyLength returns the number of bytes of the first key, or 0 if the key is not complete yet.
func keyLength(typed []byte) int {
	switch {
	case len(typed) == 0:
		return 0
	case typed[0] != '\x1b':
		if !utf8.FullRune(typed) {
			return 0
		}
		_, n := utf8.DecodeRune(typed)
		return n
	case len(typed) == 1:
		return 0
	case typed[1] < ' ': // the escape key, and then another one
		return 1
	case typed[1] == 'O':
		return min(len(typed), 3) / 3 * 3
	case typed[1] != '[':
		return 2
	}
	for i, c := range typed[2:] {
		switch {
		case c < ' ' || i == maxKey: // no sequence
			return i + 2
		case '@' <= c && c <= '~':
			return i + 3
		}
	}
	return 0
}

// translate returns the line editor's form of a key, or "" for a key that the editor does not
// support.
func (k *keyboard) translate(key string) string {
	if key == "" {
		return ""
	}
	afterReturn := k.returned
	k.returned = key == "\r"
	if k.pasting {
		return k.paste(key, afterReturn)
	}
	switch key {
	case "\x03":
		k.aborted = true
		return string(rune(abortKey)) + "\r"
	case "\r", "\n":
		k.inPaste = false
		return "\r"
	case pasteKey:
		k.pasting = true
		return key
	case "\x1bOA", "\x1bOB", "\x1bOC", "\x1bOD", "\x1bOH", "\x1bOF":
		return "\x1b[" + key[2:]
	case "\x1b[1~", "\x1b[7~":
		return "\x1b[H"
	case "\x1b[4~", "\x1b[8~":
		return "\x1b[F"
	case "\x1bb", "\x1b[1;5D":
		return "\x1b[1;3D" // a word to the left
	case "\x1bf", "\x1b[1;5C":
		return "\x1b[1;3C"
	case "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[3~", "\x1b[1;3C", "\x1b[1;3D":
		return key
	}
	if key[0] == '\x1b' {
		return ""
	}
	return key
}

// paste returns the line editor's form of a key within pasted text: characters and ends of lines only.
func (k *keyboard) paste(key string, afterReturn bool) string {
	switch r, _ := utf8.DecodeRuneInString(key); {
	case key == pastedKey:
		k.pasting = false
		return key
	case key == "\n" && afterReturn:
		return ""
	case key == "\r", key == "\n":
		k.inPaste = true
		return "\r"
	case key == "\t":
		return tabMark
	case unicode.IsControl(r):
		return ""
	}
	return key
}
