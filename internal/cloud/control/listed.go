package control

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// usualListed is the size of the text of an element of a list, if it has no metadata.
const usualListed = 400

// append appends the JSON that [json.Marshal] returns for an element of a list. Lists are long, and
// json.Marshal takes three times as long for them.
func (l listed) append(to []byte) []byte {
	to = appendString(to, `{"templateID":`, l.TemplateID)
	to = appendString(to, `,"sandboxID":`, l.SandboxID)
	to = appendString(to, `,"clientID":`, l.ClientID)
	if l.Alias != "" {
		to = appendString(to, `,"alias":`, l.Alias)
	}
	to = appendTime(to, `,"startedAt":"`, l.StartedAt)
	to = appendTime(to, `,"endAt":"`, l.EndAt)
	to = appendNumber(to, `,"cpuCount":`, l.CPUCount)
	to = appendNumber(to, `,"memoryMB":`, l.MemoryMB)
	to = appendNumber(to, `,"diskSizeMB":`, l.DiskSizeMB)
	to = appendString(to, `,"state":`, l.State)
	to = appendString(to, `,"envdVersion":`, l.EnvdVersion)
	if len(l.Metadata) > 0 {
		to = appendAny(to, `,"metadata":`, l.Metadata)
	}
	if to = append(to, `,"volumeMounts":`...); len(l.VolumeMounts) > 0 {
		to = appendAny(to, "", l.VolumeMounts)
	} else {
		to = append(to, "[]"...)
	}
	if l.Unresponsive {
		to = append(to, `,"envdUnresponsiveAtPause":true`...)
	}
	return append(to, '}')
}

func appendString(to []byte, name, value string) []byte {
	if strings.ContainsFunc(value, needsEscape) {
		return appendAny(to, name, value)
	}
	to = append(append(to, name...), '"')
	return append(append(to, value...), '"')
}

func needsEscape(c rune) bool { return c < ' ' || c > '~' || strings.ContainsRune(`"\<>&`, c) }

// appendTime appends a time. Times of sandboxes have years of four digits, and zones of whole
// minutes, so that the text is the one of [time.Time.MarshalJSON].
func appendTime(to []byte, name string, t time.Time) []byte {
	return append(t.AppendFormat(append(to, name...), time.RFC3339Nano), '"')
}

func appendNumber(to []byte, name string, n int) []byte {
	return strconv.AppendInt(append(to, name...), int64(n), 10)
}

func appendAny(to []byte, name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable: only strings, and maps and slices of strings, are passed
	}
	return append(append(to, name...), text...)
}
