package localcloud

import (
	"errors"
	"io/fs"
)

// Running returns the records of all running local clouds of this user: the one that commands use,
// then the clouds beside it. If it returns an error, it also returns the records that it found.
func Running() ([]Record, error) {
	place, err := Find()
	if err != nil {
		return nil, err
	}
	var records []Record
	record, err := place.Read()
	switch {
	case err == nil:
		records = append(records, record)
	case errors.Is(err, ErrNone):
		err = nil
	}
	beside, besideErr := place.Beside()
	return append(records, beside...), errors.Join(err, besideErr)
}

// LogFile returns the path of the log file of the local cloud with the state directory state, an
// absolute path. If state is "", it is the user's local cloud. If that cloud is not running,
// LogFile returns the log of the last such cloud in the background. ended reports whether the cloud
// of the log has ended. For a cloud in the foreground the error is a *[NoLogError].
func LogFile(state string) (path string, ended func() bool, err error) {
	place, err := FindFor(state)
	if err != nil {
		return "", nil, err
	}
	record, err := place.Read()
	switch {
	case err == nil && (state == "" || record.State == state):
		if record.Log == "" {
			return "", nil, &NoLogError{record.URL}
		}
		return record.Log, func() bool {
			now, err := place.Read()
			return err != nil || !now.Since.Equal(record.Since)
		}, nil
	case err != nil && !errors.Is(err, ErrNone):
		return "", nil, err
	case state != "" && !place.Separate():
		place = place.beside(state)
	}
	return place.logFile(), func() bool { return true }, nil
}

// NoLogError means that there is no log file.
type NoLogError struct {
	// the URL of the local cloud that runs in the foreground and has no log. It is "" if no local
	// cloud has run in the background.
	URL string
}

func (e *NoLogError) Error() string {
	if e.URL == "" {
		return "no local cloud has run in the background; e2bctl local up --background starts one"
	}
	return "the local cloud on " + e.URL + " runs in the foreground and has no log file: its terminal shows what happens with -v; e2bctl local up --background writes one"
}

func (e *NoLogError) Is(target error) bool { return target == fs.ErrNotExist }
